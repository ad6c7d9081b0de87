"""The interface of a coordination service as brokers and the controller see it: ZooKeeper's model without its
transport.

The service is a tree of znodes. Each znode has data, a :class:`Stat` and children. A change is one operation, or a
``multi`` of several operations that is performed completely or not at all. Versions make a change conditional (-1
matches any version). An ephemeral znode exists as long as the session that created it. A watch fires once, after the
change. Clients see changes in the order in which they happened. Errors have ZooKeeper's names.

A znode has an access control list (``acls.py``). Callers do not choose it: a client that protects its znodes
(``client.zookeeper_client``) gives each znode the list that Kafka gives to its path. ``Create.acl`` is for the server
of a tree, which receives lists from its clients.

ZooKeeper distinguishes null data from empty data. The operations can write both. ``get`` returns empty data for both,
because null has no meaning for brokers.

A session is in one of three states (:class:`SessionState`):

- Suspended: no server can be reached. Calls wait. The session may have expired without the client's knowledge.
- Connected: if ``session_id`` is the same as before, ephemeral znodes and watches still exist, and the watches have
  received the events that they missed.
- Lost: the session has expired. Its ephemeral znodes and watches are gone. The client connects to a new session by
  itself. Callers that need their ephemeral znodes and watches create them again in the new session.

:class:`Coordination` is implemented by ``client.local_client.LocalCoordination`` and, for a real ZooKeeper or a tree
that Headrace serves, by ``client.zookeeper_client.ZookeeperCoordination``.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from headrace.coordination.acls import OPEN_ACL, Acl
from headrace.coordination.request_times import RequestTimes

#: As an expected version: any version.
ANY_VERSION = -1


class CoordinationError(Exception):
    """The service rejected a call; nothing has changed."""

    #: The index of the operation of a ``multi`` that failed.
    operation_index: int = 0


class NoNodeError(CoordinationError): ...


class NodeExistsError(CoordinationError): ...


class BadVersionError(CoordinationError): ...


class NotEmptyError(CoordinationError): ...


class NoChildrenForEphemeralsError(CoordinationError): ...


class SessionExpiredError(CoordinationError): ...


class BadArgumentsError(CoordinationError): ...


class NoAuthError(CoordinationError):
    """The access control list of a znode does not permit the call."""


class InvalidAclError(CoordinationError):
    """An access control list is empty or too long, or has an invalid entry."""


class AuthFailedError(CoordinationError):
    """The service rejected our login. It does not serve this client."""


class ConnectionLostError(CoordinationError):
    """The connection broke before the answer, so it is unknown whether the change was made.

    Reads do not raise this error: they are repeated on the next connection.
    """


class Stat(NamedTuple):
    """A znode's numbers, under ZooKeeper's names: when it was created and changed, how often, and by which session."""

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
    """With ``sequence``, a number of ten digits is appended to the name. The parent never uses a number twice."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False
    acl: Acl = OPEN_ACL


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing. The whole ``multi`` fails if the znode has another version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Delete | SetData | Check
#: The path for a Create, the new Stat for a SetData, None for the others.
Result: TypeAlias = str | Stat | None


def copy_data(data: bytes | None) -> bytes | None:
    """Copies any kind of buffer into bytes, so that the caller cannot change the copy. Null stays null."""
    return None if data is None else bytes(data)


class Coordination(Protocol):
    """A client of a coordination service. It has one session at a time; after a lost session it starts the next one."""

    @property
    def request_times(self) -> RequestTimes | None:
        """How long the answers took; None if the service is in this process."""
        ...

    @property
    def session_id(self) -> int:
        """The owner of our ephemeral znodes."""
        ...

    def add_session_listener(self, listener: SessionListener) -> None:
        """Calls ``listener`` at each change of the session's state, in order with the events of watches."""
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
        """Creates a znode; returns its path, which includes the number if ``sequence`` is set."""
        ...

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data and Stat. ``watch`` is called at the next change of the data, or at the deletion."""
        ...

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None: ...

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        """The Stat, or None. ``watch`` is called at the creation, the deletion or the next change of the data."""
        ...

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        """The sorted names of the children.

        ``watch`` is called when a child is created or deleted, or when the znode itself is deleted.
        """
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Performs all operations, or none of them and raises the error of the first operation that failed."""
        ...

    async def close(self) -> None:
        """Ends the session. Its ephemeral znodes are deleted."""
        ...
