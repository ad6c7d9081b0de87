"""DescribeProducers (key 61): the idempotent producers whose state a partition keeps.

Speaks v0 (KIP-664). Every replica answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, authorization_failed
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.log.producer_state import ActiveProducer
    from headrace.replication.partitions import Partitions


async def handle(request: Request, authorizer: Authorizer, partitions: Partitions) -> Reply:
    may_read = allowed_topics(authorizer, request.connection, AclOperation.READ)

    async def describe(topic: Any) -> dict[str, object]:
        is_allowed = may_read(topic.name)

        async def describe_partition(index: int) -> dict[str, object]:
            answer, producers = _found(partitions, topic.name, index) if is_allowed else (_refusal(index), ())
            if producers:
                answer["active_producers"] = await request.answers(
                    producers, _described, "topics", "partitions", "active_producers", from_state=True
                )
            return answer

        answers = await request.awaited_answers(
            topic.partition_indexes, describe_partition, "topics", "partitions", from_state=True
        )
        return {"name": topic.name, "partitions": answers}

    return {"topics": await request.awaited_answers(request.body.topics, describe, "topics", from_state=True)}


def _refusal(index: int) -> dict[str, object]:
    with code_for_errors(partition_index=index, active_producers=()) as answer:
        raise authorization_failed(ResourceType.TOPIC)
    return answer


def _found(partitions: Partitions, topic: str, index: int) -> tuple[dict[str, object], Sequence[ActiveProducer]]:
    """Returns the answer without producers, and the producers."""
    producers: Sequence[ActiveProducer] = ()
    with code_for_errors(partition_index=index, active_producers=()) as answer:
        producers = partitions.replica(topic, index).log.producers.active()
    return answer, producers


def _described(producer: ActiveProducer) -> dict[str, object]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp_ms,
        "coordinator_epoch": producer.coordinator_epoch,
        "current_txn_start_offset": producer.current_txn_start_offset,
    }
