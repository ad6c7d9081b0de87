"""Code that DescribeAcls, CreateAcls and DeleteAcls share: reading rules and filters, and describing rules.

A filter with a code of a newer version of Kafka closes the connection, as in Kafka: a filter that a broker does not
understand must not match anything by chance.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.errors import PolicyViolation
from headrace.protocol.wire.server_codec import BadRequest
from headrace.security.acls import AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType
from headrace.security.acls.bindings import AclEntry, AclPattern

#: The most rules that one request may create or remove, and the most filters that it may have, as in Kafka.
MOST_AT_ONCE = 10_000


def read_filter(asked: Any) -> AclFilter:
    """
    :raises BadRequest: if a code of the filter is unknown.
    """
    wanted = AclFilter(
        ResourceType.of_code(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.of_code(getattr(asked, "pattern_type_filter", PatternType.LITERAL)),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.of_code(asked.operation),
        Permission.of_code(asked.permission_type),
    )
    if not wanted.is_known:
        raise BadRequest("a filter of ACLs has an unknown code")
    return wanted


def read_rule(asked: Any) -> AclBinding:
    """Returns the rule of a request. The caller checks it."""
    pattern = AclPattern(
        ResourceType.of_code(asked.resource_type),
        asked.resource_name,
        PatternType.of_code(getattr(asked, "resource_pattern_type", PatternType.LITERAL)),
    )
    operation, permission = AclOperation.of_code(asked.operation), Permission.of_code(asked.permission_type)
    return AclBinding(pattern, AclEntry(asked.principal, asked.host, operation, permission))


def describe_pattern(pattern: AclPattern) -> dict[str, object]:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def describe_entry(entry: AclEntry) -> dict[str, object]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def check_count(count: int, what: str) -> None:
    """
    :raises PolicyViolation: if a request asks for too much at once.
    """
    if count > MOST_AT_ONCE:
        raise PolicyViolation(f"the request has {count} {what}; send at most {MOST_AT_ONCE} in one request")
