"""The interface by which handlers ask whether a client may do something, and the authorizer that allows everything.

A broker without ``authorizer.class.name`` has :class:`AllowAll`. A broker with it has the authorizer of
``acl_authorizer.py``. Handlers cannot tell them apart, except for the handlers of ACLs themselves: without an
authorizer they answer SECURITY_DISABLED.

A handler asks before it changes or reveals something, and it asks with the connection: the connection knows the
principal and the host. ``api_table.py`` lists what each API asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.protocol.errors import KafkaError, SecurityDisabled
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.security.acls.kinds import SUPPORTED_OPERATIONS, bits_of

if TYPE_CHECKING:
    from headrace.protocol.api import Api
    from headrace.security.acls import AclBinding, AclFilter
    from headrace.security.principal import Principal

#: What the protocol has in a field of authorized operations if the client did not ask for them.
OPERATIONS_NOT_ASKED = -(2**31)


class Requester(Protocol):
    """Who asks: what an authorizer uses of a connection."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...

    @property
    def current_api(self) -> Api | None:
        """The API of the request that the connection has in progress, for the authorizer's log."""


class Authorizer(Protocol):
    #: Whether there are rules at all. AllowAll has none.
    has_rules: bool

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

    # -- the rules themselves

    def rules(self, wanted: AclFilter) -> list[AclBinding]:
        """Returns the rules that match a filter.

        :raises SecurityDisabled: if there is no authorizer with rules.
        """

    async def add_rules(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Stores rules. Returns an error for each rule that could not be stored, in the order of the rules.

        :raises SecurityDisabled: if there is no authorizer with rules.
        """

    async def remove_rules(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Removes rules, as :meth:`add_rules` adds them. Other rules of the same resources stay."""


class AllowAll(Authorizer):
    """Allows everything. A broker without ``authorizer.class.name`` has this authorizer."""

    has_rules = False

    def is_allowed(self, *_: object, **__: object) -> bool:
        return True

    def is_allowed_on_any(self, *_: object) -> bool:
        return True

    def authorized_operations(self, _connection: Requester, resource_type: ResourceType, _name: str) -> int:
        return ALL_OPERATIONS[resource_type]

    def rules(self, _wanted: AclFilter) -> list[AclBinding]:
        raise SecurityDisabled(NO_AUTHORIZER)

    async def add_rules(self, _bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        raise SecurityDisabled(NO_AUTHORIZER)

    async def remove_rules(self, _bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        raise SecurityDisabled(NO_AUTHORIZER)


NO_AUTHORIZER = "No Authorizer is configured on the broker: set authorizer.class.name"
#: The bit fields of all operations of each type of resource.
ALL_OPERATIONS = {resource_type: bits_of(operations) for resource_type, operations in SUPPORTED_OPERATIONS.items()}


def is_allowed_on_cluster(authorizer: Authorizer, connection: Requester, operation: AclOperation) -> bool:
    """Decides about an operation on the cluster itself."""
    return authorizer.is_allowed(connection, operation, ResourceType.CLUSTER, CLUSTER_NAME)
