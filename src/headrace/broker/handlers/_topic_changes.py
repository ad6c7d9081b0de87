"""What the APIs that make, grow and delete topics share: in a cluster they answer when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import ErrorCode, PolicyViolation

if TYPE_CHECKING:
    from headrace.broker.topics import Topics


_MAX_NEW_PARTITIONS = 10_000


def check_new_partitions(count: int) -> None:
    """
    :raises PolicyViolation: if a request asks for more than 10,000 new partitions, as in Kafka.
    """
    if count > _MAX_NEW_PARTITIONS:
        raise PolicyViolation(
            f"the request asks for {count} new partitions; ask for at most {_MAX_NEW_PARTITIONS} in one request"
        )


async def settle(
    topics: Topics,
    answers: Sequence[dict[str, Any]],
    *,
    timeout_ms: int,
    made: Mapping[str, int] | None = None,
    gone: Sequence[str] = (),
) -> None:
    """Waits until topics have leaders for so many partitions, or are gone; what takes too long is marked so in its
    answer."""
    made = made or {}
    late = await topics.wait_until_applied(made, timeout_ms, gone=gone)
    if not late:
        await topics.wait_until_propagated(made, timeout_ms, gone=gone)
    for answer in answers:
        if answer["name"] in late:
            answer.update(error_code=ErrorCode.request_timed_out, error_message="it is not done yet, and goes on")
