"""Rows, columns and cells of the ACL matrix.

A row says which ACLs its request needs (``needs``) and which resources it touches (``touches``). A column makes the
ACLs of its user from both. A resource is written by its short name, ``a``; in a cell it has a name of its own,
``ROW-COLUMN-a``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.api import Api

PASSWORD = "matrix-secret"
ADMIN = "admin"
CLUSTER_NAME = "kafka-cluster"


class Kind(IntEnum):
    """Kafka's numbers of resource types."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Op(IntEnum):
    """Kafka's numbers of operations."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


class Resource(NamedTuple):
    kind: Kind
    #: The short name in the row; for USER a whole principal.
    name: str


class Need(NamedTuple):
    op: Op
    kind: Kind
    name: str


def topic(op: Op, name: str = "a") -> Need:
    return Need(op, Kind.TOPIC, name)


def group(op: Op, name: str = "g") -> Need:
    return Need(op, Kind.GROUP, name)


def txn(op: Op, name: str = "t") -> Need:
    return Need(op, Kind.TRANSACTIONAL_ID, name)


def cluster(op: Op) -> Need:
    return Need(op, Kind.CLUSTER, CLUSTER_NAME)


class Login(Enum):
    USER = "user"
    ADMIN = "admin"
    NONE = "none"


@dataclass
class Cell:
    """One request as one principal, with the names of its resources."""

    row: Row
    column: Column
    #: Set by the setup: the ids of the topics, by short name.
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    #: What ``Row.prepare`` leaves for ``Row.request``.
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return f"{self.row.name}-{self.column.name}-"

    @property
    def user(self) -> str:
        if self.column.login is Login.ADMIN:
            return ADMIN
        return "ANONYMOUS" if self.column.login is Login.NONE else f"{self.row.name}_{self.column.name}"

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    def name(self, short: str) -> str:
        return self.prefix + short

    def full_name(self, kind: Kind, short: str) -> str:
        if kind is Kind.USER:
            return short.replace("SELF", self.user)
        return short if short in (CLUSTER_NAME, "*") else self.name(short)

    def acl(
        self,
        need: Need,
        *,
        permission: int = ALLOW,
        pattern: int = LITERAL,
        name: str | None = None,
        host: str = "*",
        principal: str | None = None,
    ) -> dict[str, Any]:
        """An element of a CreateAcls request.

        :param name: the complete name of the resource, if it is not that of the need.
        """
        return {
            "resource_type": int(need.kind),
            "resource_name": self.full_name(need.kind, need.name) if name is None else name,
            "resource_pattern_type": pattern,
            "principal": principal or self.principal,
            "host": host,
            "operation": int(need.op),
            "permission_type": permission,
        }


Acls = Callable[[Cell], list[dict[str, Any]]]


@dataclass(frozen=True)
class Column:
    name: str
    acls: Acls
    login: Login = Login.USER


@dataclass(frozen=True)
class Row:
    name: str
    api: Api
    version: int
    #: The fields of the request.
    request: Callable[[Cell], Mapping[str, Any]]
    needs: tuple[Need, ...] = ()
    #: Further resources of the request, which the user with the needed ACLs must not use.
    touches: tuple[Resource, ...] = ()
    #: The topics that exist before, by their short names.
    topics: tuple[str, ...] = ()
    #: Run as the super user before the request.
    prepare: Callable[[Cell, Any], None] | None = None
    #: Sends the request in another way, and returns what is to be compared.
    ask: Callable[[Cell, Any], Any] | None = None
    #: Fields of the answer that are shown besides the fields that are always shown.
    shows: frozenset[str] = frozenset()
    #: Fields that are not shown.
    hides: frozenset[str] = frozenset()
    #: Whether entries of lists that do not belong to the cell are left out.
    only_own: bool = False
    #: Whether lists are shown as counts of equal elements without their names.
    counts: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def all_columns(self) -> tuple[Column, ...]:
        return self.columns or COLUMNS

    @property
    def resources(self) -> list[Resource]:
        return list(dict.fromkeys([*(Resource(need.kind, need.name) for need in self.needs), *self.touches]))


def _nothing(_: Cell) -> list[dict[str, Any]]:
    return []


def _exact(cell: Cell) -> list[dict[str, Any]]:
    return [cell.acl(need) for need in cell.row.needs]


def _describe(cell: Cell) -> list[dict[str, Any]]:
    return [cell.acl(Need(Op.DESCRIBE, kind, name)) for kind, name in cell.row.resources if kind is not Kind.USER]


def _denied(cell: Cell) -> list[dict[str, Any]]:
    return _exact(cell) + [cell.acl(need, permission=DENY) for need in cell.row.needs]


def _prefixed(cell: Cell) -> list[dict[str, Any]]:
    def prefix(need: Need) -> str:
        full = cell.full_name(need.kind, need.name)
        return cell.prefix if full.startswith(cell.prefix) else full[:5]

    # Kafka accepts no pattern for the cluster but its whole name.
    return [
        cell.acl(need) if need.kind is Kind.CLUSTER else cell.acl(need, pattern=PREFIXED, name=prefix(need))
        for need in cell.row.needs
    ]


COLUMNS = (
    Column("admin", _nothing, Login.ADMIN),
    Column("exact", _exact),
    Column("describe", _describe),
    Column("nothing", _nothing),
    Column("denied", _denied),
    Column("prefixed", _prefixed),
    Column("anonymous", _nothing, Login.NONE),
)
