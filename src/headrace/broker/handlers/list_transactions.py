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
        found = list(filter(_filter(body, request.version, clock.wall_ms()), found))
        if request.version >= _PATTERN_SINCE and body.transactional_id_pattern:
            found = _matching(body.transactional_id_pattern, found)
        found = [each for each in found if may_describe(each.transactional_id)]
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        return _answer([], [], error_code_of(error))
    return _answer(found, unknown, ErrorCode.none)


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


def _matching(pattern: str, found: list[TransactionMetadata]) -> list[TransactionMetadata]:
    """
    :raises InvalidRegularExpression: if the pattern is not valid.
    """
    compiled = compiled_pattern(pattern)
    return [each for each in found if compiled.matches(each.transactional_id)]


def _answer(found: list[TransactionMetadata], unknown: list[str], code: ErrorCode) -> Reply:
    return {
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state.label,
            }
            for each in found
        ],
    }
