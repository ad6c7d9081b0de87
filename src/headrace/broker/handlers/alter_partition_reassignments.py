"""AlterPartitionReassignments (key 45): moves partitions to other brokers, or cancels that.

Speaks v0 and v1; v1 may refuse another number of replicas (KIP-860). Null replicas cancel. Each partition succeeds or
fails alone; that a move has begun is all that is answered. Only the controller answers (NOT_CONTROLLER). A broker alone
takes itself as a target and nothing else (INVALID_REPLICA_ASSIGNMENT).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.dispatch import Reply
from headrace.broker.handlers._control import by_topic, code_and_message, controller_of, within
from headrace.broker.handlers._waiting import milliseconds
from headrace.broker.request import Request
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    body = request.body
    targets: dict[TopicPartition, tuple[int, ...] | None] = {
        (topic.name, partition.partition_index): None if partition.replicas is None else tuple(partition.replicas)
        for topic in body.topics
        for partition in topic.partitions
    }
    may_change_count = getattr(body, "allow_replication_factor_change", True)
    try:
        outcomes = await within(
            milliseconds(body.timeout), controller_of(broker).reassign(targets, may_change_count=may_change_count)
        )
    except KafkaError as error:
        return {**code_and_message(error), "responses": ()}
    return {
        "allow_replication_factor_change": may_change_count,
        "responses": [
            {
                "name": topic,
                "partitions": [{"partition_index": index, **code_and_message(error)} for index, error in partitions],
            }
            for topic, partitions in by_topic(outcomes).items()
        ],
    }
