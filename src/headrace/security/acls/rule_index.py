"""Decides whether a principal may do an operation, by all rules of a cluster.

A decision needs the rules of every pattern that the resource fits: the literal name, the literal ``*``, and all
prefixes of the name. Literal patterns are in a dict. Prefixes are in a sorted list, and a search walks it backwards
from the name:

    foobar        the name; the prefixes are f, fa, foo, foob, fooz, g
    foob          the last prefix that is not greater: it fits
    foo           the last prefix before foob: it fits
    fa            the last prefix before foo: it does not fit, and shares only f with the name;
                  so the search jumps to the last prefix that is not greater than f
    f             it fits, and nothing is before it

Each step is one binary search. The number of steps is at most the number of prefixes that fit, plus the number of
jumps, and each jump shortens the name. Adding and removing rules needs no rebuild.

The rules of one pattern are indexed by principal, permission and operation, so a pattern with ten thousand principals
is as quick as a pattern with one.

Java writes ``::1`` as ``0:0:0:0:0:0:0:1``, and an IPv4 address that IPv6 wraps as the IPv4 address. So hosts are
compared as addresses, and not as texts.

A DENY rule counts before every ALLOW rule. A rule for ALL is a rule for every operation. An ALLOW rule also allows the
operations that its operation implies (``kinds.IMPLIED_BY``). If no rule matches, the operation is denied, unless the
resource fits no pattern of any rule and ``allow.everyone.if.no.acl.found`` is set.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.security.acls.bindings import AclBinding, AclEntry, AclPattern
from headrace.security.acls.kinds import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.security.ip_addresses import address_of

#: For each operation, the operations of the rules that deny it, and of the rules that allow it.
_DENIED_BY = {operation: (operation, AclOperation.ALL) for operation in AclOperation}
_ALLOWED_BY = {operation: (operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ())) for operation in AclOperation}
#: A name that no rule is likely to have. Kafka asks for it to find rules that apply to all resources of a type.
_NO_NAME = "hardcode"


class Decision(NamedTuple):
    is_allowed: bool
    #: The rule that decided; None if no rule matched.
    rule: AclBinding | None = None


class _PatternRules:
    """The rules of one pattern: principal, then permission and operation, then hosts with the texts of their rules."""

    __slots__ = ("_by_principal", "entries")

    def __init__(self) -> None:
        self.entries: set[AclEntry] = set()
        self._by_principal: dict[str, dict[tuple[Permission, AclOperation], dict[str, set[str]]]] = {}

    def add(self, entry: AclEntry) -> None:
        if entry not in self.entries:
            self.entries.add(entry)
            rules = self._by_principal.setdefault(entry.principal, {})
            hosts = rules.setdefault((entry.permission, entry.operation), {})
            hosts.setdefault(address_of(entry.host), set()).add(entry.host)

    def remove(self, entry: AclEntry) -> None:
        if entry not in self.entries:
            return
        self.entries.remove(entry)
        rules = self._by_principal[entry.principal]
        hosts = rules[entry.permission, entry.operation]
        address = address_of(entry.host)
        hosts[address].remove(entry.host)
        if not hosts[address]:
            del hosts[address]
        if not hosts:
            del rules[entry.permission, entry.operation]
        if not rules:
            del self._by_principal[entry.principal]

    def find(
        self, permission: Permission, operations: tuple[AclOperation, ...], principal: str, address: str
    ) -> AclEntry | None:
        """Returns a rule of that permission for one of the operations.

        :param address: the client's host, as :func:`address_of` writes it.
        """
        for named in (principal, WILDCARD_PRINCIPAL):
            rules = self._by_principal.get(named)
            if rules is None:
                continue
            for operation in operations:
                hosts = rules.get((permission, operation))
                if hosts is not None:
                    for each in (WILDCARD, address):
                        if each in hosts:
                            return AclEntry(named, min(hosts[each]), operation, permission)
        return None


class _TypeRules:
    """The rules for one type of resource."""

    __slots__ = ("literal", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[str, _PatternRules] = {}
        self.prefixed: dict[str, _PatternRules] = {}
        #: The names of ``prefixed``, sorted.
        self.prefixes: list[str] = []

    def of(self, pattern_type: PatternType) -> dict[str, _PatternRules]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def fitting_prefixes(self, name: str) -> Iterator[str]:
        """Yields the prefixes of a name, the longest first."""
        prefixes, end = self.prefixes, bisect_right(self.prefixes, name)
        while end:
            prefix = prefixes[end - 1]
            if name.startswith(prefix):
                yield prefix
                end -= 1
            else:
                end = bisect_right(prefixes, _common_start(name, prefix), 0, end - 1)

    def fitting(self, name: str) -> Iterator[tuple[PatternType, str, _PatternRules]]:
        """Yields all patterns that a resource of this name fits."""
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            rules = self.literal.get(literal)
            if rules is not None:
                yield PatternType.LITERAL, literal, rules
        for prefix in self.fitting_prefixes(name):
            yield PatternType.PREFIXED, prefix, self.prefixed[prefix]


class RuleIndex:
    def __init__(self, bindings: Iterable[AclBinding] = (), *, allow_if_no_rule: bool = False) -> None:
        #: The decision about a resource that fits no pattern: ``allow.everyone.if.no.acl.found``.
        self._allow_if_no_rule = allow_if_no_rule
        self._types: dict[ResourceType, _TypeRules] = defaultdict(_TypeRules)
        self._count = 0
        by_pattern: dict[AclPattern, list[AclEntry]] = defaultdict(list)
        for binding in bindings:
            by_pattern[binding.pattern].append(binding.entry)
        for pattern, entries in by_pattern.items():
            self.replace(pattern, entries)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AclBinding]:
        for pattern in self.patterns():
            for entry in self.entries(pattern):
                yield AclBinding(pattern, entry)

    def patterns(self) -> list[AclPattern]:
        """Returns the patterns that have rules."""
        return [
            AclPattern(resource_type, name, pattern_type)
            for resource_type, rules in self._types.items()
            for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
            for name in rules.of(pattern_type)
        ]

    # -- changes

    def add(self, binding: AclBinding) -> None:
        self.replace(binding.pattern, self.entries(binding.pattern) | {binding.entry})

    def remove(self, binding: AclBinding) -> None:
        self.replace(binding.pattern, self.entries(binding.pattern) - {binding.entry})

    def entries(self, pattern: AclPattern) -> frozenset[AclEntry]:
        """Returns the rules of one pattern."""
        rules = self._types[pattern.resource_type].of(pattern.pattern_type).get(pattern.name)
        return frozenset() if rules is None else frozenset(rules.entries)

    def replace(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> bool:
        """Makes these the rules of one pattern. Returns whether the rules have changed."""
        wanted, had = frozenset(entries), self.entries(pattern)
        if wanted == had:
            return False
        kind = self._types[pattern.resource_type]
        named, is_prefix = kind.of(pattern.pattern_type), pattern.pattern_type is PatternType.PREFIXED
        self._count += len(wanted) - len(had)
        if not wanted:
            del named[pattern.name]
            if is_prefix:
                del kind.prefixes[bisect_left(kind.prefixes, pattern.name)]
            return True
        if not had:
            named[pattern.name] = _PatternRules()
            if is_prefix:
                insort(kind.prefixes, pattern.name)
        rules = named[pattern.name]
        for entry in had - wanted:
            rules.remove(entry)
        for entry in wanted - had:
            rules.add(entry)
        return True

    # -- decisions

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        kind, address = self._types.get(resource_type), address_of(host)
        found = () if kind is None else tuple(kind.fitting(name))
        if not found:
            return Decision(self._allow_if_no_rule)
        for permission, operations in (
            (Permission.DENY, _DENIED_BY[operation]),
            (Permission.ALLOW, _ALLOWED_BY[operation]),
        ):
            for pattern_type, pattern_name, rules in found:
                entry = rules.find(permission, operations, principal, address)
                if entry is not None:
                    rule = AclBinding(AclPattern(resource_type, pattern_name, pattern_type), entry)
                    return Decision(permission is Permission.ALLOW, rule)
        return Decision(False)

    def is_allowed_on_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the principal may do the operation on at least one resource that a rule allows.

        As in Kafka, implied operations do not count, and a literal resource counts even if it does not exist.
        """
        if self.decide(principal, host, operation, resource_type, _NO_NAME).is_allowed:
            return True
        kind = self._types.get(resource_type)
        if kind is None:
            return False
        operations, address = _DENIED_BY[operation], address_of(host)

        def is_denied(rules: _PatternRules | None) -> bool:
            return rules is not None and rules.find(Permission.DENY, operations, principal, address) is not None

        everywhere = kind.literal.get(WILDCARD)
        if is_denied(everywhere):
            return False
        if everywhere is not None and everywhere.find(Permission.ALLOW, operations, principal, address) is not None:
            return True
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            for name, rules in kind.of(pattern_type).items():
                if rules.find(Permission.ALLOW, operations, principal, address) is None:
                    continue
                if pattern_type is PatternType.LITERAL and is_denied(rules):
                    continue
                if not any(is_denied(kind.prefixed[prefix]) for prefix in kind.fitting_prefixes(name)):
                    return True
        return False


def _common_start(name: str, other: str) -> str:
    """Returns the characters with which both texts begin."""
    low, high = 0, min(len(name), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if name.startswith(other[:middle]):
            low = middle
        else:
            high = middle - 1
    return name[:low]
