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
number of children that the parent has created so far, so a deletion does not free a number. Access control lists are
not stored: ``aversion`` is always 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.coordination.interface import (
    ANY_VERSION,
    BadArgumentsError,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetData,
    Stat,
    copy_data,
)
from headrace.coordination.tree.watches import Delivery, Watches

ROOT = "/"


@dataclass(frozen=True, slots=True)
class OpenSession:
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Closes the session of the transaction."""


Change: TypeAlias = Operation | OpenSession | CloseSession


@dataclass(frozen=True, slots=True)
class Transaction:
    zxid: int
    session_id: int
    time_ms: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Znode:
    #: None if a client wrote null, which ZooKeeper distinguishes from empty data.
    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    ephemeral_owner: int = 0
    #: How many children were created so far, including the deleted ones.
    created_count: int = 0
    children: set[str] = field(default_factory=set)

    @property
    def data_length(self) -> int:
        return 0 if self.data is None else len(self.data)

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            # Creations plus deletions. The deletions are the created children that are not here any more.
            cversion=2 * self.created_count - len(self.children),
            aversion=0,
            ephemeral_owner=self.ephemeral_owner,
            data_length=self.data_length,
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """The results of a transaction, one per change, and the watches that it fired, in order."""

    results: list[Result]
    deliveries: list[Delivery]


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def check_path(path: str) -> None:
    """Checks ZooKeeper's rules: absolute; no empty, ``.`` or ``..`` part; no control or private characters.

    :raises BadArgumentsError:
    """
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise BadArgumentsError(f"the path {path!r} does not start with /")
    for part in path[1:].split("/"):
        if part in ("", ".", ".."):
            raise BadArgumentsError(f"the path {path!r} contains the part {part!r}")
    if not (path.isascii() and path.isprintable()) and any(map(_is_forbidden, path)):
        raise BadArgumentsError(f"the path {path!r} contains a control character or a private character")


def _is_forbidden(character: str) -> bool:
    return (
        character <= "\x1f"
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or "\ufff0" <= character <= "\uffff"
    )


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
        data, stat = self.get_or_null(path)
        return data or b"", stat

    def get_or_null(self, path: str) -> tuple[bytes | None, Stat]:
        """Data and Stat. Null data is None, as clients of ZooKeeper see it."""
        node = self._node(path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        check_path(path)
        node = self.nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        return sorted(self._node(path).children)

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

    def prepare(self, session_id: int, operations: Sequence[Operation], time_ms: int) -> Transaction:
        """Builds the transaction that performs all operations.

        :raises CoordinationError: of the first operation that cannot be performed.
        """
        self.check_session(session_id)
        pending = _PendingTree(self.nodes)
        changes: list[Operation] = []
        try:
            for operation in operations:
                changes.append(pending.resolve(operation))  # noqa: PERF401  the length is the index of the operation that fails
        except CoordinationError as error:
            error.operation_index = len(changes)
            raise
        return Transaction(self.last_zxid + 1, session_id, time_ms, tuple(changes))

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
            case Create(path, data, ephemeral):
                owner = transaction.session_id if ephemeral else 0
                self._create(path, data, owner, transaction)
                deliveries += self.watches.on_created(path, parent_of(path))
                return path
            case Delete(path):
                self._delete(path, transaction.zxid)
                deliveries += self.watches.on_deleted(path, parent_of(path))
            case SetData(path, data):
                node = self.nodes[path]
                node.data = data
                node.version += 1
                node.mzxid, node.mtime_ms = transaction.zxid, transaction.time_ms
                deliveries += self.watches.on_changed(path)
                return node.stat()
            case OpenSession(timeout_ms):
                self.sessions[transaction.session_id] = timeout_ms
            case CloseSession():
                self._close_session(transaction, deliveries)
            case Check():
                pass
        return None

    def _create(self, path: str, data: bytes | None, owner: int, transaction: Transaction) -> None:
        zxid, time_ms = transaction.zxid, transaction.time_ms
        self.nodes[path] = Znode(data, zxid, zxid, zxid, time_ms, time_ms, ephemeral_owner=owner)
        parent = self.nodes[parent_of(path)]
        parent.children.add(name_of(path))
        parent.created_count += 1
        parent.pzxid = zxid
        if owner:
            self._ephemerals.setdefault(owner, set()).add(path)

    def _delete(self, path: str, zxid: int) -> None:
        node = self.nodes.pop(path)
        parent = self.nodes[parent_of(path)]
        parent.children.remove(name_of(path))
        parent.pzxid = zxid
        if node.ephemeral_owner:
            self._ephemerals[node.ephemeral_owner].remove(path)

    def _close_session(self, transaction: Transaction, deliveries: list[Delivery]) -> None:
        session_id = transaction.session_id
        # Drops the session's own watches first, so that the session gets no events about its own end.
        self.watches.drop_session(session_id)
        for path in self.ephemerals(session_id):
            self._delete(path, transaction.zxid)
            deliveries += self.watches.on_deleted(path, parent_of(path))
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
                self.nodes[parent_of(path)].children.add(name_of(path))
            if node.ephemeral_owner:
                self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)


@dataclass(slots=True)
class _PendingZnode:
    """The fields of a znode that later operations of the same transaction are checked against."""

    version: int
    created_count: int
    child_count: int
    is_ephemeral: bool

    @classmethod
    def of(cls, node: Znode) -> "_PendingZnode":
        return cls(node.version, node.created_count, len(node.children), node.ephemeral_owner != 0)


class _PendingTree:
    """The tree after the operations of one transaction that were resolved so far."""

    def __init__(self, nodes: dict[str, Znode]) -> None:
        self._nodes = nodes
        self._znodes: dict[str, _PendingZnode | None] = {}

    def resolve(self, operation: Operation) -> Operation:
        match operation:
            case Create():
                return self._resolve_create(operation)
            case Delete(path, version):
                self._resolve_delete(path, version)
                return Delete(path)
            case SetData(path, data, version):
                self._existing(path, version).version += 1
                return SetData(path, copy_data(data))
            case Check(path, version):
                self._existing(path, version)
                return Check(path)

    def _resolve_create(self, operation: Create) -> Create:
        path = operation.path
        # With a sequence number, the name may consist of the number only. Then the given path ends with a slash.
        check_path(path + "0" if operation.sequence else path)
        if path == ROOT:
            raise NodeExistsError(path)
        parent = self._znode(parent_of(path))
        if parent is None:
            raise NoNodeError(parent_of(path))
        if operation.sequence:
            path = f"{path}{parent.created_count:010d}"
        if self._znode(path) is not None:
            raise NodeExistsError(path)
        if parent.is_ephemeral:
            raise NoChildrenForEphemeralsError(parent_of(path))
        parent.created_count += 1
        parent.child_count += 1
        self._znodes[path] = _PendingZnode(0, 0, 0, operation.ephemeral)
        return Create(path, copy_data(operation.data), operation.ephemeral)

    def _resolve_delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise BadArgumentsError("the root znode cannot be deleted")
        if self._existing(path, version).child_count:
            raise NotEmptyError(path)
        parent = self._znode(parent_of(path))
        assert parent is not None
        parent.child_count -= 1
        self._znodes[path] = None

    def _existing(self, path: str, version: int) -> _PendingZnode:
        check_path(path)
        znode = self._znode(path)
        if znode is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, znode.version):
            raise BadVersionError(f"{path} has version {znode.version}, not {version}")
        return znode

    def _znode(self, path: str) -> _PendingZnode | None:
        if path not in self._znodes:
            node = self._nodes.get(path)
            self._znodes[path] = None if node is None else _PendingZnode.of(node)
        return self._znodes[path]
