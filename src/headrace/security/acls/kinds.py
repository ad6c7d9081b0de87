"""The kinds of resources, patterns, operations and permissions that ACLs name, with Kafka's codes.

Each kind has three spellings. Protocols use the code. Java and the tools use the name (``TRANSACTIONAL_ID``). ZooKeeper
uses the title (``TransactionalId``), in paths and in JSON.

UNKNOWN stands for a code of a newer version of Kafka. ANY matches everything, in filters only. ALL is an operation that
a rule may name: it stands for every operation.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

#: The name of the one resource of the type CLUSTER.
CLUSTER_NAME = "kafka-cluster"
#: As the name of a literal pattern: every resource of its type. As a host: every host.
WILDCARD = "*"
#: As the principal of a rule: every principal.
WILDCARD_PRINCIPAL = "User:*"


class AclKind(IntEnum):
    """The common part of all kinds."""

    #: An enum's own hash is a Python function, and every decision about a request is looked up by two kinds.
    __hash__ = int.__hash__

    @property
    def title(self) -> str:
        """The name as ZooKeeper stores it: ``TransactionalId``."""
        return self.name.title().replace("_", "")

    @property
    def is_known(self) -> bool:
        return self.value != 0

    @property
    def is_concrete(self) -> bool:
        """Whether a rule may have this kind: all but UNKNOWN and ANY, and for patterns MATCH."""
        return self.value > 1

    @classmethod
    def of_code(cls, code: int) -> Self:
        """Returns the kind that has a code; UNKNOWN for codes of newer versions."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)

    @classmethod
    def of_name(cls, text: str) -> Self:
        """Returns the kind that has a name, in any spelling and case.

        :raises ValueError: if no kind has that name.
        """
        wanted = text.replace("_", "").lower()
        for kind in cls:
            if kind.title.lower() == wanted:
                return kind
        raise ValueError(f"{text!r} is not one of {', '.join(kind.title for kind in cls if kind.is_concrete)}")


class ResourceType(AclKind):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclKind):
    """LITERAL is a name, or ``*``. PREFIXED is the beginning of names. In filters, MATCH finds every pattern that a
    resource of the filter's name fits."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @property
    def is_concrete(self) -> bool:
        return self in (PatternType.LITERAL, PatternType.PREFIXED)


class AclOperation(AclKind):
    UNKNOWN = 0
    ANY = 1
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
    TWO_PHASE_COMMIT = 15


class Permission(AclKind):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: The operations that a resource of each type has. A rule for another operation would never match.
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}  # fmt: skip

#: For each operation that a rule for another operation allows, too: all operations whose ALLOW rules allow it. A DENY
#: rule denies only its own operation.
IMPLIED_BY: dict[AclOperation, tuple[AclOperation, ...]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


def bits_of(operations: tuple[AclOperation, ...]) -> int:
    """Returns operations as the bit field of the protocol (KIP-430)."""
    return sum(1 << operation for operation in operations)
