"""DescribeTopicPartitions (key 75): the partitions of topics, in pages (KIP-966).

Speaks v0. Topics are answered in the order of their names. A page has at most ``max.request.partition.size.limit``
partitions, and its cursor says where the next page begins. The lists of eligible leader replicas (ELR) are empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import in_groups
from headrace.broker.partition_description import describe_partition
from headrace.protocol.errors import ErrorCode, InvalidTopic
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.topics import Topics

_SORTED_AT_A_TIME = 1_000
_NO_ELR = {"eligible_leader_replicas": (), "last_known_elr": ()}


async def handle(
    request: Request, authorizer: Authorizer, config: BrokerConfig, metadata: MetadataCache, topics: Topics
) -> Reply:
    body, listener = request.body, request.connection.listener_name
    room = max(1, min(body.response_partition_limit, config.int("max.request.partition.size.limit")))
    first_name, first_index = (body.cursor.topic_name, body.cursor.partition_index) if body.cursor else ("", 0)
    names = await _sorted(request, body.topics) if body.topics else [topic.name for topic in metadata]
    answers = request.collect(body.topics, "topics")
    is_named = bool(body.topics)
    may_describe = allowed_topics(authorizer, request.connection, AclOperation.DESCRIBE, log_denied=is_named)
    operations = partial(authorizer.authorized_operations, request.connection, ResourceType.TOPIC)
    async for name in request.slices.over(names):
        if name < first_name:
            continue
        if not may_describe(name):
            if is_named:
                answers.add({"error_code": ErrorCode.topic_authorization_failed, "name": name, "partitions": ()})
            continue
        topic = metadata.get(name)
        if topic is None:
            answers.add(
                {
                    "error_code": _missing_code(topics, name),
                    "name": name,
                    "partitions": (),
                    "topic_authorized_operations": operations(name),
                }
            )
            continue
        if room <= 0:
            return {"topics": answers, "next_cursor": {"topic_name": name, "partition_index": 0}}
        start = max(0, first_index) if name == first_name else 0
        stop = min(len(topic.partitions), start + room)
        answers.add(
            {
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": [
                    {**describe_partition(metadata, listener, index, topic.partitions[index]), **_NO_ELR}
                    for index in range(start, stop)
                ],
                "topic_authorized_operations": operations(name),
            }
        )
        room -= max(0, stop - start)
        if stop < len(topic.partitions):
            return {"topics": answers, "next_cursor": {"topic_name": name, "partition_index": stop}}
    return {"topics": answers}


async def _sorted(request: Request, topics: Iterable[Any]) -> Iterable[str]:
    """Returns the names in order, without repetition. Sorts few at a time, so that other requests need not wait."""
    groups = in_groups((topic.name for topic in topics), _SORTED_AT_A_TIME)
    runs = [sorted(group) async for group in request.slices.over(groups)]
    return (name for name, _ in groupby(merge(*runs)))


def _missing_code(topics: Topics, name: str) -> ErrorCode:
    try:
        topics.check_name(name)
    except InvalidTopic as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
