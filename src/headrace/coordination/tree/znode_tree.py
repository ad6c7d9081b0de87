"""The znode tree: ZooKeeper's data model as a state machine, without I/O.

A change goes two steps. ``prepare`` looks at what a session asks for, refuses it with an error or turns it into a
:class:`Transaction`: the same operations with nothing left to decide (sequence numbers drawn, versions checked), under
the next transaction id. ``apply`` makes a transaction happen; it cannot fail, and depends on the transaction and the
tree alone. So whoever keeps the transactions (``store.py``) and applies them again has the same tree: running live and
loading are one code. Between the two steps nothing else may be applied.

Sessions are part of the tree, because their ephemeral znodes are: opening and closing one is a transaction, and its id
is the zxid of the one that opened it, never used again. When it was last heard of is not kept; a session has its
whole timeout again after a restart.

Numbers follow ZooKeeper: ``version`` counts changes of data; ``cversion`` counts creations and deletions of children;
``pzxid`` is the last transaction that made or removed a child. A sequence number is how many children the parent has
ever got, so deleting gives none back. Access control lists are not kept: ``aversion`` is always 0.
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
    frozen,
)
from headrace.coordination.tree.watches import Delivery, Watches

ROOT = "/"


@dataclass(frozen=True, slots=True)
class OpenSession:
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Of the transaction's own session."""


Change: TypeAlias = Operation | OpenSession | CloseSession


@dataclass(frozen=True, slots=True)
class Transaction:
    zxid: int
    session_id: int
    time_ms: int
    changes: tuple[Change, ...]


@dataclass(slots=True)
class Znode:
    #: None where a client wrote null, which ZooKeeper keeps apart from empty data.
    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    ephemeral_owner: int = 0
    #: How many children it has ever got.
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
            # Creations plus deletions, and what was created and is not here was deleted.
            cversion=2 * self.created_count - len(self.children),
            aversion=0,
            ephemeral_owner=self.ephemeral_owner,
            data_length=self.data_length,
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


@dataclass(frozen=True, slots=True)
class AppliedTransaction:
    """What applying a transaction gave: a result for each change, and the watches that it fired, in order."""

    results: list[Result]
    deliveries: list[Delivery]


def parent_of(path: str) -> str:
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def check_path(path: str) -> None:
    """ZooKeeper's rules: absolute, no empty, ``.`` or ``..`` part, no control or private characters."""
    if path == ROOT:
        return
    if not path.startswith("/"):
        raise BadArgumentsError(f"{path!r} does not begin with /")
    for part in path[1:].split("/"):
        if part in ("", ".", ".."):
            raise BadArgumentsError(f"{path!r} has the part {part!r}")
    if not (path.isascii() and path.isprintable()) and any(map(_is_forbidden, path)):
        raise BadArgumentsError(f"{path!r} has a character that a path may not have")


def _is_forbidden(character: str) -> bool:
    return (
        character <= "\x1f"
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or "\ufff0" <= character <= "\uffff"
    )


