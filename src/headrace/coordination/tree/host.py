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

from headrace.coordination.interface import Operation, Result
from headrace.coordination.tree.store import TreeStore
from headrace.coordination.tree.watches import Delivery
from headrace.coordination.tree.znode_tree import AppliedTransaction, Transaction, ZnodeTree
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

    def _commit(self, transaction: Transaction) -> AppliedTransaction:
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
