"""ListPartitionReassignments (key 46): the partitions that are being moved between brokers.

Speaks v0. Null topics mean all topics. Partitions that are not being moved, or that do not exist, are left out. Only
the controller answers (NOT_CONTROLLER). For a broker that is not in a cluster the list is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._control import by_topic, code_and_message
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.cluster_role import PartitionController


async def handle(request: Request, authorizer: Authorizer, controller: PartitionController) -> Reply:
    topics = request.body.topics
    try:
        check_cluster(authorizer, request.connection, AclOperation.DESCRIBE)
        moves = controller.reassignments()
    except KafkaError as error:
        return {**code_and_message(error), "topics": ()}
    if topics is not None:
        named = ((topic.name, index) for topic in topics for index in topic.partition_indexes)
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
