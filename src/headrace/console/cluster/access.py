"""Says who may do what, by the ACLs of a cluster: a matrix, and the rule that decides about one question. No I/O.

The decision is that of the brokers' own authorizer (``headrace.security.acls.rule_index``). Two settings of the brokers
count besides the rules: ``super.users``, who may do everything, and ``allow.everyone.if.no.acl.found``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.security.acls.bindings import AclBinding
from headrace.security.acls.kinds import SUPPORTED_OPERATIONS, AclOperation, Permission, ResourceType
from headrace.security.acls.rule_index import RuleIndex

RESOURCE_TYPES = tuple(kind.title for kind in ResourceType if kind.is_concrete)
OPERATIONS = tuple(operation.title for operation in AclOperation if operation.is_concrete)


@dataclass(frozen=True)
class Rule:
    """An ACL, in the words of ``headrace acls``."""

    principal: str
    host: str
    permission: str
    operation: str
    resource_type: str
    name: str
    pattern_type: str


@dataclass(frozen=True)
class MatrixRow:
    """The operations that a principal may and may not do on a pattern of resources.

    :ivar allowed, denied: operations, each with its host if that is not every host.
    """

    principal: str
    resource_type: str
    name: str
    pattern_type: str
    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Why:
    """The answer to: may a principal do an operation on a resource?

    :ivar reason: one sentence.
    :ivar rule: the rule that decides; None if a setting decides, or no rule matches.
    """

    is_allowed: bool
    reason: str
    rule: Rule | None


def rule_of(binding: AclBinding) -> Rule:
    pattern, entry = binding
    return Rule(
        entry.principal,
        entry.host,
        entry.permission.title,
        entry.operation.title,
        pattern.resource_type.title,
        pattern.name,
        pattern.pattern_type.title,
    )


def matrix(bindings: Iterable[AclBinding]) -> list[MatrixRow]:
    """A row per principal and pattern."""
    grouped: dict[tuple[str, str, str, str], list[Rule]] = defaultdict(list)
    for binding in bindings:
        rule = rule_of(binding)
        grouped[rule.principal, rule.resource_type, rule.name, rule.pattern_type].append(rule)
    return [
        MatrixRow(
            *key,
            _operations(rules, Permission.ALLOW.title),
            _operations(rules, Permission.DENY.title),
            tuple(sorted(rules, key=lambda rule: (rule.permission, rule.operation, rule.host))),
        )
        for key, rules in sorted(grouped.items())
    ]


def _operations(rules: Iterable[Rule], permission: str) -> tuple[str, ...]:
    return tuple(
        sorted(
            rule.operation if rule.host == "*" else f"{rule.operation} from {rule.host}"
            for rule in rules
            if rule.permission == permission
        )
    )


def why(
    bindings: Iterable[AclBinding],
    settings: Mapping[str, str],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> Why:
    """
    :param settings: ``super.users`` and ``allow.everyone.if.no.acl.found`` of the brokers, where they are known.
    """
    named = f"{operation.title} on {resource_type.title} {name}"
    if operation is not AclOperation.ALL and operation not in SUPPORTED_OPERATIONS[resource_type]:
        return Why(False, f"no resource of the type {resource_type.title} has the operation {operation.title}", None)
    if principal in (each.strip() for each in settings.get("super.users", "").split(";")):
        return Why(True, f"{principal} is one of super.users, who may do everything, whatever the ACLs say", None)
    allows_without_rule = settings.get("allow.everyone.if.no.acl.found", "false").lower() == "true"
    index = RuleIndex(bindings, allow_if_no_rule=allows_without_rule)
    decision = index.decide(principal, host, operation, resource_type, name)
    if decision.rule is None:
        if decision.is_allowed:
            return Why(True, "no ACL is about this resource, and allow.everyone.if.no.acl.found is true", None)
        return Why(False, f"no ACL allows {named} to {principal} from {host}, and what no ACL allows is denied", None)
    rule = rule_of(decision.rule)
    pattern = "every name" if rule.name == "*" else f"names that begin with {rule.name}"
    where = f"the {rule.resource_type} {rule.name}" if rule.pattern_type == "Literal" and rule.name != "*" else pattern
    verb = "allows" if decision.is_allowed else "denies"
    reason = f"an ACL {verb} {rule.operation} on {where} to {rule.principal} from {_host(rule.host)}"
    if decision.is_allowed and rule.operation not in (operation.title, "All"):
        reason += f"; {rule.operation} includes {operation.title}"
    if not decision.is_allowed:
        reason += "; a denial counts before every permission"
    return Why(decision.is_allowed, reason, rule)


def _host(host: str) -> str:
    return "every host" if host == "*" else host
