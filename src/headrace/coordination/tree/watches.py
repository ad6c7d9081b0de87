"""Holds the watches of all sessions: which watcher is called at which change of a znode.

There are two tables, as in ZooKeeper. Data watches are set by ``get`` and ``exists`` (also on a path without a znode).
They fire at creation, deletion and new data. Child watches are set by ``children``. They fire when a child is created
or deleted, and when the znode itself is deleted. A watcher in both tables gets one event for a deletion. Setting the
same watch twice has the effect of setting it once. Watches are not stored on disk: they end with their session, and
with the process.

These watches fire once. ZooKeeper 3.6 added two kinds that stay until they are removed. A persistent watch is in both
tables. A recursive watch is in the data table, and also fires at data changes, creations and deletions of all znodes
below its path. A recursive watch does not report changes of the list of children, because it reports the creations and
deletions themselves.

An event goes only to clients that may read the znode of the event, as the znode is after the change (before it, for a
deletion). Otherwise a watch on a parent would tell the names of protected znodes (CVE-2024-23944). So a delivery has
the access control list of its znode. A watch that fires once is used up by an event that its client may not see.
"""

from enum import IntFlag
from typing import NamedTuple

from headrace.coordination.acls import OPEN_ACL, Acl
from headrace.coordination.interface import EventType, Watcher, WatchEvent


class Delivery(NamedTuple):
    """An event to deliver to one watcher of a session."""

    session_id: int
    watcher: Watcher
    event: WatchEvent
    #: The list of the znode that the event is about.
    acl: Acl = OPEN_ACL


class WatchMode(IntFlag):
    """How a watcher watches a path. A watcher can have several modes on one path."""

    ONCE = 1
    PERSISTENT = 2
    RECURSIVE = 4


ANY_MODE = WatchMode.ONCE | WatchMode.PERSISTENT | WatchMode.RECURSIVE

_Key = tuple[int, Watcher]


class _Table:
    def __init__(self) -> None:
        #: The watchers of each path with their modes, in the order in which they were added.
        self.by_path: dict[str, dict[_Key, WatchMode]] = {}
        #: The same watchers by session, so that the end of a session does not search the watches of all sessions.
        self.by_session: dict[int, dict[tuple[str, _Key], None]] = {}
        self.recursive_count = 0

    def add(self, path: str, key: _Key, mode: WatchMode) -> None:
        self.by_session.setdefault(key[0], {})[path, key] = None
        keys = self.by_path.setdefault(path, {})
        before = keys.get(key, WatchMode(0))
        keys[key] = before | mode
        self.recursive_count += WatchMode.RECURSIVE in mode and WatchMode.RECURSIVE not in before

    def take(self, path: str) -> dict[_Key, WatchMode]:
        """The watchers to call for a change of ``path``. Removes the watches that fire once."""
        found = self.by_path.get(path, {})
        if found:
            kept: dict[_Key, WatchMode] = {
                key: mode & ~WatchMode.ONCE for key, mode in found.items() if mode != WatchMode.ONCE
            }
            for key in found.keys() - kept.keys():
                self._forget(path, key)
            self._replace(path, kept)
        if self.recursive_count:
            found = dict(found)
            while path != "/":
                path = path[: path.rindex("/")] or "/"
                above = self.by_path.get(path, {})
                found |= {key: mode for key, mode in above.items() if WatchMode.RECURSIVE in mode and key not in found}
        return found

    def modes(self, path: str, key: _Key) -> WatchMode:
        return self.by_path.get(path, {}).get(key, WatchMode(0))

    def remove(self, path: str, key: _Key, mode: WatchMode) -> None:
        keys = self.by_path.get(path, {})
        before = keys.pop(key, WatchMode(0))
        self.recursive_count -= WatchMode.RECURSIVE in before & mode
        if before & ~mode:
            keys[key] = before & ~mode
        else:
            self._forget(path, key)
        self._replace(path, keys)

    def drop_session(self, session_id: int) -> None:
        for path, key in self.by_session.pop(session_id, ()):
            keys = self.by_path[path]
            self.recursive_count -= WatchMode.RECURSIVE in keys.pop(key)
            self._replace(path, keys)

    def _forget(self, path: str, key: _Key) -> None:
        """Removes a watcher from those of its session."""
        entries = self.by_session.get(key[0], {})
        entries.pop((path, key), None)
        if not entries:
            self.by_session.pop(key[0], None)

    def _replace(self, path: str, keys: dict[_Key, WatchMode]) -> None:
        if keys:
            self.by_path[path] = keys
        else:
            self.by_path.pop(path, None)


class Watches:
    def __init__(self) -> None:
        self._data = _Table()
        self._children = _Table()

    def __len__(self) -> int:
        return sum(len(keys) for table in (self._data, self._children) for keys in table.by_path.values())

    @property
    def paths(self) -> set[str]:
        return self._data.by_path.keys() | self._children.by_path.keys()

    @property
    def session_ids(self) -> set[int]:
        return self._data.by_session.keys() | self._children.by_session.keys()

    def add_data(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), WatchMode.ONCE)

    def add_children(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._children.add(path, (session_id, watcher), WatchMode.ONCE)

    def add_persistent(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), WatchMode.PERSISTENT)
        self._children.add(path, (session_id, watcher), WatchMode.PERSISTENT)

    def add_recursive(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), WatchMode.RECURSIVE)

    def data_modes(self, session_id: int, path: str, watcher: Watcher) -> WatchMode:
        """The modes of a watcher in the data table; 0 if the watcher does not watch the path."""
        return self._data.modes(path, (session_id, watcher))

    def children_modes(self, session_id: int, path: str, watcher: Watcher) -> WatchMode:
        """The modes of a watcher in the table of child watches."""
        return self._children.modes(path, (session_id, watcher))

    def remove_data(self, session_id: int, path: str, watcher: Watcher, mode: WatchMode) -> None:
        self._data.remove(path, (session_id, watcher), mode)

    def remove_children(self, session_id: int, path: str, watcher: Watcher, mode: WatchMode) -> None:
        self._children.remove(path, (session_id, watcher), mode)

    def drop_session(self, session_id: int) -> None:
        for table in (self._data, self._children):
            table.drop_session(session_id)

    def on_created(self, path: str, acl: Acl, parent: str, parent_acl: Acl) -> list[Delivery]:
        if not self._data.by_path and not self._children.by_path:  # as while a stored tree is loaded
            return []
        return [
            *_deliveries(self._data.take(path), EventType.CREATED, path, acl),
            *_deliveries(self._children.take(parent), EventType.CHILD, parent, parent_acl),
        ]

    def on_deleted(self, path: str, acl: Acl, parent: str, parent_acl: Acl) -> list[Delivery]:
        return [
            *_deliveries(self._data.take(path) | self._children.take(path), EventType.DELETED, path, acl),
            *_deliveries(self._children.take(parent), EventType.CHILD, parent, parent_acl),
        ]

    def on_changed(self, path: str, acl: Acl) -> list[Delivery]:
        return _deliveries(self._data.take(path), EventType.CHANGED, path, acl)


def _deliveries(keys: dict[_Key, WatchMode], event_type: EventType, path: str, acl: Acl) -> list[Delivery]:
    if not keys:
        return []
    event = WatchEvent(event_type, path)
    return [Delivery(session_id, watcher, event, acl) for session_id, watcher in keys]