class ZnodeTree:
    def __init__(self) -> None:
        self.last_zxid = 0
        self.watches = Watches()
        self.nodes: dict[str, Znode] = {ROOT: Znode(b"", 0, 0, 0, 0, 0)}
        #: Timeout in ms of each open session.
        self.sessions: dict[int, int] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self._heard_ms: dict[int, int] = {}

    # Reading

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and Stat; null data is read as empty."""
        data, stat = self.get_or_null(path)
        return data or b"", stat

    def get_or_null(self, path: str) -> tuple[bytes | None, Stat]:
        """Data and Stat; null data is None, as clients of ZooKeeper see it."""
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
        """The session was heard of, in monotonic time."""
        self.check_session(session_id)
        self._heard_ms[session_id] = now_ms

    def expired_sessions(self, now_ms: int) -> list[int]:
        """The sessions that have been silent for their whole timeout. Those never heard of are heard of now."""
        return [
            session_id
            for session_id, timeout_ms in self.sessions.items()
            if now_ms - self._heard_ms.setdefault(session_id, now_ms) >= timeout_ms
        ]

    # Changing, first step

    def prepare_open_session(self, timeout_ms: int, time_ms: int) -> Transaction:
        if timeout_ms <= 0:
            raise BadArgumentsError(f"a session cannot time out after {timeout_ms} ms")
        zxid = self.last_zxid + 1
        return Transaction(zxid, zxid, time_ms, (OpenSession(timeout_ms),))

    def prepare_close_session(self, session_id: int, time_ms: int) -> Transaction:
        self.check_session(session_id)
        return Transaction(self.last_zxid + 1, session_id, time_ms, (CloseSession(),))

    def prepare(self, session_id: int, operations: Sequence[Operation], time_ms: int) -> Transaction:
        """The transaction that does all of this, or the error of the first operation that cannot be done."""
        self.check_session(session_id)
        draft = _Draft(self.nodes)
        changes: list[Operation] = []
        try:
            for operation in operations:
                changes.append(draft.settle(operation))  # noqa: PERF401  how many there are says which one failed
        except CoordinationError as error:
            error.operation_index = len(changes)
            raise
        return Transaction(self.last_zxid + 1, session_id, time_ms, tuple(changes))

    # Changing, second step

    def apply(self, transaction: Transaction) -> AppliedTransaction:
        assert transaction.zxid == self.last_zxid + 1, f"{transaction.zxid} cannot follow {self.last_zxid}"
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
        # Its own watches go first: it does not hear of its own end.
        self.watches.drop_session(session_id)
        for path in self.ephemerals(session_id):
            self._delete(path, transaction.zxid)
            deliveries += self.watches.on_deleted(path, parent_of(path))
        del self.sessions[session_id]
        self._ephemerals.pop(session_id, None)
        self._heard_ms.pop(session_id, None)

    # The whole of it, for a snapshot

    def restore(self, last_zxid: int, sessions: dict[int, int], nodes: Iterable[tuple[str, Znode]]) -> None:
        """Become the tree with these znodes (their ``children`` are found from the paths)."""
        self.last_zxid, self.sessions, self.nodes = last_zxid, sessions, dict(nodes)
        self._ephemerals = {}
        for path, node in self.nodes.items():
            if path != ROOT:
                self.nodes[parent_of(path)].children.add(name_of(path))
            if node.ephemeral_owner:
                self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)


@dataclass(slots=True)
class _Sketch:
    """As much of a znode as later operations of the same transaction are judged by."""

    version: int
    created_count: int
    child_count: int
    is_ephemeral: bool

    @classmethod
    def of(cls, node: Znode) -> "_Sketch":
        return cls(node.version, node.created_count, len(node.children), node.ephemeral_owner != 0)


class _Draft:
    """The tree as it would be after the operations settled so far."""

    def __init__(self, nodes: dict[str, Znode]) -> None:
        self._nodes = nodes
        self._sketches: dict[str, _Sketch | None] = {}

    def settle(self, operation: Operation) -> Operation:
        match operation:
            case Create():
                return self._settle_create(operation)
            case Delete(path, version):
                self._settle_delete(path, version)
                return Delete(path)
            case SetData(path, data, version):
                self._existing(path, version).version += 1
                return SetData(path, frozen(data))
            case Check(path, version):
                self._existing(path, version)
                return Check(path)

    def _settle_create(self, operation: Create) -> Create:
        path = operation.path
        # With a sequence number the name may be all number, and the path as given end in a slash.
        check_path(path + "0" if operation.sequence else path)
        if path == ROOT:
            raise NodeExistsError(path)
        parent = self._sketch(parent_of(path))
        if parent is None:
            raise NoNodeError(parent_of(path))
        if operation.sequence:
            path = f"{path}{parent.created_count:010d}"
        if self._sketch(path) is not None:
            raise NodeExistsError(path)
        if parent.is_ephemeral:
            raise NoChildrenForEphemeralsError(parent_of(path))
        parent.created_count += 1
        parent.child_count += 1
        self._sketches[path] = _Sketch(0, 0, 0, operation.ephemeral)
        return Create(path, frozen(operation.data), operation.ephemeral)

    def _settle_delete(self, path: str, version: int) -> None:
        if path == ROOT:
            raise BadArgumentsError("the root cannot be deleted")
        if self._existing(path, version).child_count:
            raise NotEmptyError(path)
        parent = self._sketch(parent_of(path))
        assert parent is not None
        parent.child_count -= 1
        self._sketches[path] = None

    def _existing(self, path: str, version: int) -> _Sketch:
        check_path(path)
        sketch = self._sketch(path)
        if sketch is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, sketch.version):
            raise BadVersionError(f"{path} has version {sketch.version}, not {version}")
        return sketch

    def _sketch(self, path: str) -> _Sketch | None:
        if path not in self._sketches:
            node = self._nodes.get(path)
            self._sketches[path] = None if node is None else _Sketch.of(node)
        return self._sketches[path]
