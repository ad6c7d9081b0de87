"""The interface by which handlers ask whether a client may do something, and the authorizer that allows everything.

A broker without ``authorizer.class.name`` has :class:`AllowAll`. A broker with it has the authorizer of
``acl_authorizer.py``. Handlers cannot tell them apart, except for the handlers of ACLs themselves: without an
authorizer they answer SECURITY_DISABLED.

A handler asks before it changes or reveals something, and it asks with the connection: the connection knows the
principal and the host. ``api_table.py`` lists what each API asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.protocol.errors import SecurityDisabled
from headrace.security.acls.kinds import SUPPORTED_OPERATIONS, bits_of

if TYPE_CHECKING:
    from headrace.protocol.api import Api
    from headrace.security.acls import AclFilter, AclOperation, ResourceType
    from headrace.security.acls.bindings import AclEntry, AclPattern
    from headrace.security.principal import Principal

#: What the protocol has in a field of authorized operations if the client did not ask for them.
OPERATIONS_NOT_ASKED = -(2**31)


class Requester(Protocol):
    """The part of a connection that an authorizer uses: who asks."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...

    @property
    def current_api(self) -> Api | None:
        """The API of the request that the connection has in progress, for the authorizer's log."""


class Authorizer(Protocol):
    def is_allowed(
        self,
        connection: Requester,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        count: int = 1,
        log_allowed: bool = True,
        log_denied: bool = True,
    ) -> bool:
        """Decides whether the client of a connection may do an operation on a resource.

        :param count: how often the request names the resource, for the authorizer's log.
        :param log_allowed: False if the answer only describes rights, and grants nothing.
        :param log_denied: False if the client did not name the resource, for example in a filter of all topics.
        """

    def is_allowed_on_any(self, connection: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Decides whether the client may do an operation on at least one resource of a type."""

    def authorized_operations(self, connection: Requester, resource_type: ResourceType, name: str) -> int:
        """Returns all operations that the client may do on a resource, as the bit field of the protocol (KIP-430)."""

    # -- the rules themselves. All of these raise SecurityDisabled if there is no authorizer with rules.

    def patterns(self) -> list[AclPattern]:
        """Returns all patterns that have rules."""

    def entries(self, pattern: AclPattern) -> Collection[AclEntry]:
        """Returns the rules of a pattern."""

    async def add_rules(self, pattern: AclPattern, entries: Collection[AclEntry]) -> None:
        """Adds rules to a pattern. They are in force on this broker when the method returns.

        :raises KafkaError: if the rules cannot be stored.
        """

    async def remove_rules(self, pattern: AclPattern, wanted: Sequence[AclFilter]) -> Collection[AclEntry]:
        """Removes the rules of a pattern that match one of the filters, and returns them. Other rules stay.

        :raises KafkaError: if the remaining rules cannot be stored.
        """

    async def catch_up(self) -> None:
        """Reads the changes that other brokers have made until now."""


class AllowAll(Authorizer):
    """Allows everything. A broker without ``authorizer.class.name`` has this authorizer."""

    def is_allowed(self, *_: object, **__: object) -> bool:
        return True

    def is_allowed_on_any(self, *_: object) -> bool:
        return True

    def authorized_operations(self, _connection: Requester, resource_type: ResourceType, _name: str) -> int:
        return ALL_OPERATIONS[resource_type]

    def patterns(self) -> list[AclPattern]:
        raise SecurityDisabled(NO_AUTHORIZER)

    def entries(self, _pattern: AclPattern) -> Collection[AclEntry]:
        raise SecurityDisabled(NO_AUTHORIZER)

    async def add_rules(self, _pattern: AclPattern, _entries: Collection[AclEntry]) -> None:
        raise SecurityDisabled(NO_AUTHORIZER)

    async def remove_rules(self, _pattern: AclPattern, _wanted: Sequence[AclFilter]) -> Collection[AclEntry]:
        raise SecurityDisabled(NO_AUTHORIZER)

    async def catch_up(self) -> None:
        raise SecurityDisabled(NO_AUTHORIZER)


NO_AUTHORIZER = "No Authorizer is configured on the broker"
#: The bit fields of all operations of each type of resource.
ALL_OPERATIONS = {resource_type: bits_of(operations) for resource_type, operations in SUPPORTED_OPERATIONS.items()}
