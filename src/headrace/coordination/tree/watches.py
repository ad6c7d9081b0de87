"""Watches: who wants to hear of changes of a znode.

Two tables, as in ZooKeeper. Data watches are set by ``get`` and ``exists`` (also where there is no znode yet) and hear
of creation, deletion and new data. Child watches are set by ``children`` and hear of children that come or go, and of
the deletion of the znode itself. A watcher that watches one path both ways hears of its deletion once. Setting the
same watch twice is setting it once. Watches are not persisted: they end with their session, and with the process.

Such a watch fires once. ZooKeeper 3.6 added two kinds that stay until they are removed: a persistent one is in both
tables; a recursive one is in the data table, and hears also of what happens to the data of all znodes below (but, as it
hears of their creation and deletion there, not of children that come or go).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntFlag

from headrace.coordination.interface import EventType, Watcher, WatchEvent


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to one watcher of a session."""

    session_id: int
    watcher: Watcher
    event: WatchEvent


class Mode(IntFlag):
    """How a watcher watches a path; several at once may be so."""

    ONCE = 1
    PERSISTENT = 2
    RECURSIVE = 4


ANY_MODE = Mode.ONCE | Mode.PERSISTENT | Mode.RECURSIVE

_Key = tuple[int, Watcher]


@dataclass(slots=True)
class _Table:
    """Who watches which path and how, in the order in which they came."""

    by_path: dict[str, dict[_Key, Mode]] = field(default_factory=dict)
    recursive_count: int = 0

    def add(self, path: str, key: _Key, mode: Mode) -> None:
        keys = self.by_path.setdefault(path, {})
        before = keys.get(key, Mode(0))
        keys[key] = before | mode
        self.recursive_count += Mode.RECURSIVE in mode and Mode.RECURSIVE not in before

    def take(self, path: str) -> dict[_Key, Mode]:
        """Those to be told of a change of ``path``; who wanted to hear once is forgotten."""
        found = self.by_path.get(path, {})
        if found:
            self._replace(path, {key: mode & ~Mode.ONCE for key, mode in found.items() if mode != Mode.ONCE})
        if self.recursive_count:
            found = dict(found)
            while path != "/":
                path = path[: path.rindex("/")] or "/"
                above = self.by_path.get(path, {})
                found |= {key: mode for key, mode in above.items() if Mode.RECURSIVE in mode and key not in found}
        return found

    def modes(self, path: str, key: _Key) -> Mode:
        return self.by_path.get(path, {}).get(key, Mode(0))

    def remove(self, path: str, key: _Key, mode: Mode) -> None:
        keys = self.by_path.get(path, {})
        before = keys.pop(key, Mode(0))
        self.recursive_count -= Mode.RECURSIVE in before & mode
        if before & ~mode:
            keys[key] = before & ~mode
        self._replace(path, keys)

    def drop_where(self, is_gone: Callable[[_Key], bool]) -> None:
        for path, keys in list(self.by_path.items()):
            for key in [key for key in keys if is_gone(key)]:
                self.recursive_count -= Mode.RECURSIVE in keys.pop(key)
            self._replace(path, keys)

    def _replace(self, path: str, keys: dict[_Key, Mode]) -> None:
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
        tables = (self._data, self._children)
        return {key[0] for table in tables for keys in table.by_path.values() for key in keys}

    def add_data(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), Mode.ONCE)

    def add_children(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._children.add(path, (session_id, watcher), Mode.ONCE)

    def add_persistent(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), Mode.PERSISTENT)
        self._children.add(path, (session_id, watcher), Mode.PERSISTENT)

    def add_recursive(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher), Mode.RECURSIVE)

    def data_modes(self, session_id: int, path: str, watcher: Watcher) -> Mode:
        """How this watcher watches the path's data; 0 if it does not."""
        return self._data.modes(path, (session_id, watcher))

    def children_modes(self, session_id: int, path: str, watcher: Watcher) -> Mode:
        return self._children.modes(path, (session_id, watcher))

    def remove_data(self, session_id: int, path: str, watcher: Watcher, mode: Mode) -> None:
        self._data.remove(path, (session_id, watcher), mode)

    def remove_children(self, session_id: int, path: str, watcher: Watcher, mode: Mode) -> None:
        self._children.remove(path, (session_id, watcher), mode)

    def drop_session(self, session_id: int) -> None:
        for table in (self._data, self._children):
            table.drop_where(lambda key: key[0] == session_id)

    def on_created(self, path: str, parent: str) -> list[Delivery]:
        return [
            *_deliveries(self._data.take(path), EventType.CREATED, path),
            *_deliveries(self._children.take(parent), EventType.CHILD, parent),
        ]

    def on_deleted(self, path: str, parent: str) -> list[Delivery]:
        return [
            *_deliveries(self._data.take(path) | self._children.take(path), EventType.DELETED, path),
            *_deliveries(self._children.take(parent), EventType.CHILD, parent),
        ]

    def on_changed(self, path: str) -> list[Delivery]:
        return _deliveries(self._data.take(path), EventType.CHANGED, path)


def _deliveries(keys: dict[_Key, Mode], event_type: EventType, path: str) -> list[Delivery]:
    if not keys:
        return []
    event = WatchEvent(event_type, path)
    return [Delivery(session_id, watcher, event) for session_id, watcher in keys]
