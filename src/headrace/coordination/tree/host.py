"""Hosts one znode tree in this process, for all its clients.

:class:`TreeHost` owns the tree and, if the tree is stored on disk, its store. It performs changes in order: prepare,
write, apply, call the watchers. All clients of the process share one host: a single broker has one client, a simulated
cluster has several.

Watchers are called after the change, in order, through the ``call_soon`` of their session (for example that of an event
loop), or directly if the session has none. If a watcher makes a change itself, the events of that change are delivered
after the events in progress.

Clients that are connected over the network have a :class:`Caller`, whose permissions are checked. Clients in this
process have none, and are not restricted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.coordination.acls import OPEN_ACL, Permission
from headrace.coordination.interface import Operation, Result
from headrace.coordination.tree.store import TreeStore
from headrace.coordination.tree.watches import Delivery
from headrace.coordination.tree.znode_tree import AppliedTransaction, SetAcl, Transaction, ZnodeTree
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.coordination.tree.caller import Caller

logger = getLogger(__name__)

DEFAULT_SESSION_TIMEOUT_MS = 18_000

T = TypeVar("T")


class CallSoon(Protocol):
    """Calls a watcher or listener, now or later, in the order of the calls."""

    def __call__(self, listener: Callable[[T], None], event: T, /) -> object: ...


def call_directly(listener: Callable[[T], None], event: T) -> None:
    try:
        listener(event)
    except Exception:
        logger.exception("the listener %r failed for %s", listener, event)


class TreeHost:
    """Owns a tree, and delivers the events of its watches."""

    def __init__(self, clock: Clock, *, store: TreeStore | None = None) -> None:
        self.tree = ZnodeTree() if store is None else store.tree
        self._clock = clock
        self._store = store
        self._call_soon: dict[int, CallSoon] = {}
        #: Who is connected to each session, if that is a client on the network.
        self._callers: dict[int, Caller] = {}
        self._undelivered: deque[Delivery] = deque()
        self._is_delivering = False

    @classmethod
    def open(cls, folder: Path, clock: Clock) -> TreeHost:
        """Opens the tree in ``folder``, for clients of this process only.

        Closes all stored sessions, because their clients ended with the process that hosted the tree before.
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

    def resume_session(self, session_id: int, *, call_soon: CallSoon = call_directly) -> None:
        """Continues a session that the store contains. Its client may reconnect and set its watches again."""
        self.tree.check_session(session_id)
        self._call_soon[session_id] = call_soon

    def attach(self, session_id: int, caller: Caller) -> None:
        """Restricts the events of the session to those that the caller may see."""
        self._callers[session_id] = caller

    def touch(self, session_id: int) -> None:
        self.tree.touch(session_id, self._clock.monotonic_ms())

    def close_session(self, session_id: int) -> None:
        transaction = self.tree.prepare_close_session(session_id, self._clock.wall_ms())
        self._call_soon.pop(session_id, None)
        self._callers.pop(session_id, None)
        self._commit(transaction)

    def expire_sessions(self) -> list[int]:
        """Closes the sessions without a request for their whole timeout; returns their ids."""
        expired = self.tree.expired_sessions(self._clock.monotonic_ms())
        for session_id in expired:
            self.close_session(session_id)
        return expired

    def submit(self, session_id: int, operations: Sequence[Operation], caller: Caller | None = None) -> list[Result]:
        transaction = self.tree.prepare(session_id, operations, self._clock.wall_ms(), caller)
        return self._commit(transaction).results

    def set_acl(self, session_id: int, change: SetAcl, caller: Caller | None = None) -> Result:
        transaction = self.tree.prepare_acl(session_id, change, self._clock.wall_ms(), caller)
        return self._commit(transaction).results[0]

    def close(self) -> None:
        """Flushes the store. Sessions stay open in the store, and the next host decides about them."""
        if self._store is not None:
            self._store.close()

    def _commit(self, transaction: Transaction) -> AppliedTransaction:
        outcome = self.tree.apply(transaction) if self._store is None else self._store.commit(transaction)
        self._undelivered += outcome.deliveries
        self._deliver()
        return outcome

    def _deliver(self) -> None:
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._undelivered:
                delivery = self._undelivered.popleft()
                # A session that was closed in the meantime gets no events.
                if (call_soon := self._call_soon.get(delivery.session_id)) is not None and self._may_see(delivery):
                    call_soon(delivery.watcher, delivery.event)
        finally:
            self._is_delivering = False

    def _may_see(self, delivery: Delivery) -> bool:
        if delivery.acl is OPEN_ACL:
            return True
        caller = self._callers.get(delivery.session_id)
        return caller is None or caller.may(Permission.READ, delivery.acl)
