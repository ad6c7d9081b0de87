"""Works out which ACLs the options of ``headrace acls`` name. No I/O.

A resource option with the pattern type is a filter of patterns. Each filter gets a set of entries: for every principal,
host and operation one entry. ``--producer`` and ``--consumer`` choose the operations by the type of each resource.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from itertools import product

from headrace.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.security.acls.bindings import AclEntry, AclPattern
from headrace.security.acls.kinds import SUPPORTED_OPERATIONS
from headrace.security.principal import Principal
from headrace.tools.shared.commands import UsageError

#: The entries of each pattern. The pattern type may be ANY or MATCH, too, to remove ACLs.
RulesByPattern = dict[AclPattern, frozenset[AclEntry]]

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
_CLUSTER = AclPattern(ResourceType.CLUSTER, CLUSTER_NAME)
_PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


def resources(options: Namespace) -> list[AclPattern]:
    """Returns the resources that the options name, with the pattern type of the options."""
    pattern_type: PatternType = options.resource_pattern_type
    found = [
        AclPattern(resource_type, name.strip(), pattern_type)
        for option, resource_type in _RESOURCES.items()
        for name in getattr(options, option)
    ]
    if pattern_type is PatternType.LITERAL and (options.cluster or options.idempotent):
        found.append(_CLUSTER)
    return list(dict.fromkeys(found))


def rules_of(options: Namespace) -> RulesByPattern:
    """Returns the ACLs that the options name.

    :raises UsageError: if the options name no resource, or an operation that a resource does not have.
    """
    found = resources(options)
    if not found:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    wanted: RulesByPattern = {}
    if not options.producer and not options.consumer:
        operations = frozenset(_operation(text) for text in options.operation or ["All"])
        wanted = {pattern: _entries(options, operations) for pattern in found}
    for is_given, role in ((options.producer, _PRODUCER), (options.consumer, _CONSUMER)):
        for pattern in found if is_given else ():
            if pattern.resource_type in role:
                entries = _entries(options, role[pattern.resource_type])
                wanted[pattern] = wanted.get(pattern, frozenset()) | entries
    if options.producer and options.idempotent:
        wanted[_CLUSTER] = _entries(options, [AclOperation.IDEMPOTENT_WRITE])
    _check_operations(wanted)
    return wanted


def rules_to_add(options: Namespace) -> RulesByPattern:
    """
    :raises UsageError: if the options name no ACLs that can be added.
    """
    pattern_type: PatternType = options.resource_pattern_type
    if not pattern_type.is_concrete:
        raise UsageError(f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls.")
    wanted = rules_of(options)
    if not all(wanted.values()):
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    return wanted


def filters_of(pattern: AclPattern, entries: Iterable[AclEntry] = ()) -> list[AclFilter]:
    """Returns a filter for each entry; without entries, one for all ACLs of the pattern."""
    kind, name, pattern_type = pattern
    return [AclFilter(kind, name, pattern_type, *entry) for entry in entries] or [AclFilter(kind, name, pattern_type)]


def principals(texts: Iterable[str]) -> list[str]:
    """
    :raises UsageError: if a text is no principal.
    """
    try:
        return [str(Principal.parse(text.strip())) for text in texts]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _entries(options: Namespace, operations: Iterable[AclOperation]) -> frozenset[AclEntry]:
    return frozenset(
        AclEntry(principal, host, operation, permission)
        for permission, named, hosts in (
            (Permission.ALLOW, options.allow_principal, options.allow_host),
            (Permission.DENY, options.deny_principal, options.deny_host),
        )
        for principal, host, operation in product(
            principals(named), [host.strip() for host in hosts] or [WILDCARD], operations
        )
    )


def _operation(text: str) -> AclOperation:
    try:
        operation = AclOperation.of_name(text.strip())
    except ValueError as error:
        raise UsageError(f"--operation: {error}") from None
    if not operation.is_concrete:
        raise UsageError(f"--operation: an ACL cannot have the operation {operation.title}")
    return operation


def _check_operations(wanted: RulesByPattern) -> None:
    for pattern, entries in wanted.items():
        supported = (*SUPPORTED_OPERATIONS[pattern.resource_type], AclOperation.ALL)
        if any(entry.operation not in supported for entry in entries):
            names = ", ".join(operation.name for operation in supported)
            raise UsageError(f"ResourceType {pattern.resource_type.name} only supports operations [{names}]")
