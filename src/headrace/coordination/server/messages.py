"""Encodes and decodes ZooKeeper's messages. No I/O.

A connection starts with ``ConnectRequest`` and ``ConnectResponse``. After that, each request is ``xid int, type int``
and the fields of that type. Each reply is ``xid int, zxid long, err int`` and, if err is 0, the fields of the reply.
Replies come in the order of the requests. The event of a watch is a reply with xid -1 that answers no request.

All messages are frames: ``length int`` and that many bytes. The encoders here put the length in front.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from headrace.coordination.acls import MAX_ACL_ENTRIES, OPEN_ACL, Acl, AclEntry, shared
from headrace.coordination.interface import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    EventType,
    InvalidAclError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    WatchEvent,
)
from headrace.coordination.server import jute
from headrace.coordination.server.jute import Malformed, Reader


class Op(IntEnum):
    """The types of requests, under ZooKeeper's names."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


class Code(IntEnum):
    """The error codes of replies."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class UnimplementedError(CoordinationError): ...


class NoWatcherError(CoordinationError): ...


_CODES: dict[type[CoordinationError], Code] = {
    NoNodeError: Code.NO_NODE,
    NodeExistsError: Code.NODE_EXISTS,
    BadVersionError: Code.BAD_VERSION,
    NotEmptyError: Code.NOT_EMPTY,
    NoChildrenForEphemeralsError: Code.NO_CHILDREN_FOR_EPHEMERALS,
    SessionExpiredError: Code.SESSION_EXPIRED,
    BadArgumentsError: Code.BAD_ARGUMENTS,
    NoAuthError: Code.NO_AUTH,
    InvalidAclError: Code.INVALID_ACL,
    AuthFailedError: Code.AUTH_FAILED,
    UnimplementedError: Code.UNIMPLEMENTED,
    NoWatcherError: Code.NO_WATCHER,
}


def code_of(error: CoordinationError) -> Code:
    return _CODES.get(type(error), Code.SYSTEM_ERROR)


# Connecting


class ConnectRequest(NamedTuple):
    last_zxid_seen: int
    timeout_ms: int
    #: 0 for a new session.
    session_id: int
    password: bytes
    #: The request has the field for read-only servers. Clients before ZooKeeper 3.4 do not send or expect this field.
    knows_read_only: bool


_CONNECT_RESPONSE = Struct(">iiiq")


def decode_connect(frame: bytes) -> ConnectRequest:
    reader = Reader(frame)
    version, last_zxid_seen, timeout_ms, session_id = reader.int32(), reader.int64(), reader.int32(), reader.int64()
    if version != 0:
        raise Malformed(f"protocol version {version} is not supported; only 0 is")
    password = reader.buffer() or b""
    return ConnectRequest(last_zxid_seen, timeout_ms, session_id, password, reader.remaining_bytes > 0)


def encode_connected(timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool) -> bytes:
    """A timeout of 0 means that the session has expired or never existed."""
    body = jute.buffer(password) + (b"\0" if with_read_only else b"")
    return _CONNECT_RESPONSE.pack(16 + len(body), 0, timeout_ms, session_id) + body


# Replies

_REPLY = Struct(">iiqi")
_EVENT = Struct(">ii")
_STAT = Struct(">qqqqiiiqiiq")
_MULTI_HEAD = Struct(">i?i")

WATCH_XID = -1
PING_XID = -2
_SYNC_CONNECTED = 3
_EVENT_NUMBERS = {EventType.CREATED: 1, EventType.DELETED: 2, EventType.CHANGED: 3, EventType.CHILD: 4}
#: Counters wrap as in Java, though none will become that large.
_INT_MASK = 0x7FFF_FFFF


def encode_reply(xid: int, zxid: int, code: Code, body: bytes = b"") -> bytes:
    return _REPLY.pack(16 + len(body), xid, zxid, code) + body


def encode_event(event: WatchEvent, zxid: int) -> bytes:
    body = _EVENT.pack(_EVENT_NUMBERS[event.type], _SYNC_CONNECTED) + jute.string(event.path)
    return encode_reply(WATCH_XID, zxid, Code.OK, body)


def encode_stat(stat: Stat) -> bytes:
    return _STAT.pack(*stat[:4], stat.version & _INT_MASK, stat.cversion & _INT_MASK, *stat[6:])


#: The Stat of a znode that the same transaction created and deleted.
NO_STAT = bytes(_STAT.size)


# Requests that change something

_EPHEMERAL, _SEQUENTIAL = 1, 2
_CREATE_MODES = range(4)
_CONTAINER_AND_TTL_MODES = range(4, 7)


def path_of(reader: Reader) -> str:
    return reader.string() or ""  # the tree rejects the empty path


def encode_acl(acl: Acl) -> bytes:
    return jute.vector(
        jute.integer(entry.permissions) + jute.string(entry.scheme) + jute.string(entry.id) for entry in acl
    )


_OPEN_ACL_BYTES = encode_acl(OPEN_ACL)


def decode_acl(reader: Reader) -> Acl:
    """The list as the client sent it. A null scheme or id becomes empty, which is not valid."""
    if reader.take_if(_OPEN_ACL_BYTES):
        return OPEN_ACL
    return shared(tuple(reader.vector(_acl_entry, max_count=MAX_ACL_ENTRIES)))


def _acl_entry(reader: Reader) -> AclEntry:
    return AclEntry(reader.int32(), reader.string() or "", reader.string() or "")


class Change(NamedTuple):
    """An operation of a request, or the error of an invalid operation. The error is reported when it is its turn."""

    op: Op
    operation: Operation | CoordinationError


def _create(reader: Reader) -> Operation:
    path, data, acl = path_of(reader), reader.buffer(), decode_acl(reader)
    mode = reader.int32()
    if mode in _CONTAINER_AND_TTL_MODES:
        raise UnimplementedError("containers and znodes with a time to live are not supported")
    if mode not in _CREATE_MODES:
        raise BadArgumentsError(f"{mode} is not a mode of a znode")
    return Create(path, data, bool(mode & _EPHEMERAL), bool(mode & _SEQUENTIAL), acl)


def _delete(reader: Reader) -> Operation:
    return Delete(path_of(reader), reader.int32())


def _set_data(reader: Reader) -> Operation:
    return SetData(path_of(reader), reader.buffer(), reader.int32())


def _check(reader: Reader) -> Operation:
    return Check(path_of(reader), reader.int32())


_CHANGES: dict[Op, Callable[[Reader], Operation]] = {
    Op.CREATE: _create,
    Op.CREATE2: _create,
    Op.DELETE: _delete,
    Op.SET_DATA: _set_data,
    Op.CHECK: _check,
}
CHANGES = frozenset(_CHANGES)


def decode_change(op: Op, reader: Reader) -> Change:
    try:
        return Change(op, _CHANGES[op](reader))
    except CoordinationError as error:
        return Change(op, error)


def decode_multi(reader: Reader) -> list[Change]:
    """A sequence of ``type int, done boolean, err int`` and a request of that type, up to one that says done."""
    changes: list[Change] = []
    while True:
        number, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
        if is_done:
            return changes
        if number not in CHANGES:
            # The length of an unknown operation is unknown, so the rest cannot be decoded.
            raise Malformed(f"a multi contains an operation of the unknown type {number}")
        changes.append(decode_change(Op(number), reader))


def decode_multi_read(reader: Reader) -> list[tuple[Op, str]]:
    reads: list[tuple[Op, str]] = []
    while True:
        number, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
        if is_done:
            return reads
        if number not in (Op.GET_DATA, Op.GET_CHILDREN):
            raise Malformed(f"a multi contains a read of the unknown type {number}")
        reads.append((Op(number), path_of(reader)))
        reader.boolean()  # the watch flag, which has no effect in a multi


_DONE = _MULTI_HEAD.pack(-1, True, -1)
_ERROR_TYPE = -1


def encode_multi(results: Sequence[tuple[Op, bytes | Code]]) -> bytes:
    """Encodes the result or the error code of each operation."""
    parts = []
    for op, result in results:
        if isinstance(result, Code):
            parts.append(_MULTI_HEAD.pack(_ERROR_TYPE, False, result) + jute.integer(result))
        else:
            parts.append(_MULTI_HEAD.pack(op, False, Code.OK) + result)
    return b"".join(parts) + _DONE


def encode_failed_multi(ops: Sequence[Op], failed_index: int, code: Code) -> bytes:
    """Encodes a failed multi. The operations before the failed one are undone (0); those after it were not tried."""
    codes = [
        Code.OK if index < failed_index else code if index == failed_index else Code.RUNTIME_INCONSISTENCY
        for index in range(len(ops))
    ]
    return encode_multi(list(zip(ops, codes, strict=True)))


# Requests about watches


class WatchesToRestore(NamedTuple):
    """The watches of a client that reconnects, and the last transaction that the client has seen."""

    zxid: int
    data: list[str]
    exist: list[str]
    children: list[str]
    persistent: list[str]
    recursive: list[str]


def decode_watches_to_restore(op: Op, reader: Reader) -> WatchesToRestore:
    zxid = reader.int64()
    paths = [reader.vector(path_of) for _ in range(3)]
    paths += [reader.vector(path_of) if op is Op.SET_WATCHES2 else [] for _ in range(2)]
    return WatchesToRestore(zxid, *paths)
