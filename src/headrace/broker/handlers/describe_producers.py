"""DescribeProducers (key 61): the idempotent producers whose state a partition keeps.

Speaks v0 (KIP-664). Every replica answers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, authorization_failed
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.replication.partitions import Partitions


async def handle(request: Request, authorizer: Authorizer, partitions: Partitions) -> Reply:
    may_read = allowed_topics(authorizer, request.connection, AclOperation.READ)

    async def describe(topic: Any) -> dict[str, object]:
        answer = partial(_answer, partitions, topic.name) if may_read(topic.name) else _refusal
        answers = await request.answers(topic.partition_indexes, answer, "topics", "partitions")
        return {"name": topic.name, "partitions": answers}

    return {"topics": await request.awaited_answers(request.body.topics, describe, "topics")}


def _refusal(index: int) -> dict[str, object]:
    with code_for_errors(partition_index=index, active_producers=()) as answer:
        raise authorization_failed(ResourceType.TOPIC)
    return answer


def _answer(partitions: Partitions, topic: str, index: int) -> dict[str, object]:
    with code_for_errors(partition_index=index, active_producers=()) as answer:
        producers = partitions.replica(topic, index).log.producers
        answer["active_producers"] = [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_txn_start_offset,
            }
            for producer in producers.active()
        ]
    return answer
