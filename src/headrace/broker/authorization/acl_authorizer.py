"""The authorizer that decides by ACLs and by ``super.users``, as Kafka's two authorizers do.

A super user may do everything, whatever the rules say. For everybody else the rules decide (``rule_index.py``).

Most requests repeat the question of an earlier request: the same client, the same topic. So decisions are kept, by
everything that they depend on, and forgotten when any rule changes. A decision that is kept costs two dict lookups.
Clients choose the names that they ask for, so long names are not kept, and when there are many decisions, all of them
are forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from logging import DEBUG
from typing import TYPE_CHECKING

from headrace.broker.authorization.audit_log import DenialLimit, log_decision, logger, rule_text
from headrace.broker.authorization.authorizer import Authorizer
from headrace.security.acls.kinds import SUPPORTED_OPERATIONS
from headrace.security.acls.rule_index import Decision, RuleIndex

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Requester
    from headrace.broker.authorization.stored_rules import StoredRules
    from headrace.security.acls import AclFilter, AclOperation, ResourceType
    from headrace.security.acls.bindings import AclEntry, AclPattern
    from headrace.security.principal import Principal

_MAX_KEPT = 20_000
_MAX_KEPT_NAME_LENGTH = 255
_SUPER_USER = Decision(True)


class AclAuthorizer(Authorizer):
    #: The rules in the tree. Set before the first call of one of the methods that read or change rules.
    stored: StoredRules

    def __init__(self, index: RuleIndex, super_users: Iterable[Principal] = ()) -> None:
        self._index = index
        self._super_users = frozenset(super_users)
        self._denials = DenialLimit()
        self._decisions: dict[tuple[Principal, str, AclOperation, ResourceType, str], Decision] = {}
        self._on_any: dict[tuple[Principal, str, AclOperation, ResourceType], bool] = {}

    def forget_decisions(self) -> None:
        """Called when rules have changed."""
        self._decisions.clear()
        self._on_any.clear()

    # -- decisions

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
        key = (connection.principal, connection.host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(key)
        is_allowed = decision.is_allowed
        if log_allowed and logger.isEnabledFor(DEBUG) if is_allowed else log_denied and self._denials.lets_pass():
            rule = "SuperUser" if decision is _SUPER_USER else rule_text(decision.rule, is_allowed=is_allowed)
            log_decision(connection, operation, resource_type, name, count=count, is_allowed=is_allowed, rule=rule)
        return is_allowed

    def _decide(self, key: tuple[Principal, str, AclOperation, ResourceType, str]) -> Decision:
        principal, host, operation, resource_type, name = key
        if principal in self._super_users:
            decision = _SUPER_USER
        else:
            decision = self._index.decide(str(principal), host, operation, resource_type, name)
        if len(name) <= _MAX_KEPT_NAME_LENGTH:
            if len(self._decisions) >= _MAX_KEPT:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def is_allowed_on_any(self, connection: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        key = (connection.principal, connection.host, operation, resource_type)
        is_allowed = self._on_any.get(key)
        if is_allowed is None:
            principal, host = connection.principal, connection.host
            is_allowed = principal in self._super_users or self._index.is_allowed_on_any(
                str(principal), host, operation, resource_type
            )
            if len(self._on_any) >= _MAX_KEPT:
                self._on_any.clear()
            self._on_any[key] = is_allowed
        return is_allowed

    def authorized_operations(self, connection: Requester, resource_type: ResourceType, name: str) -> int:
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.is_allowed(connection, operation, resource_type, name, log_allowed=False, log_denied=False)
        )

    # -- the rules themselves

    def patterns(self) -> list[AclPattern]:
        return self._index.patterns()

    def entries(self, pattern: AclPattern) -> Collection[AclEntry]:
        return self._index.entries(pattern)

    async def add_rules(self, pattern: AclPattern, entries: Collection[AclEntry]) -> None:
        await self.stored.change(pattern, lambda stored: stored | frozenset(entries))

    async def remove_rules(self, pattern: AclPattern, wanted: Sequence[AclFilter]) -> Collection[AclEntry]:
        removed: frozenset[AclEntry] = frozenset()

        def remove(stored: frozenset[AclEntry]) -> frozenset[AclEntry]:
            nonlocal removed
            # An earlier attempt whose answer was lost may have removed rules already.
            removed |= {entry for entry in stored if any(each.matches_entry(entry) for each in wanted)}
            return stored - removed

        await self.stored.change(pattern, remove)
        return removed

    async def catch_up(self) -> None:
        await self.stored.catch_up()
