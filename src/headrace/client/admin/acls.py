"""Lists, adds and removes ACLs.

::

    from headrace.security.acls import AclBinding, AclFilter, AclOperation, ResourceType

    admin.create_acls([AclBinding.of(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)])
    for acl in admin.describe_acls(AclFilter(ResourceType.TOPIC)): ...
    admin.delete_acls([AclFilter(principal="User:alice")])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.client.admin.requests import AdminRequests, outcome, raise_for
from headrace.client.admin.types import Results
from headrace.client.errors import HeadraceError
from headrace.protocol.api import Api
from headrace.security.acls import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern


class AclsAdmin:
    """The ACLs of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Returns the ACLs that match a filter; without a filter, all ACLs."""
        answer = await self._requests.ask_controller(Api.DESCRIBE_ACLS, timeout_ms, **_filter(wanted or AclFilter()))
        raise_for(answer.error_code, "the ACLs", answer.error_message)
        return [binding for resource in answer.resources for binding in _bindings(resource)]

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: float | None = None
    ) -> Results[AclBinding, None]:
        """Adds ACLs. An ACL that exists already is no error."""
        wanted = list(dict.fromkeys(bindings))
        answer = await self._requests.ask_controller(
            Api.CREATE_ACLS,
            timeout_ms,
            codes=lambda answer: [found.error_code for found in answer.results],
            creations=[_creation(binding) for binding in wanted],
        )
        return Results(
            (binding, outcome(found.error_code, None, f"the ACL {binding.entry}", found.error_message))
            for binding, found in zip(wanted, answer.results, strict=True)
        )

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_ms: float | None = None
    ) -> Results[AclFilter, list[AclBinding]]:
        """Removes all ACLs that match one of the filters. Returns the removed ACLs of each filter."""
        wanted = list(dict.fromkeys(filters))
        answer = await self._requests.ask_controller(
            Api.DELETE_ACLS,
            timeout_ms,
            codes=lambda answer: [found.error_code for found in answer.filter_results],
            filters=[_filter(each) for each in wanted],
        )
        return Results((each, _removed(found)) for each, found in zip(wanted, answer.filter_results, strict=True))


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _creation(binding: AclBinding) -> dict[str, Any]:
    pattern, entry = binding
    return {
        "resource_type": int(pattern.resource_type),
        "resource_name": pattern.name,
        "resource_pattern_type": int(pattern.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _bindings(resource: Any) -> Iterator[AclBinding]:
    pattern = _pattern(resource)
    return (AclBinding(pattern, _entry(acl)) for acl in resource.acls)


def _pattern(found: Any) -> AclPattern:
    return AclPattern(
        ResourceType.of_code(found.resource_type), found.resource_name, PatternType.of_code(found.pattern_type)
    )


def _entry(found: Any) -> AclEntry:
    return AclEntry(
        found.principal, found.host, AclOperation.of_code(found.operation), Permission.of_code(found.permission_type)
    )


def _removed(found: Any) -> list[AclBinding] | HeadraceError:
    """The removed ACLs of a filter, or the first error."""
    for each in (found, *found.matching_acls):
        error = outcome(each.error_code, None, "the removal of ACLs", each.error_message)
        if error is not None:
            return error
    return [AclBinding(_pattern(acl), _entry(acl)) for acl in found.matching_acls]
