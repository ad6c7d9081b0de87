"""Code that CreateTopics, CreatePartitions and DeleteTopics share: they answer when the change is complete."""

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


async def wait_until_complete(
    topics: Topics,
    answers: Sequence[dict[str, Any]],
    *,
    timeout_ms: int,
    partition_counts: Mapping[str, int] | None = None,
    deleted: Sequence[str] = (),
) -> None:
    """Waits until all brokers know the new or deleted topics. Marks the answers of topics that need too long.

    :param partition_counts: topics, and the number of their partitions that must have a leader.
    :param deleted: topics that must be deleted.
    """
    counts = partition_counts or {}
    late = await topics.wait_until_applied(counts, timeout_ms, gone=deleted)
    if not late:
        await topics.wait_until_propagated(counts, timeout_ms, gone=deleted)
    for answer in answers:
        name = answer["name"]
        if name in late:
            answer.update(error_code=ErrorCode.request_timed_out, error_message=_late_message(name, name in deleted))


def _late_message(topic: str, is_deleted: bool) -> str:
    change = "deleted" if is_deleted else "created or extended"
    return f"topic {topic} is still being {change}; run `headrace topics --describe --topic {topic}` to follow it"
