"""Metadata (key 3): the brokers, the topics, and the leaders of partitions.

Speaks v0 to v13. Null topics mean all topics (in v0 an empty list means all), an empty list means none. From v10 on a
client may give the id of a topic. A topic that does not exist is created at once if the client and the broker
(``auto.create.topics.enable``) both allow it, so the first answer already has its leaders; in a cluster the answer
waits for the leaders for one second at most. A partition whose leader is not alive is LEADER_NOT_AVAILABLE.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.authorized import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.broker.metadata_cache import MetadataCache, TopicInfo
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.broker.partition_description import describe_partition
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    ErrorCode,
    KafkaError,
    LeaderNotAvailable,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from headrace.protocol.kio import load_response_schema
from headrace.protocol.wire.encoder import nested_encoder

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.services import NodesSeenBy
    from headrace.broker.topics import Topics


async def handle(
    request: Request,
    config: BrokerConfig,
    metadata: MetadataCache,
    topics: Topics,
    nodes_seen_by: NodesSeenBy,
) -> Reply:
    body, version = request.body, request.version
    with_operations = getattr(body, "include_topic_authorized_operations", False)
    form = _Format(version, with_operations, request.connection.listener_name)
    answers: Answers | list[Any]
    if body.topics is None or (version == 0 and not body.topics):
        answers = await request.answers(list(metadata), lambda topic: _encoded(metadata, topic, form), "topics")
    else:
        may_create = getattr(body, "allow_auto_topic_creation", True) and config.bool("auto.create.topics.enable")

        async def describe(wanted: Any) -> bytes | dict[str, Any]:
            return await _describe_asked(metadata, topics, wanted, may_create, form)

        answers = await request.awaited_answers(body.topics, describe, "topics")
    return {
        "brokers": [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in nodes_seen_by(request.connection)
        ],
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "topics": answers,
        **(
            {"cluster_authorized_operations": CLUSTER_OPERATIONS}
            if getattr(body, "include_cluster_authorized_operations", False)
            else {}
        ),
    }


class _Format(NamedTuple):
    """Everything that the encoded description of a topic depends on."""

    version: int
    with_operations: bool
    listener: str


async def _describe_asked(
    metadata: MetadataCache, topics: Topics, wanted: Any, may_create: bool, form: _Format
) -> bytes | dict[str, Any]:
    topic_id = getattr(wanted, "topic_id", None)
    if topic_id is not None:
        topic = metadata.get_by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id, "partitions": ()}
        return _encoded(metadata, topic, form)
    name: str | None = wanted.name
    if name is None:
        return {"error_code": ErrorCode.invalid_topic_exception, "name": "", "partitions": ()}
    topic = metadata.get(name)
    if topic is None:
        try:
            topic = await _create(metadata, topics, name, may_create)
        except KafkaError as error:
            return {"error_code": error.code, "name": name, "partitions": ()}
    return _encoded(metadata, topic, form)


async def _create(metadata: MetadataCache, topics: Topics, name: str, may_create: bool) -> TopicInfo:
    topics.check_name(name)
    if not may_create:
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
    with suppress(TopicAlreadyExists):  # another request has just created it
        await topics.create_automatically(name)
    topic = metadata.get(name)
    if topic is None:
        raise LeaderNotAvailable(f"topic {name!r} is being created")
    return topic


def _encoded(metadata: MetadataCache, topic: TopicInfo, form: _Format) -> bytes:
    key = (Api.METADATA, form)
    encoded = topic.encoded.get(key)
    if encoded is None:
        out = bytearray()
        encode = nested_encoder(load_response_schema(Api.METADATA, form.version), "topics")
        encode(out, _described(metadata, topic, form), [])
        encoded = topic.encoded[key] = bytes(out)
    return encoded


def _described(metadata: MetadataCache, topic: TopicInfo, form: _Format) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            describe_partition(metadata, form.listener, index, info) for index, info in enumerate(topic.partitions)
        ],
    }
    if form.with_operations:
        described["topic_authorized_operations"] = TOPIC_OPERATIONS
    return described
