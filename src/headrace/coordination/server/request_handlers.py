"""What a client asks of a served tree without changing it: reads, and watches. One function a request. No I/O.

``ANSWERS`` is the table of them, next to ``messages.CHANGES`` and the few that ``dialog.py`` answers itself. Each takes
the dialog, the session's id and the rest of the request, and gives the body of the reply.

A read that fails sets no watch; ``exists`` sets one also where there is no znode, and says NONODE all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.coordination.interface import BadArgumentsError, CoordinationError, EventType, NoNodeError
from headrace.coordination.server import jute
from headrace.coordination.server.jute import Reader
from headrace.coordination.server.messages import (
    OPEN_ACL,
    Code,
    KeptWatches,
    NoWatcherError,
    Op,
    check_acl,
    code_of,
    decode_kept_watches,
    decode_multi_read,
    encode_multi,
    encode_stat,
    path_of,
)
from headrace.coordination.tree.watches import ANY_MODE, WatchMode
from headrace.coordination.tree.znode_tree import check_path

if TYPE_CHECKING:
    from headrace.coordination.server.client_connection import ClientConnection

Answer = Callable[["ClientConnection", int, Reader], bytes]


# Reads


def exists(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = dialog.service.host.tree
    stat = tree.exists(path)
    if wants_watch:
        tree.watches.add_data(session_id, path, dialog.notify)
    if stat is None:
        raise NoNodeError(path)
    return encode_stat(stat)


def get_data(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = dialog.service.host.tree
    data, stat = tree.get_or_null(path)
    if wants_watch:
        tree.watches.add_data(session_id, path, dialog.notify)
    return jute.buffer(data) + encode_stat(stat)


def get_children(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = dialog.service.host.tree
    names = tree.children(path)
    if wants_watch:
        tree.watches.add_children(session_id, path, dialog.notify)
    return jute.vector(map(jute.string, names))


def get_children2(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, wants_watch = path_of(request), request.boolean()
    tree = dialog.service.host.tree
    names, (_, stat) = tree.children(path), tree.get(path)
    if wants_watch:
        tree.watches.add_children(session_id, path, dialog.notify)
    return jute.vector(map(jute.string, names)) + encode_stat(stat)


def get_all_children_number(dialog: ClientConnection, _: int, request: Reader) -> bytes:
    path, tree = path_of(request), dialog.service.host.tree
    tree.get(path)
    prefix = path.rstrip("/") + "/"
    return jute.integer(sum(other.startswith(prefix) and other != prefix for other in tree.nodes))


def get_ephemerals(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    prefix = path_of(request).strip()
    paths = dialog.service.host.tree.ephemerals(session_id)
    return jute.vector(jute.string(path) for path in paths if path.startswith(prefix))


def multi_read(dialog: ClientConnection, _: int, request: Reader) -> bytes:
    """Each read has its own result: one that fails does not disturb the others."""
    tree = dialog.service.host.tree
    results: list[tuple[Op, bytes | Code]] = []
    for op, path in decode_multi_read(request):
        try:
            if op is Op.GET_DATA:
                data, stat = tree.get_or_null(path)
                results.append((op, jute.buffer(data) + encode_stat(stat)))
            else:
                results.append((op, jute.vector(map(jute.string, tree.children(path)))))
        except CoordinationError as error:
            results.append((op, code_of(error)))
    return encode_multi(results)


def sync(_dialog: ClientConnection, _: int, request: Reader) -> bytes:
    """There is one server, and it is never behind itself."""
    return jute.string(path_of(request))


def ping(_dialog: ClientConnection, _: int, _request: Reader) -> bytes:
    return b""


def who_am_i(dialog: ClientConnection, _: int, _request: Reader) -> bytes:
    return jute.vector([jute.string("ip") + jute.string(dialog.peer.rpartition(":")[0])])


# Access control: everybody may do everything


def get_acl(dialog: ClientConnection, _: int, request: Reader) -> bytes:
    return OPEN_ACL + encode_stat(dialog.service.host.tree.get(path_of(request))[1])


def set_acl(dialog: ClientConnection, _: int, request: Reader) -> bytes:
    """Lets through what is so already. Its version stays 0, whatever version the client expects."""
    path = path_of(request)
    check_acl(request)
    return encode_stat(dialog.service.host.tree.get(path)[1])


# Watches

_PERSISTENT, _PERSISTENT_RECURSIVE = 0, 1
#: Type of watches in a request -> which of the tables, and in which modes.
_DATA_MODES = {1: WatchMode(0), 2: WatchMode.ONCE, 3: ANY_MODE, 4: WatchMode.PERSISTENT, 5: WatchMode.RECURSIVE}
_CHILDREN_MODES = {1: WatchMode.ONCE, 2: WatchMode(0), 3: ANY_MODE, 4: WatchMode.PERSISTENT, 5: WatchMode(0)}


def add_watch(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, mode = path_of(request), request.int32()
    watches = dialog.service.host.tree.watches
    check_path(path)
    if mode == _PERSISTENT:
        watches.add_persistent(session_id, path, dialog.notify)
    elif mode == _PERSISTENT_RECURSIVE:
        watches.add_recursive(session_id, path, dialog.notify)
    else:
        raise BadArgumentsError(f"{mode} is no mode of a watch")
    return jute.integer(Code.OK)


def check_watches(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    _found_watches(dialog, session_id, request)
    return b""


def remove_watches(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    path, data_modes, children_modes = _found_watches(dialog, session_id, request)
    watches = dialog.service.host.tree.watches
    watches.remove_data(session_id, path, dialog.notify, data_modes)
    watches.remove_children(session_id, path, dialog.notify, children_modes)
    return b""


def _found_watches(dialog: ClientConnection, session_id: int, request: Reader) -> tuple[str, WatchMode, WatchMode]:
    """The path, and the modes of the type that is asked for; it must be watched in one of them."""
    path, number = path_of(request), request.int32()
    if number not in _DATA_MODES:
        raise BadArgumentsError(f"{number} is no type of a watch")
    watches = dialog.service.host.tree.watches
    data = watches.data_modes(session_id, path, dialog.notify) & _DATA_MODES[number]
    children = watches.children_modes(session_id, path, dialog.notify) & _CHILDREN_MODES[number]
    if not data and not children:
        raise NoWatcherError(path)
    return path, data, children


def set_watches(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    _restore_watches(dialog, session_id, decode_kept_watches(Op.SET_WATCHES, request))
    return b""


def set_watches2(dialog: ClientConnection, session_id: int, request: Reader) -> bytes:
    _restore_watches(dialog, session_id, decode_kept_watches(Op.SET_WATCHES2, request))
    return b""


def _restore_watches(dialog: ClientConnection, session_id: int, kept: KeptWatches) -> None:
    """A client is back: it is told what it has missed, and watches the rest again."""
    tree, watches = dialog.service.host.tree, dialog.service.host.tree.watches
    for path in kept.data:
        stat = tree.exists(path)
        if stat is None:
            dialog.notify_late(EventType.DELETED, path)
        elif stat.mzxid > kept.zxid:
            dialog.notify_late(EventType.CHANGED, path)
        else:
            watches.add_data(session_id, path, dialog.notify)
    for path in kept.exist:
        if tree.exists(path) is not None:
            dialog.notify_late(EventType.CREATED, path)
        else:
            watches.add_data(session_id, path, dialog.notify)
    for path in kept.children:
        stat = tree.exists(path)
        if stat is None:
            dialog.notify_late(EventType.DELETED, path)
        elif stat.pzxid > kept.zxid:
            dialog.notify_late(EventType.CHILD, path)
        else:
            watches.add_children(session_id, path, dialog.notify)
    for path in kept.persistent:
        watches.add_persistent(session_id, path, dialog.notify)
    for path in kept.recursive:
        watches.add_recursive(session_id, path, dialog.notify)


ANSWERS: dict[int, Answer] = {
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
    Op.GET_ACL: get_acl,
    Op.SET_ACL: set_acl,
    Op.ADD_WATCH: add_watch,
    Op.CHECK_WATCHES: check_watches,
    Op.REMOVE_WATCHES: remove_watches,
    Op.SET_WATCHES: set_watches,
    Op.SET_WATCHES2: set_watches2,
}
