"""What the broker and the controller see of a coordination service: ZooKeeper's model, and nothing of its transport.

A tree of znodes, each with data, a :class:`Stat` and children. Changes are single operations or a ``multi`` of them,
which happens wholly or not at all. Versions make changes conditional (-1 fits any). Ephemeral znodes live as long as
the session that made them. A watch fires once, after the change, and changes are seen in the order in which they
happened. Errors carry ZooKeeper's names. Access control lists are not part of this interface.

ZooKeeper keeps null data apart from empty data. The operations can write both; ``get`` reads both as empty, because no
broker gives null a meaning.

A session is told of in three words (:class:`SessionState`). Suspended: no server can be reached; calls wait, and the
session may be over without our knowing. Connected again: if ``session_id`` is what it was, ephemeral znodes and watches
are still there, and watches have been told what they missed. Lost: the session is over, ephemeral znodes and watches
are gone, and who wants them makes them again when connected to the next session, which comes by itself.

:class:`Coordination` is implemented by ``local.LocalCoordination`` and, for a ZooKeeper, real or ours, by
``zookeeper_client.ZookeeperCoordination``.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

#: As an expected version: whatever it is.
ANY_VERSION = -1


class CoordinationError(Exception):
    """The tree refused; nothing has changed."""

    #: Which operation of a ``multi`` it was that could not be done.
    operation_index: int = 0


class NoNodeError(CoordinationError): ...


class NodeExistsError(CoordinationError): ...


class BadVersionError(CoordinationError): ...


class NotEmptyError(CoordinationError): ...


class NoChildrenForEphemeralsError(CoordinationError): ...


class SessionExpiredError(CoordinationError): ...


class BadArgumentsError(CoordinationError): ...


class ConnectionLostError(CoordinationError):
    """The connection broke before the answer came: whether the change was made is not known. Reads are asked again
    when there is a connection, and do not raise this."""


class Stat(NamedTuple):
    """A znode's numbers, under ZooKeeper's names: who made and changed it, when, how often."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class EventType(Enum):
    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    CHANGED = "NodeDataChanged"
    CHILD = "NodeChildrenChanged"


class WatchEvent(NamedTuple):
    type: EventType
    path: str


Watcher: TypeAlias = Callable[[WatchEvent], None]


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


SessionListener: TypeAlias = Callable[[SessionState], None]


class Create(NamedTuple):
    """With ``sequence`` the name is completed by a number of ten digits that the parent has never given before."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing; makes the whole ``multi`` depend on a version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Delete | SetData | Check
#: Of a Create its path, of a SetData the new Stat, of the others None.
Result: TypeAlias = str | Stat | None


def frozen(data: bytes | None) -> bytes | None:
    """Copies data of any kind of buffer, so that its giver cannot change the copy. Null stays null."""
    return None if data is None else bytes(data)


class Coordination(Protocol):
    """A client of a coordination service: one session with it, and after that is lost the next."""

    @property
    def session_id(self) -> int:
        """The owner of our ephemeral znodes."""
        ...

    def add_session_listener(self, listener: SessionListener) -> None:
        """It hears of what becomes of the session from now on, in order with the events of watches."""
        ...

    def remove_session_listener(self, listener: SessionListener) -> None: ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path as made, which with ``sequence`` is longer than the one given."""
        ...

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data and Stat; ``watch`` hears of the next change of data, or the deletion."""
        ...

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None: ...

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        """Its Stat, or None; ``watch`` hears of its creation, deletion or next change of data."""
        ...

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """Names, sorted; ``watch`` hears when one comes or goes, or of the deletion of the znode itself."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All of them or, with the first one's error, none."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral znodes go."""
        ...
