"""AlterPartitionReassignments (key 45): moves partitions to other brokers, or cancels such moves.

Speaks v0 and v1. In v1 a client may forbid to change the number of replicas (KIP-860). Null replicas cancel a move.
Each partition succeeds or fails alone. The answer says that the moves have begun, not that they are complete. Only the
controller answers (NOT_CONTROLLER). A broker that is not in a cluster accepts only itself as a target
(INVALID_REPLICA_ASSIGNMENT).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import authorization_failed, is_allowed_on_cluster
from headrace.broker.handlers._control import batches, by_topic, code_and_message, within
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.cluster_role import PartitionController


async def handle(request: Request, authorizer: Authorizer, controller: PartitionController) -> Reply:
    body = request.body
    may_change_count = getattr(body, "allow_replication_factor_change", True)
    responses = request.collect(body.topics, "responses")
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.ALTER):
        return await _refusal(request)
    async for targets in request.slices.over(batches(body.topics, _targets(body.topics))):
        moving = controller.reassign(dict(targets), may_change_count=may_change_count)
        try:
            outcomes = await within(milliseconds(body.timeout), moving)
        except KafkaError as error:
            return {**code_and_message(error), "responses": ()}
        for topic, partitions in by_topic(outcomes).items():
            answers = [{"partition_index": index, **code_and_message(error)} for index, error in partitions]
            responses.add({"name": topic, "partitions": answers})
    return {"allow_replication_factor_change": may_change_count, "responses": responses}


async def _refusal(request: Request) -> Reply:
    refusal = code_and_message(authorization_failed(ResourceType.CLUSTER))

    async def refuse(topic: Any) -> dict[str, object]:
        answers = await request.answers(
            topic.partitions,
            lambda partition: {"partition_index": partition.partition_index, **refusal},
            "responses",
            "partitions",
        )
        return {"name": topic.name, "partitions": answers}

    return {**refusal, "responses": await request.awaited_answers(request.body.topics, refuse, "responses")}


def _targets(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, tuple[int, ...] | None]]:
    for topic in topics:
        for partition in topic.partitions:
            replicas = None if partition.replicas is None else tuple(partition.replicas)
            yield (topic.name, partition.partition_index), replicas
