"""Rules, and filters that find rules.

A pattern of a rule is LITERAL or PREFIXED. A filter's pattern type says how the filter's name is compared with the
patterns of rules:

========  ===============================================================================================
LITERAL   literal patterns with exactly this name (``*`` finds only the pattern ``*``)
PREFIXED  prefixed patterns with exactly this name
ANY       literal and prefixed patterns with exactly this name
MATCH     all patterns that a resource of this name fits: the literal name, ``*``, and prefixes of the name
========  ===============================================================================================

A field of a filter that is None, or ANY, matches everything.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.security.acls.kinds import WILDCARD, AclOperation, PatternType, Permission, ResourceType


class AclPattern(NamedTuple):
    """The resources to which a rule applies."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class AclEntry(NamedTuple):
    """A rule without its pattern: allows or denies one operation. A principal is a text: ``User:alice``."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


class AclBinding(NamedTuple):
    """A rule: a pattern and an entry."""

    pattern: AclPattern
    entry: AclEntry

    @classmethod
    def of(
        cls,
        resource_type: ResourceType,
        name: str,
        principal: str,
        operation: AclOperation,
        permission: Permission = Permission.ALLOW,
        *,
        pattern_type: PatternType = PatternType.LITERAL,
        host: str = WILDCARD,
    ) -> AclBinding:
        return cls(AclPattern(resource_type, name, pattern_type), AclEntry(principal, host, operation, permission))


class AclFilter(NamedTuple):
    """Finds rules. The default finds all rules."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_known(self) -> bool:
        """Whether no field is UNKNOWN."""
        return (
            self.resource_type.is_known
            and self.pattern_type.is_known
            and self.operation.is_known
            and self.permission.is_known
        )

    def matches_pattern(self, pattern: AclPattern) -> bool:
        if self.resource_type is not ResourceType.ANY and self.resource_type is not pattern.resource_type:
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        return self.pattern_type is PatternType.MATCH and pattern_fits(pattern, self.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)


def pattern_fits(pattern: AclPattern, name: str) -> bool:
    """Returns whether a resource of this name fits the pattern. The caller has compared the types."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)
