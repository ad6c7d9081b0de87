"""ListPartitionReassignments (key 46): the partitions that are being moved between brokers.

Speaks v0. Null topics mean all topics. Partitions that are not being moved, or that do not exist, are left out. Only
the controller answers (NOT_CONTROLLER). For a broker that is not in a cluster the list is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._control import by_topic, code_and_message
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.protocol.errors import ClusterAuthorizationFailed, KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.cluster_role import PartitionController


async def handle(request: Request, authorizer: Authorizer, controller: PartitionController) -> Reply:
    wanted = request.body.topics
    try:
        check_cluster(authorizer, request.connection, AclOperation.DESCRIBE)
        moves = controller.reassignments()
    except KafkaError as error:
        topics = await _refused(request) if isinstance(error, ClusterAuthorizationFailed) else ()
        return {**code_and_message(error), "topics": topics}
    if wanted is not None:
        named = ((topic.name, index) for topic in wanted for index in topic.partition_indexes)
        moves = {one: moves[one] async for one in request.slices.over(named) if one in moves}
    return {
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": index,
                        "replicas": move.replicas,
                        "adding_replicas": move.adding,
                        "removing_replicas": move.removing,
                    }
                    for index, move in partitions
                ],
            }
            for topic, partitions in by_topic(moves).items()
        ]
    }


async def _refused(request: Request) -> Answers | list[Any]:
    """Returns the asked partitions, without anything about them."""
    nothing: dict[str, object] = {"replicas": (), "adding_replicas": (), "removing_replicas": ()}

    async def refuse(topic: Any) -> dict[str, object]:
        answers = await request.answers(
            topic.partition_indexes, lambda index: {"partition_index": index, **nothing}, "topics", "partitions"
        )
        return {"name": topic.name, "partitions": answers}

    return await request.awaited_answers(request.body.topics or (), refuse, "topics")
