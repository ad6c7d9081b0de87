"""A client's own list of the watches that it has set on a server. No I/O.

The server knows that a session watches a path. This registry holds the watchers of this process for that path. For each
path, the registry also holds the transaction that the reader saw last: the last change of the data (0 if there was no
znode), or the last creation or deletion of a child. When a connection breaks, the server drops the watches of that
connection. When the session continues on another connection, the client reads every path again with a watch. A newer
transaction than the recorded one means that an event was missed. The client then delivers the event late, as
ZooKeeper's own clients do. Several missed changes become one event.
"""

from enum import Enum

from headrace.coordination.interface import EventType, Stat, Watcher, WatchEvent

NO_ZNODE = 0


class WatchKind(Enum):
    DATA = "data"
    CHILDREN = "children"


#: The kinds of watches that an event removes.
_REMOVED_BY = {
    EventType.CREATED: (WatchKind.DATA,),
    EventType.CHANGED: (WatchKind.DATA,),
    EventType.DELETED: (WatchKind.DATA, WatchKind.CHILDREN),
    EventType.CHILD: (WatchKind.CHILDREN,),
}


class WatchRegistry:
    """The watchers of one session, by path."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[WatchKind, str], dict[Watcher, None]] = {}
        self._seen_zxid: dict[tuple[WatchKind, str], int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, kind: WatchKind, path: str, watcher: Watcher, stat: Stat | None) -> None:
        """Adds the watch of a read that returned ``stat``. Adding a watcher twice has the effect of adding it once."""
        self._watchers.setdefault((kind, path), {})[watcher] = None
        self._seen_zxid[kind, path] = seen_zxid(kind, stat)

    def take(self, event: WatchEvent) -> list[Watcher]:
        """Removes and returns the watchers of an event, each of them once."""
        found: dict[Watcher, None] = {}
        for kind in _REMOVED_BY[event.type]:
            found |= self._watchers.pop((kind, event.path), {})
            self._seen_zxid.pop((kind, event.path), None)
        return list(found)

    def paths(self) -> list[tuple[WatchKind, str]]:
        return list(self._watchers)

    def missed(self, kind: WatchKind, path: str, stat: Stat | None) -> WatchEvent | None:
        """The event that was missed if the znode has this ``stat`` now; None if nothing has changed."""
        before = self._seen_zxid.get((kind, path))
        now = seen_zxid(kind, stat)
        if before is None or before == now:
            return None
        if stat is None:
            return WatchEvent(EventType.DELETED, path)
        if kind is WatchKind.CHILDREN:
            return WatchEvent(EventType.CHILD, path)
        return WatchEvent(EventType.CREATED if before == NO_ZNODE else EventType.CHANGED, path)

    def clear(self) -> None:
        self._watchers.clear()
        self._seen_zxid.clear()


def seen_zxid(kind: WatchKind, stat: Stat | None) -> int:
    if stat is None:
        return NO_ZNODE
    return stat.mzxid if kind is WatchKind.DATA else stat.pzxid
