"""A client of the cluster's znode tree, as far away as a ZooKeeper is: answers take time, and do not always come.

It keeps what ``coordination/interface.py`` promises, as the client of a real ensemble does. Calls and events are in
order. Without a connection calls wait; a change under way then raises ConnectionLostError, done or not. A session that
nothing was heard of for its timeout ends, and its client learns of that when it can reach the tree again.

The tree itself loses nothing: it stands for an ensemble. That may be out of everybody's reach for a while, or refuse
what it is asked (:class:`SimulatedTree`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import (
    ANY_VERSION,
    ConnectionLostError,
    CoordinationError,
    Operation,
    Result,
    SessionExpiredError,
    SessionListener,
    SessionState,
    Stat,
    Watcher,
)
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.tree.znode_tree import AppliedTransaction, Transaction
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.testing.simulator.network import Network

T = TypeVar("T")
#: As a node of the network.
TREE = "tree"
#: How often who cannot reach the tree tries again; and a moment, so that no two things happen at the same one.
_RETRY_S, _MOMENT_S = 0.25, 1e-6


class SimulatedTree(TreeHost):
    """The ensemble, and what may be wrong with all of it at once."""

    def __init__(self, clock: Clock, random: Random) -> None:
        super().__init__(clock)
        self._random = random
        #: Looks at the cluster at every change, at that very moment.
        self.on_change: Callable[[], None] | None = None
        #: No broker reaches it; it goes on, and lets sessions expire.
        self.is_cut_off = False
        #: Without one nothing is answered, and time stands still for its sessions.
        self.has_quorum = True
        #: Above zero: that share of all requests is refused, with an error that says nothing of the request.
        self.error_share = 0.0

    @property
    def is_away(self) -> bool:
        return self.is_cut_off or not self.has_quorum

    def refuses(self) -> bool:
        return self.error_share > 0 and self._random.random() < self.error_share

    def find_quorum(self) -> None:
        """The next leader of the ensemble gives all sessions their whole time again."""
        self.has_quorum = True
        for session_id in list(self.tree.sessions):
            self.touch(session_id)

    def expire_sessions(self) -> list[int]:
        return super().expire_sessions() if self.has_quorum else []

    def _commit(self, transaction: Transaction) -> AppliedTransaction:
        outcome = super()._commit(transaction)
        if self.on_change is not None:
            self.on_change()
        return outcome


class SimulatedCoordination:
    """Implements ``interface.Coordination``. Made within its node's context."""

    def __init__(
        self, host: SimulatedTree, network: Network, name: str, random: Random, session_timeout_ms: int
    ) -> None:
        self._host = host
        self._network = network
        self._name = name
        self._random = random
        self._session_timeout_ms = session_timeout_ms
        self._listeners: list[SessionListener] = []
        self._context = copy_context()
        self._is_connected = asyncio.Event()
        self._is_connected.set()
        self._is_closed = False
        self._asked_s = self._told_s = 0.0
        #: Events that cannot get through.
        self._held: list[tuple[Callable[[Any], None], object]] = []
        self._session = self._new_session()
        self._beating = network.loop.create_task(self._beat())

    def _new_session(self) -> LocalCoordination:
        return LocalCoordination(self._host, session_timeout_ms=self._session_timeout_ms, call_soon=self._tell_later)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    # -- the way to the tree and back

    @property
    def _can_reach(self) -> bool:
        passes = self._network.passes
        return not self._host.is_away and passes(self._name, TREE) and passes(TREE, self._name)

    @property
    def _is_expired(self) -> bool:
        return self.session_id not in self._host.tree.sessions

    def _tell_later(self, listener: Callable[[Any], None], news: object) -> None:
        if self._held or not self._can_reach:
            self._held.append((listener, news))
            return
        self._told_s = max(self._told_s + _MOMENT_S, self._network.loop.time() + self._network.delay_s())
        self._network.loop.call_at(self._told_s, listener, news, context=self._context)

    async def _until(self, when_s: float) -> None:
        await asyncio.sleep(max(0.0, when_s - self._network.loop.time()))

    async def _ask(self, do: Callable[[LocalCoordination], Awaitable[T]], *, is_change: bool) -> T:
        while True:
            await self._is_connected.wait()
            session, loop = self._session, self._network.loop
            self._asked_s = max(self._asked_s + _MOMENT_S, loop.time() + self._network.delay_s())
            await self._until(self._asked_s)
            is_lost = not self._can_reach
            if not is_lost:
                self._check(session)
                answer: T | Exception
                try:
                    if self._host.refuses():
                        raise CoordinationError("SYSTEMERROR")
                    answer = await do(session)
                except Exception as error:  # noqa: BLE001  it is the answer
                    answer = error
                self._told_s = max(self._told_s + _MOMENT_S, loop.time() + self._network.delay_s())
                await self._until(self._told_s)
                if self._can_reach:
                    self._check(session)
                    if isinstance(answer, Exception):
                        raise answer
                    return answer
            self._suspend()
            if is_change:
                raise ConnectionLostError("the tree did not answer: whether it was done is not known")

    def _check(self, session: LocalCoordination) -> None:
        if session is not self._session:
            raise SessionExpiredError("the session in which this was asked is over")

    # -- the session

    def _suspend(self) -> None:
        if self._is_connected.is_set():
            self._is_connected.clear()
            self._tell(SessionState.SUSPENDED)

    async def _beat(self) -> None:
        """Keeps the session alive, and finds out what has become of it."""
        while not self._is_closed:
            await asyncio.sleep(self._session_timeout_ms / 3000 if self._is_connected.is_set() else _RETRY_S)
            if self._is_closed:
                return
            if not self._can_reach:
                self._suspend()
            elif self._is_expired:
                self._begin_anew()
            else:
                self._host.touch(self.session_id)
                if not self._is_connected.is_set():
                    self._reconnected()
                elif self._held:
                    self._tell_held()  # it was away for so short a time that nobody noticed

    def _begin_anew(self) -> None:
        self._held.clear()
        self._suspend()
        self._tell(SessionState.LOST)
        self._session = self._new_session()
        self._reconnected()

    def _reconnected(self) -> None:
        """What was missed is told first."""
        self._tell_held()
        self._is_connected.set()
        self._tell(SessionState.CONNECTED)

    def _tell_held(self) -> None:
        held, self._held = self._held, []
        for listener, news in held:
            self._tell_later(listener, news)

    def _tell(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            self._network.loop.call_soon(listener, state, context=self._context)

    # -- interface.Coordination

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        return await self._ask(
            lambda tree: tree.create(path, data, ephemeral=ephemeral, sequence=sequence, make_parents=make_parents),
            is_change=True,
        )

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._ask(lambda tree: tree.get(path, watch=watch), is_change=False)

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        return await self._ask(lambda tree: tree.set(path, data, version=version), is_change=True)

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        return await self._ask(lambda tree: tree.delete(path, version=version), is_change=True)

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        return await self._ask(lambda tree: tree.exists(path, watch=watch), is_change=False)

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        return await self._ask(lambda tree: tree.children(path, watch=watch), is_change=False)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._ask(lambda tree: tree.multi(operations), is_change=True)

    async def close(self) -> None:
        self._is_closed = True
        self._beating.cancel()
        await self._session.close()
