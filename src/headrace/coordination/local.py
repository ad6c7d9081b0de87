"""The znode tree in this process: who hosts it, and its client.

:class:`TreeHost` owns a tree and, if it is to outlive the process, its store. It makes changes happen in order: settle,
write, apply, then tell the watchers. It is shared by all clients of the process (one a broker; several in a simulator).
:class:`LocalCoordination` is one session with it. Its calls are coroutines because a real ZooKeeper's are; here they
never wait.

Watchers are called after the change, in order, through the session's ``call_soon`` (a loop's own, say), or directly
where none is given. A change that a watcher makes is told after what was under way is told.
"""

from collections import deque
from collections.abc import Callable, Sequence
from logging import getLogger
from pathlib import Path
from typing import Protocol, TypeVar

from headrace.coordination.interface import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    Result,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    Watcher,
)
from headrace.coordination.store import TreeStore
from headrace.coordination.tree import ROOT, Outcome, Transaction, ZnodeTree, check_path, parent_of
from headrace.coordination.watches import Delivery
from headrace.runtime.clock import Clock

logger = getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 18_000

T = TypeVar("T")


class CallSoon(Protocol):
    """Calls whoever watches or listens, now or later, in the order in which it is called itself."""

    def __call__(self, listener: Callable[[T], None], news: T, /) -> object: ...


def call_directly(listener: Callable[[T], None], news: T) -> None:
    try:
        listener(news)
    except Exception:
        logger.exception("who was to hear of %s failed: %r", news, listener)


class TreeHost:
    def __init__(self, clock: Clock, *, store: TreeStore | None = None) -> None:
        self.tree = ZnodeTree() if store is None else store.tree
        self._clock = clock
        self._store = store
        self._call_soon: dict[int, CallSoon] = {}
        self._untold: deque[Delivery] = deque()
        self._is_telling = False

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> "TreeHost":
        """The tree kept in ``folder``, for clients of this process alone.

        Whoever had a session died with the process that hosted it, so that all sessions end here.
        """
        host = cls(clock, store=TreeStore.open(folder))
        for session_id in list(host.tree.sessions):
            host.close_session(session_id)
        return host

    def open_session(self, timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS, *, call_soon: CallSoon = call_directly) -> int:
        transaction = self.tree.prepare_open_session(timeout_ms, self._clock.wall_ms())
        self._commit(transaction)
        self._call_soon[transaction.session_id] = call_soon
        self.touch(transaction.session_id)
        return transaction.session_id

    def adopt_session(self, session_id: int, *, call_soon: CallSoon = call_directly) -> None:
        """A session that was open when the store was: its client may come back, and then hears of changes again."""
        self.tree.check_session(session_id)
        self._call_soon[session_id] = call_soon

    def touch(self, session_id: int) -> None:
        self.tree.touch(session_id, self._clock.monotonic_ms())

    def close_session(self, session_id: int) -> None:
        transaction = self.tree.prepare_close_session(session_id, self._clock.wall_ms())
        self._call_soon.pop(session_id, None)
        self._commit(transaction)

    def expire_sessions(self) -> list[int]:
        """Close the sessions that were silent for too long, and say which."""
        expired = self.tree.expired_sessions(self._clock.monotonic_ms())
        for session_id in expired:
            self.close_session(session_id)
        return expired

    def submit(self, session_id: int, operations: Sequence[Operation]) -> list[Result]:
        transaction = self.tree.prepare(session_id, operations, self._clock.wall_ms())
        return self._commit(transaction).results

    def close(self) -> None:
        """Flush to disk. Sessions stay open in the store: it is for the next host to say what becomes of them."""
        if self._store is not None:
            self._store.close()

    def _commit(self, transaction: Transaction) -> Outcome:
        outcome = self.tree.apply(transaction) if self._store is None else self._store.commit(transaction)
        self._untold += outcome.deliveries
        self._tell()
        return outcome

    def _tell(self) -> None:
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._untold:
                delivery = self._untold.popleft()
                # A session that has closed since hears no more.
                if (call_soon := self._call_soon.get(delivery.session_id)) is not None:
                    call_soon(delivery.watcher, delivery.event)
        finally:
            self._is_telling = False


class LocalCoordination:
    """A client of a tree of this process. Implements ``interface.Coordination``."""

    def __init__(
        self,
        host: TreeHost,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        call_soon: CallSoon = call_directly,
    ) -> None:
        self._host = host
        self._session_timeout_ms = session_timeout_ms
        self._call_soon = call_soon
        self._listeners: list[SessionListener] = []
        self.session_id = host.open_session(session_timeout_ms, call_soon=call_soon)

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    def lose_session(self) -> None:
        """As if we had been silent for too long. Calls are refused until ``begin_session``."""
        if self.session_id in self._host.tree.sessions:
            self._host.close_session(self.session_id)
        self._tell(SessionState.LOST)

    def begin_session(self) -> None:
        """Go on after ``lose_session``, as a client of a ZooKeeper does by itself."""
        assert self.session_id not in self._host.tree.sessions, "a session is open already"
        self.session_id = self._host.open_session(self._session_timeout_ms, call_soon=self._call_soon)
        self._tell(SessionState.CONNECTED)

    def expire(self) -> None:
        """The session is lost, and the next one begins at once."""
        self.lose_session()
        self.begin_session()

    def _tell(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            self._call_soon(listener, state)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        operations = self._missing_parents(path) if make_parents else []
        operations.append(Create(path, data, ephemeral, sequence))
        created = self._host.submit(self.session_id, operations)[-1]
        assert isinstance(created, str)
        return created

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        found = self._tree().get(path)
        if watch is not None:
            self._host.tree.watches.add_data(self.session_id, path, watch)
        return found

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        (stat,) = self._host.submit(self.session_id, [SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        self._host.submit(self.session_id, [Delete(path, version)])

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        stat = self._tree().exists(path)
        if watch is not None:
            self._host.tree.watches.add_data(self.session_id, path, watch)
        return stat

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        names = self._tree().children(path)
        if watch is not None:
            self._host.tree.watches.add_children(self.session_id, path, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return self._host.submit(self.session_id, operations)

    async def close(self) -> None:
        if self.session_id in self._host.tree.sessions:
            self._host.close_session(self.session_id)

    def _tree(self) -> ZnodeTree:
        tree = self._host.tree
        tree.check_session(self.session_id)
        return tree

    def _missing_parents(self, path: str) -> list[Operation]:
        """What must be made for ``path`` to have a parent, in the same transaction."""
        check_path(path.rstrip("/") or ROOT)
        missing: list[Operation] = []
        parent = parent_of(path)
        while self._host.tree.exists(parent) is None:
            missing.append(Create(parent))
            parent = parent_of(parent)
        return missing[::-1]
