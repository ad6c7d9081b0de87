"""One-shot watches: who wants to hear of the next change of a znode.

Two tables, as in ZooKeeper. Data watches are set by ``get`` and ``exists`` (also where there is no znode yet) and hear
of creation, deletion and new data. Child watches are set by ``children`` and hear of children that come or go, and of
the deletion of the znode itself. A watcher that watches one path both ways hears of its deletion once. Setting the
same watch twice is setting it once. Watches are not persisted: they end with their session, and with the process.
"""

from dataclasses import dataclass, field

from headrace.coordination.interface import EventType, Watcher, WatchEvent


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to one watcher of a session."""

    session_id: int
    watcher: Watcher
    event: WatchEvent


_Key = tuple[int, Watcher]


@dataclass(slots=True)
class _Table:
    """Who watches which path, in the order in which they came (a dict is an ordered set)."""

    by_path: dict[str, dict[_Key, None]] = field(default_factory=dict)

    def add(self, path: str, key: _Key) -> None:
        self.by_path.setdefault(path, {})[key] = None

    def take(self, path: str) -> dict[_Key, None]:
        return self.by_path.pop(path, {})

    def drop_session(self, session_id: int) -> None:
        for path, keys in list(self.by_path.items()):
            for key in [key for key in keys if key[0] == session_id]:
                del keys[key]
            if not keys:
                del self.by_path[path]


class Watches:
    def __init__(self) -> None:
        self._data = _Table()
        self._children = _Table()

    def __len__(self) -> int:
        return sum(len(keys) for table in (self._data, self._children) for keys in table.by_path.values())

    def add_data(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._data.add(path, (session_id, watcher))

    def add_children(self, session_id: int, path: str, watcher: Watcher) -> None:
        self._children.add(path, (session_id, watcher))

    def drop_session(self, session_id: int) -> None:
        self._data.drop_session(session_id)
        self._children.drop_session(session_id)

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


def _deliveries(keys: dict[_Key, None], event_type: EventType, path: str) -> list[Delivery]:
    if not keys:
        return []
    event = WatchEvent(event_type, path)
    return [Delivery(session_id, watcher, event) for session_id, watcher in keys]
