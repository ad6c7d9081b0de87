"""Answers the requests of clients that do not change the tree: reads and watches. One function per request. No I/O.

``HANDLERS`` is the table of these functions. Changes are in ``messages.CHANGES``; ``client_connection.py`` answers a
few requests itself. Each function takes the connection, the id of the session and the rest of the request, and returns
the body of the reply.

A read that fails sets no watch. ``exists`` on a missing znode sets a watch and answers NONODE. Setting a watch by
``addWatch`` needs no permission; its events do (``tree/host.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.coordination.acls import OPEN_ACL, Acl, Permission
from headrace.coordination.interface import (
    BadArgumentsError,
    CoordinationError,
    EventType,
    NoAuthError,
    NoNodeError,
    Stat,
)
from headrace.coordination.server import jute
from headrace.coordination.server.jute import Malformed, Reader
from headrace.coordination.server.messages import (
    Code,
    NoWatcherError,
    Op,
    WatchesToRestore,
    code_of,
    decode_acl,
    decode_multi_read,
    decode_watches_to_restore,
    encode_acl,
    encode_multi,
    encode_stat,
    path_of,
)
from headrace.coordination.tree.caller import SCHEMES
from headrace.coordination.tree.watches import ANY_MODE, WatchMode
from headrace.coordination.tree.znode import Znode, check_path
from headrace.coordination.tree.znode_tree import SetAcl

if TYPE_CHECKING:
    from headrace.coordination.server.client_connection import ClientConnection

Handler = Callable[["ClientConnection", int, Reader], bytes]

#: What the results of one multi of reads may have together. A connection may have as many bytes unsent.
_MAX_MULTI_READ_BYTES = 16 * 1024 * 1024


# Reads


def exists(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = connection.service.host.tree
    try:
        node = tree.node_for(connection.caller, Permission.READ, path)
    except NoNodeError:
        if wants_watch:
            tree.watches.add_data(session_id, path, connection.notify)
        raise
    if wants_watch:
        tree.watches.add_data(session_id, path, connection.notify)
    return encode_stat(node.stat())


def get_data(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = connection.service.host.tree
    node = tree.node_for(connection.caller, Permission.READ, path)
    if wants_watch:
        tree.watches.add_data(session_id, path, connection.notify)
    return jute.buffer(node.data) + encode_stat(node.stat())


def get_children(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    node = _watched_children(connection, session_id, request)
    return _names(node)


def get_children2(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    node = _watched_children(connection, session_id, request)
    return _names(node) + encode_stat(node.stat())


def _watched_children(connection: ClientConnection, session_id: int, request: Reader) -> Znode:
    path, wants_watch = path_of(request), request.boolean()
    tree = connection.service.host.tree
    node = tree.node_for(connection.caller, Permission.READ, path)
    if wants_watch:
        tree.watches.add_children(session_id, path, connection.notify)
    return node


def _names(node: Znode) -> bytes:
    return jute.vector(map(jute.string, sorted(node.children)))


def get_all_children_number(connection: ClientConnection, _: int, request: Reader) -> bytes:
    path, tree = path_of(request), connection.service.host.tree
    tree.node_for(connection.caller, Permission.READ, path)
    prefix = path.rstrip("/") + "/"
    return jute.integer(sum(other.startswith(prefix) and other != prefix for other in tree.nodes))


def get_ephemerals(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    prefix = path_of(request).strip()
    paths = connection.service.host.tree.ephemerals(session_id)
    return jute.vector(jute.string(path) for path in paths if path.startswith(prefix))


def multi_read(connection: ClientConnection, _: int, request: Reader) -> bytes:
    """Each read has its own result. A read that fails does not affect the others.

    :raises Malformed: if the results are too large. A read takes a few bytes, and its result up to a megabyte.
    """
    tree = connection.service.host.tree
    results: list[tuple[Op, bytes | Code]] = []
    room_bytes = _MAX_MULTI_READ_BYTES
    for op, path in decode_multi_read(request):
        try:
            node = tree.node_for(connection.caller, Permission.READ, path)
        except CoordinationError as error:
            results.append((op, code_of(error)))
            continue
        body = jute.buffer(node.data) + encode_stat(node.stat()) if op is Op.GET_DATA else _names(node)
        room_bytes -= len(body)
        if room_bytes < 0:
            raise Malformed(f"the results of a multi of reads have more than {_MAX_MULTI_READ_BYTES} bytes")
        results.append((op, body))
    return encode_multi(results)


def sync(_connection: ClientConnection, _: int, request: Reader) -> bytes:
    """Answers at once: with only one server, no server is behind."""
    return jute.string(path_of(request))


def ping(_connection: ClientConnection, _: int, _request: Reader) -> bytes:
    return b""


def who_am_i(connection: ClientConnection, _: int, _request: Reader) -> bytes:
    return jute.vector(
        jute.string(scheme) + jute.string(SCHEMES[scheme].user_of(name) if scheme in SCHEMES else "")
        for scheme, name in connection.caller.identities
    )


def sasl(_connection: ClientConnection, _: int, request: Reader) -> bytes:
    """Answers a token with null: this server has no mechanism. The client has no identity more than before."""
    request.buffer()
    return jute.buffer(None)


# Access control


def get_acl(connection: ClientConnection, _: int, request: Reader) -> bytes:
    """Needs READ or ADMIN. Without ADMIN, the hashes of passwords are hidden."""
    tree = connection.service.host.tree
    node = tree.node_for(connection.caller, Permission.READ | Permission.ADMIN, path_of(request))
    is_shown = node.acl is OPEN_ACL or connection.caller.may(Permission.ADMIN, node.acl)
    return encode_acl(node.acl if is_shown else _without_hashes(node.acl)) + encode_stat(node.stat())


def _without_hashes(acl: Acl) -> Acl:
    return tuple(
        entry._replace(id=f"{entry.id.partition(':')[0]}:x") if entry.scheme == "digest" else entry for entry in acl
    )


def set_acl(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    change = SetAcl(path_of(request), decode_acl(request), request.int32())
    stat = connection.service.host.set_acl(session_id, change, connection.caller)
    assert isinstance(stat, Stat)
    return encode_stat(stat)


# Watches

_PERSISTENT, _PERSISTENT_RECURSIVE = 0, 1
#: The modes in each table, by the type of watches in a request.
_DATA_MODES = {1: WatchMode(0), 2: WatchMode.ONCE, 3: ANY_MODE, 4: WatchMode.PERSISTENT, 5: WatchMode.RECURSIVE}
_CHILDREN_MODES = {1: WatchMode.ONCE, 2: WatchMode(0), 3: ANY_MODE, 4: WatchMode.PERSISTENT, 5: WatchMode(0)}


def add_watch(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, mode = path_of(request), request.int32()
    watches = connection.service.host.tree.watches
    check_path(path)
    if mode == _PERSISTENT:
        watches.add_persistent(session_id, path, connection.notify)
    elif mode == _PERSISTENT_RECURSIVE:
        watches.add_recursive(session_id, path, connection.notify)
    else:
        raise BadArgumentsError(f"{mode} is not a mode of a watch")
    return jute.integer(Code.OK)


def check_watches(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    _found_watches(connection, session_id, request)
    return b""


def remove_watches(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, data_modes, children_modes = _found_watches(connection, session_id, request)
    watches = connection.service.host.tree.watches
    watches.remove_data(session_id, path, connection.notify, data_modes)
    watches.remove_children(session_id, path, connection.notify, children_modes)
    return b""


def _found_watches(connection: ClientConnection, session_id: int, request: Reader) -> tuple[str, WatchMode, WatchMode]:
    """The path, and the modes of the requested type that the session has there.

    :raises NoWatcherError: if the session has no such watch.
    """
    path, number = path_of(request), request.int32()
    if number not in _DATA_MODES:
        raise BadArgumentsError(f"{number} is not a type of a watch")
    watches = connection.service.host.tree.watches
    data = watches.data_modes(session_id, path, connection.notify) & _DATA_MODES[number]
    children = watches.children_modes(session_id, path, connection.notify) & _CHILDREN_MODES[number]
    if not data and not children:
        raise NoWatcherError(path)
    return path, data, children


def set_watches(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    _restore_watches(connection, session_id, decode_watches_to_restore(Op.SET_WATCHES, request))
    return b""


def set_watches2(connection: ClientConnection, session_id: int, request: Reader) -> bytes:
    _restore_watches(connection, session_id, decode_watches_to_restore(Op.SET_WATCHES2, request))
    return b""


def _restore_watches(connection: ClientConnection, session_id: int, restored: WatchesToRestore) -> None:
    """Sends a reconnected client the events that it missed, and sets its other watches again.

    A znode that the client may not read looks like one that does not exist. ZooKeeper does not check this here.
    """
    watches = connection.service.host.tree.watches
    for path in restored.data:
        node = _readable(connection, path)
        if node is None:
            connection.notify_late(EventType.DELETED, path)
        elif node.mzxid > restored.zxid:
            connection.notify_late(EventType.CHANGED, path)
        else:
            watches.add_data(session_id, path, connection.notify)
    for path in restored.exist:
        if _readable(connection, path) is not None:
            connection.notify_late(EventType.CREATED, path)
        else:
            watches.add_data(session_id, path, connection.notify)
    for path in restored.children:
        node = _readable(connection, path)
        if node is None:
            connection.notify_late(EventType.DELETED, path)
        elif node.pzxid > restored.zxid:
            connection.notify_late(EventType.CHILD, path)
        else:
            watches.add_children(session_id, path, connection.notify)
    for path in restored.persistent:
        watches.add_persistent(session_id, path, connection.notify)
    for path in restored.recursive:
        watches.add_recursive(session_id, path, connection.notify)


def _readable(connection: ClientConnection, path: str) -> Znode | None:
    """A znode; None if it does not exist, or if the client may not read it."""
    try:
        return connection.service.host.tree.node_for(connection.caller, Permission.READ, path)
    except (NoNodeError, NoAuthError):
        return None


HANDLERS: dict[int, Handler] = {
    Op.EXISTS: exists,
    Op.GET_DATA: get_data,
    Op.GET_CHILDREN: get_children,
    Op.GET_CHILDREN2: get_children2,
    Op.GET_ALL_CHILDREN_NUMBER: get_all_children_number,
    Op.GET_EPHEMERALS: get_ephemerals,
    Op.MULTI_READ: multi_read,
    Op.SYNC: sync,
    Op.PING: ping,
    Op.WHO_AM_I: who_am_i,
    Op.SASL: sasl,
    Op.GET_ACL: get_acl,
    Op.SET_ACL: set_acl,
    Op.ADD_WATCH: add_watch,
    Op.CHECK_WATCHES: check_watches,
    Op.REMOVE_WATCHES: remove_watches,
    Op.SET_WATCHES: set_watches,
    Op.SET_WATCHES2: set_watches2,
}
