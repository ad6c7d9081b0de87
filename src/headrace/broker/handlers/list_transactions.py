"""ListTransactions (key 66): the transactional ids that this broker coordinates.

Speaks v0 to v2 (KIP-664). Filters: states (the answer names the unknown ones), producer ids, from v1 on the duration of
the transaction (KIP-994), from v2 on a regular expression that the whole id must match (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.network.request import Reply, Request
from headrace.patterns import compiled_pattern
from headrace.protocol.errors import ErrorCode, error_code_of
from headrace.security.acls import AclOperation, ResourceType
from headrace.transactions.metadata import TransactionMetadata
from headrace.transactions.states import BY_LABEL

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.runtime.clock import Clock

_DURATION_SINCE, _PATTERN_SINCE = 1, 2


async def handle(request: Request, authorizer: Authorizer, clock: Clock, transactions: TransactionService) -> Reply:
    body = request.body
    unknown = [label for label in body.state_filters if label not in BY_LABEL]

    def may_describe(transactional_id: str) -> bool:
        return authorizer.is_allowed(
            request.connection,
            AclOperation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            transactional_id,
            log_denied=False,
        )

    try:
        found = list(transactions.coordinator.transactions())
        passes = _filter(body, request.version, clock.wall_ms())
        matches = _pattern(body, request.version)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        return {"error_code": error_code_of(error), "unknown_state_filters": (), "transaction_states": ()}

    def answer_for(each: TransactionMetadata) -> dict[str, object] | None:
        is_shown = passes(each) and matches(each.transactional_id) and may_describe(each.transactional_id)
        return _described(each) if is_shown else None

    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": unknown,
        "transaction_states": await request.answers(found, answer_for, "transaction_states", from_state=True),
    }


def _filter(body: Any, version: int, now_ms: int) -> Callable[[TransactionMetadata], bool]:
    states, producer_ids = frozenset(body.state_filters), frozenset(body.producer_id_filters)
    at_least_ms = body.duration_filter if version >= _DURATION_SINCE else -1

    def is_wanted(each: TransactionMetadata) -> bool:
        return (
            (not states or each.state.label in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (at_least_ms < 0 or now_ms - each.started_ms > at_least_ms)
        )

    return is_wanted


def _pattern(body: Any, version: int) -> Callable[[str], bool]:
    """
    :raises InvalidRegularExpression: if the pattern of the request is not valid.
    """
    if version < _PATTERN_SINCE or not body.transactional_id_pattern:
        return lambda _: True
    return compiled_pattern(body.transactional_id_pattern).matches


def _described(found: TransactionMetadata) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "transaction_state": found.state.label,
    }
