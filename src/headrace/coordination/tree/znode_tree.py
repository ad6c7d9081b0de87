"""The znode tree: ZooKeeper's data model as a state machine, without I/O.

A change has two steps. ``prepare`` checks a session's operations. It rejects them with an error, or turns them into a
:class:`Transaction`: the same operations with nothing left to decide (sequence numbers assigned, versions checked),
under the next transaction id. ``apply`` performs a transaction. ``apply`` cannot fail, and its result depends only on
the transaction and the tree. So a store that keeps the transactions (``store.py``) and applies them again gets the same
tree: live operation and loading run the same code. No other transaction may be applied between the two steps.

Sessions are part of the tree, because their ephemeral znodes are part of it. Opening and closing a session are
transactions. The id of a session is the zxid of the transaction that opened it, so no id is used twice. The time of a
session's last request is not stored: after a restart, every session has its whole timeout again.

The numbers follow ZooKeeper: ``version`` counts changes of the data. ``cversion`` counts creations and deletions of
children. ``pzxid`` is the last transaction that created or deleted a child. The sequence number of a child is the
number of children that the parent has created so far, so a deletion does not free a number. ``aversion`` counts changes
of the access control list.

Every znode has an access control list (``acls.py``). ``prepare`` and ``node_for`` check it for the :class:`Caller` of a
connection. ``get``, ``exists`` and ``children`` are for code of this process, which is not restricted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.coordination.acls import OPEN_ACL, Acl
from headrace.coordination.interface import (
    ANY_VERSION,
    BadArgumentsError,
    Check,
    CoordinationError,
    Create,
    Delete,
    NoAuthError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
)
from headrace.coordination.tree.pending_tree import PendingTree
from headrace.coordination.tree.watches import Delivery, Watches
from headrace.coordination.tree.znode import ROOT, Znode, check_path, name_of, parent_of

if TYPE_CHECKING:
    from headrace.coordination.tree.caller import Caller


class OpenSession(NamedTuple):
    timeout_ms: int


class CloseSession(NamedTuple):
    """Closes the session of the transaction."""


class SetAcl(NamedTuple):
    """Replaces the access control list of a znode. ``version`` is the expected ``aversion``."""

    path: str
    acl: Acl
    version: int = ANY_VERSION


Change: TypeAlias = Operation | SetAcl | OpenSession | CloseSession


class Transaction(NamedTuple):
    zxid: int
    session_id: int
    time_ms: int
    changes: tuple[Change, ...]


class AppliedTransaction(NamedTuple):
    """The results of a transaction, one per change, and the watches that it fired, in order."""

    results: list[Result]
    deliveries: list[Delivery]


class ZnodeTree:
    """Znodes, sessions and watches. Not thread-safe."""

    def __init__(self) -> None:
        self.last_zxid = 0
        self.watches = Watches()
        self.nodes: dict[str, Znode] = {ROOT: Znode(b"", 0, 0, 0, 0, 0)}
        #: The timeout in ms of each open session.
        self.sessions: dict[int, int] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self._last_request_ms: dict[int, int] = {}

    # Reading

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and Stat. Null data is returned as empty data."""
        node = self._node(path)
        return node.data or b"", node.stat()

    def exists(self, path: str) -> Stat | None:
        check_path(path)
        node = self.nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        return sorted(self._node(path).children)

    def node_for(self, caller: Caller, permission: int, path: str) -> Znode:
        """A znode, for a caller who needs the permission (one of them, if it is a sum of several).

        :raises NoAuthError: if the znode does not give the caller the permission.
        """
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if node.acl is not OPEN_ACL and not caller.may(permission, node.acl):
            raise NoAuthError(path)
        return node

    def ephemerals(self, session_id: int) -> list[str]:
        return sorted(self._ephemerals.get(session_id, ()))

    def _node(self, path: str) -> Znode:
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    # Sessions

    def check_session(self, session_id: int) -> None:
        if session_id not in self.sessions:
            raise SessionExpiredError(f"session {session_id:#x} is not open")

    def touch(self, session_id: int, now_ms: int) -> None:
        """Records a request of the session, in monotonic time."""
        self.check_session(session_id)
        self._last_request_ms[session_id] = now_ms

    def expired_sessions(self, now_ms: int) -> list[int]:
        """The sessions without a request for their whole timeout. A session without any request so far starts now."""
        return [
            session_id
            for session_id, timeout_ms in self.sessions.items()
            if now_ms - self._last_request_ms.setdefault(session_id, now_ms) >= timeout_ms
        ]

    # Changes, first step: prepare

    def prepare_open_session(self, timeout_ms: int, time_ms: int) -> Transaction:
        if timeout_ms <= 0:
            raise BadArgumentsError(f"the session timeout must be positive, not {timeout_ms} ms")
        zxid = self.last_zxid + 1
        return Transaction(zxid, zxid, time_ms, (OpenSession(timeout_ms),))

    def prepare_close_session(self, session_id: int, time_ms: int) -> Transaction:
        self.check_session(session_id)
        return Transaction(self.last_zxid + 1, session_id, time_ms, (CloseSession(),))

    def prepare(
        self, session_id: int, operations: Sequence[Operation], time_ms: int, caller: Caller | None = None
    ) -> Transaction:
        """Builds the transaction that performs all operations.

        :param caller: whose permissions are checked; None for code of this process.
        :raises CoordinationError: of the first operation that cannot be performed.
        """
        self.check_session(session_id)
        pending = PendingTree(self.nodes, caller)
        changes: list[Operation] = []
        try:
            for operation in operations:
                changes.append(pending.resolve(operation))  # noqa: PERF401  the length is the index of the operation that fails
        except CoordinationError as error:
            error.operation_index = len(changes)
            raise
        return Transaction(self.last_zxid + 1, session_id, time_ms, tuple(changes))

    def prepare_acl(self, session_id: int, change: SetAcl, time_ms: int, caller: Caller | None = None) -> Transaction:
        """Builds the transaction that replaces an access control list. As in ZooKeeper, it cannot be part of others."""
        self.check_session(session_id)
        resolved = PendingTree(self.nodes, caller).resolve_acl(change)
        return Transaction(self.last_zxid + 1, session_id, time_ms, (resolved,))

    # Changes, second step: apply

    def apply(self, transaction: Transaction) -> AppliedTransaction:
        assert transaction.zxid == self.last_zxid + 1, f"transaction {transaction.zxid} cannot follow {self.last_zxid}"
        self.last_zxid = transaction.zxid
        outcome = AppliedTransaction([], [])
        for change in transaction.changes:
            outcome.results.append(self._apply(change, transaction, outcome.deliveries))
        return outcome

    def _apply(self, change: Change, transaction: Transaction, deliveries: list[Delivery]) -> Result:
        match change:
            case Create():
                parent = self._create(change, transaction)
                deliveries += self.watches.on_created(change.path, change.acl, parent_of(change.path), parent.acl)
                return change.path
            case Delete(path):
                deliveries += self._delete(path, transaction.zxid)
            case SetData(path, data):
                node = self.nodes[path]
                node.data = data
                node.version += 1
                node.mzxid, node.mtime_ms = transaction.zxid, transaction.time_ms
                deliveries += self.watches.on_changed(path, node.acl)
                return node.stat()
            case SetAcl(path, acl):
                node = self.nodes[path]
                node.acl = acl
                node.aversion += 1
                return node.stat()
            case OpenSession(timeout_ms):
                self.sessions[transaction.session_id] = timeout_ms
            case CloseSession():
                self._close_session(transaction, deliveries)
            case Check():
                pass
        return None

    def _create(self, change: Create, transaction: Transaction) -> Znode:
        """Creates a znode, and returns its parent."""
        path, zxid, time_ms = change.path, transaction.zxid, transaction.time_ms
        owner = transaction.session_id if change.ephemeral else 0
        self.nodes[path] = Znode(change.data, zxid, zxid, zxid, time_ms, time_ms, ephemeral_owner=owner, acl=change.acl)
        parent = self.nodes[parent_of(path)]
        parent.add_child(name_of(path))
        parent.created_count += 1
        parent.pzxid = zxid
        if owner:
            self._ephemerals.setdefault(owner, set()).add(path)
        return parent

    def _delete(self, path: str, zxid: int) -> list[Delivery]:
        node, parent_path = self.nodes.pop(path), parent_of(path)
        parent = self.nodes[parent_path]
        parent.remove_child(name_of(path))
        parent.pzxid = zxid
        if node.ephemeral_owner:
            self._ephemerals[node.ephemeral_owner].remove(path)
        return self.watches.on_deleted(path, node.acl, parent_path, parent.acl)

    def _close_session(self, transaction: Transaction, deliveries: list[Delivery]) -> None:
        session_id = transaction.session_id
        # Drops the session's own watches first, so that the session gets no events about its own end.
        self.watches.drop_session(session_id)
        for path in self.ephemerals(session_id):
            deliveries += self._delete(path, transaction.zxid)
        del self.sessions[session_id]
        self._ephemerals.pop(session_id, None)
        self._last_request_ms.pop(session_id, None)

    # Loading a snapshot

    def restore(self, last_zxid: int, sessions: dict[int, int], nodes: Iterable[tuple[str, Znode]]) -> None:
        """Replaces the content of the tree. The ``children`` of the znodes are derived from the paths."""
        self.last_zxid, self.sessions, self.nodes = last_zxid, sessions, dict(nodes)
        self._ephemerals = {}
        for path, node in self.nodes.items():
            if path != ROOT:
                self.nodes[parent_of(path)].add_child(name_of(path))
            if node.ephemeral_owner:
                self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)
