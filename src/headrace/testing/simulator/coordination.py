"""A client of the simulated znode tree, with the delays and failures of a ZooKeeper on the network.

The client keeps the promises of ``coordination/interface.py``, as the client of a real ensemble does. Calls and events
stay in order. Without a connection, calls wait. A change that was under way raises ConnectionLostError, whether the
tree applied it or not. A session whose client sends nothing for the session timeout expires; the client learns that
when it reaches the tree again.

The tree stands for a whole ensemble and loses nothing. It may be unreachable for a while, or refuse requests
(:class:`SimulatedTree`).
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
#: The name of the tree as a node of the network.
TREE = "tree"
#: How often a client that cannot reach the tree tries again. The shortest time between two messages: no two messages
#: arrive at the same instant, because the loop does not define their order then.
_RETRY_S, _SHORTEST_S = 0.25, 1e-6


class SimulatedTree(TreeHost):
    """The ensemble, with the faults that affect all brokers at once."""

    def __init__(self, clock: Clock, random: Random) -> None:
        super().__init__(clock)
        self._random = random
        #: Called at every change, before anything else runs.
        self.on_change: Callable[[], None] | None = None
        #: No broker reaches the tree. The tree runs on, and sessions expire.
        self.is_cut_off = False
        #: Without a quorum the tree answers nothing, and no session expires.
        self.has_quorum = True
        #: The share of requests that get SYSTEMERROR, between 0 and 1.
        self.error_share = 0.0

    @property
    def is_unreachable(self) -> bool:
        return self.is_cut_off or not self.has_quorum

    def refuses_request(self) -> bool:
        return self.error_share > 0 and self._random.random() < self.error_share

    def regain_quorum(self) -> None:
        """Ends the loss of the quorum. The new leader of the ensemble gives all sessions their whole timeout again."""
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
    """Implements ``interface.Coordination``. Create it in the context of its node."""

    request_times = None

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
        self._last_request_s = self._last_response_s = 0.0
        #: Events that wait until the client is reachable.
        self._held_events: list[tuple[Callable[[Any], None], object]] = []
        self._session = self._new_session()
        self._heartbeat_task = network.loop.create_task(self._heartbeat())

    def _new_session(self) -> LocalCoordination:
        return LocalCoordination(self._host, session_timeout_ms=self._session_timeout_ms, call_soon=self._deliver_later)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    # -- requests and events

    @property
    def _is_reachable(self) -> bool:
        passes = self._network.passes
        return not self._host.is_unreachable and passes(self._name, TREE) and passes(TREE, self._name)

    @property
    def _is_expired(self) -> bool:
        return self.session_id not in self._host.tree.sessions

    def _deliver_later(self, listener: Callable[[Any], None], event: object) -> None:
        if self._held_events or not self._is_reachable:
            self._held_events.append((listener, event))
            return
        self._last_response_s = max(
            self._last_response_s + _SHORTEST_S, self._network.loop.time() + self._network.delay_s()
        )
        self._network.loop.call_at(self._last_response_s, listener, event, context=self._context)

    async def _sleep_until(self, when_s: float) -> None:
        await asyncio.sleep(max(0.0, when_s - self._network.loop.time()))

    async def _ask(self, do: Callable[[LocalCoordination], Awaitable[T]], *, is_change: bool) -> T:
        while True:
            await self._is_connected.wait()
            session, loop = self._session, self._network.loop
            self._last_request_s = max(self._last_request_s + _SHORTEST_S, loop.time() + self._network.delay_s())
            await self._sleep_until(self._last_request_s)
            is_lost = not self._is_reachable
            if not is_lost:
                self._check(session)
                answer: T | Exception
                try:
                    if self._host.refuses_request():
                        raise CoordinationError("SYSTEMERROR")
                    answer = await do(session)
                except Exception as error:  # noqa: BLE001  raised below, when the answer arrives
                    answer = error
                self._last_response_s = max(self._last_response_s + _SHORTEST_S, loop.time() + self._network.delay_s())
                await self._sleep_until(self._last_response_s)
                if self._is_reachable:
                    self._check(session)
                    if isinstance(answer, Exception):
                        raise answer
                    return answer
            self._suspend()
            if is_change:
                raise ConnectionLostError("the tree did not answer; it may have applied the change or not")

    def _check(self, session: LocalCoordination) -> None:
        if session is not self._session:
            raise SessionExpiredError("the session of this request has expired")

    # -- the session

    def _suspend(self) -> None:
        if self._is_connected.is_set():
            self._is_connected.clear()
            self._notify(SessionState.SUSPENDED)

    async def _heartbeat(self) -> None:
        """Keeps the session alive, and notices when the session has expired."""
        while not self._is_closed:
            await asyncio.sleep(self._session_timeout_ms / 3000 if self._is_connected.is_set() else _RETRY_S)
            if self._is_closed:
                return
            if not self._is_reachable:
                self._suspend()
            elif self._is_expired:
                self._replace_session()
            else:
                self._host.touch(self.session_id)
                if not self._is_connected.is_set():
                    self._reconnected()
                elif self._held_events:
                    self._deliver_held()  # the tree was unreachable for less than a heartbeat

    def _replace_session(self) -> None:
        self._held_events.clear()
        self._suspend()
        self._notify(SessionState.LOST)
        self._session = self._new_session()
        self._reconnected()

    def _reconnected(self) -> None:
        """Delivers the events that were held, then reports the connection."""
        self._deliver_held()
        self._is_connected.set()
        self._notify(SessionState.CONNECTED)

    def _deliver_held(self) -> None:
        held, self._held_events = self._held_events, []
        for listener, event in held:
            self._deliver_later(listener, event)

    def _notify(self, state: SessionState) -> None:
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
        self._heartbeat_task.cancel()
        await self._session.close()
