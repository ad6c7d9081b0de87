"""A client's own list of the watches that it has set with a server. No I/O.

The server knows that a session watches a path; who in this process wants to hear of it is written down here. With each
watched path goes the transaction that the reader saw last: of data the last change (0 where there was no znode), of
children the last one that came or went. A connection that breaks takes the server's watches with it. When the session
goes on on another, every path is read again with a watch, and what is newer than what was seen has been missed and is
told late, as ZooKeeper's own clients do. Several changes are then told as one.
"""

from enum import Enum

from headrace.coordination.interface import EventType, Stat, Watcher, WatchEvent

NO_ZNODE = 0


class Kind(Enum):
    DATA = "data"
    CHILDREN = "children"


#: Whose watches an event takes.
_TAKES = {
    EventType.CREATED: (Kind.DATA,),
    EventType.CHANGED: (Kind.DATA,),
    EventType.DELETED: (Kind.DATA, Kind.CHILDREN),
    EventType.CHILD: (Kind.CHILDREN,),
}


class WatchRegistry:
    def __init__(self) -> None:
        self._watchers: dict[tuple[Kind, str], dict[Watcher, None]] = {}
        self._seen_zxid: dict[tuple[Kind, str], int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))

    def add(self, kind: Kind, path: str, watcher: Watcher, stat: Stat | None) -> None:
        """A read that saw ``stat`` has set a watch. The same watcher twice is once."""
        self._watchers.setdefault((kind, path), {})[watcher] = None
        self._seen_zxid[kind, path] = seen_zxid(kind, stat)

    def take(self, event: WatchEvent) -> list[Watcher]:
        """Who is to be told, each once; they watch no more."""
        found: dict[Watcher, None] = {}
        for kind in _TAKES[event.type]:
            found |= self._watchers.pop((kind, event.path), {})
            self._seen_zxid.pop((kind, event.path), None)
        return list(found)

    def paths(self) -> list[tuple[Kind, str]]:
        return list(self._watchers)

    def missed(self, kind: Kind, path: str, stat: Stat | None) -> WatchEvent | None:
        """What has happened, if the znode is now as ``stat`` says."""
        before = self._seen_zxid.get((kind, path))
        now = seen_zxid(kind, stat)
        if before is None or before == now:
            return None
        if stat is None:
            return WatchEvent(EventType.DELETED, path)
        if kind is Kind.CHILDREN:
            return WatchEvent(EventType.CHILD, path)
        return WatchEvent(EventType.CREATED if before == NO_ZNODE else EventType.CHANGED, path)

    def clear(self) -> None:
        self._watchers.clear()
        self._seen_zxid.clear()


def seen_zxid(kind: Kind, stat: Stat | None) -> int:
    if stat is None:
        return NO_ZNODE
    return stat.mzxid if kind is Kind.DATA else stat.pzxid
