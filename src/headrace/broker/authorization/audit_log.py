"""Writes the authorizer's log: who was denied what, and on request who was allowed what, in Kafka's format.

The logger has Kafka's name. A denied operation that the client asked for is logged at INFO, an allowed one at DEBUG.
Decisions that only filter a list, or that only describe rights, are not logged; Kafka logs them at TRACE.

One request may name a million resources, and a client must not be able to fill the disk. So at most 1,000 denials are
logged per second, and one line says how many more there were.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import DEBUG, INFO, getLogger
from time import monotonic
from typing import TYPE_CHECKING

from headrace.peer_log import one_line

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Requester
    from headrace.security.acls.bindings import AclBinding
    from headrace.security.acls.kinds import AclOperation, ResourceType

logger = getLogger("kafka.authorizer.logger")

#: The most denials that are logged per second.
MOST_PER_S = 1_000
_MAX_RULE_CHARACTERS = 2_000


class DenialLimit:
    """Counts the denials of each second."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._began_s = float("-inf")
        self._count = 0

    def lets_pass(self) -> bool:
        """Counts a denial, and returns whether it is logged."""
        now_s = self._now_s()
        if now_s - self._began_s >= 1:
            if self._count > MOST_PER_S:
                logger.info(
                    "%d more operations were denied in one second, and are not listed", self._count - MOST_PER_S
                )
            self._began_s, self._count = now_s, 0
        self._count += 1
        return self._count <= MOST_PER_S


def log_decision(
    connection: Requester,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    count: int,
    is_allowed: bool,
    rule: str,
) -> None:
    api = connection.current_api
    logger.log(
        DEBUG if is_allowed else INFO,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with "
        "resourceRefCount = %d based on rule %s",
        one_line(connection.principal),
        "Allowed" if is_allowed else "Denied",
        operation.name,
        connection.host,
        resource_type.title,
        one_line(name),
        "unknown" if api is None else api.label,
        count,
        one_line(rule, _MAX_RULE_CHARACTERS),
    )


def rule_text(rule: AclBinding | None, *, is_allowed: bool) -> str:
    """Returns the rule that decided, as Kafka writes it."""
    if rule is None:
        return "DefaultAllow" if is_allowed else "DefaultDeny"
    pattern, entry = rule
    return (
        f"MatchingAcl(acl=StandardAcl(resourceType={pattern.resource_type.name}, resourceName={pattern.name}, "
        f"patternType={pattern.pattern_type.name}, principal={entry.principal}, host={entry.host}, "
        f"operation={entry.operation.name}, permissionType={entry.permission.name}))"
    )
