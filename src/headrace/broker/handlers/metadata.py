"""Metadata (key 3): the brokers, the topics, and the leaders of partitions.

Speaks v0 to v13. Null topics mean all topics (in v0 an empty list means all), an empty list means none. From v10 on a
client may give the id of a topic. A topic that does not exist is created at once if the client and the broker
(``auto.create.topics.enable``) both allow it, so the first answer already has its leaders; in a cluster the answer
waits for the leaders for one second at most. A partition whose leader is not alive is LEADER_NOT_AVAILABLE. A topic
that is named twice is answered once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.broker.authorization.checks import allowed_topics, is_allowed_on_cluster
from headrace.broker.metadata_cache import INTERNAL_TOPICS, MetadataCache, TopicInfo
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
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.quotas.controller_mutations import ControllerMutations
    from headrace.broker.services import NodesSeenBy
    from headrace.broker.topics import Topics

#: All versions mute the client instead of refusing its request.
_NEVER_STRICT = 1 << 15
#: Up to this number of topics are answered without slices, however many partitions the topics have.
_FEW_TOPICS = 4
#: After this number of different names, only topics that exist are answered once. To remember all other names would
#: take as much memory as the request, and their answers are small.
_MOST_NAMES = 10_000


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    metadata: MetadataCache,
    topics: Topics,
    nodes_seen_by: NodesSeenBy,
    controller_mutations: ControllerMutations,
) -> Reply:
    body, version = request.body, request.version
    with_operations = getattr(body, "include_topic_authorized_operations", False)
    answers: Answers | list[Any]
    is_all = body.topics is None or (version == 0 and not body.topics)
    describing = _Describing(request, authorizer, metadata, with_operations=with_operations, is_all=is_all)
    if is_all:
        answers = await request.answers(list(metadata), describing.if_allowed, "topics", from_state=True)
    else:
        may_create = getattr(body, "allow_auto_topic_creation", True) and config.bool("auto.create.topics.enable")
        creating = _Creating(metadata, topics, controller_mutations, request, may_create=may_create)
        answered: set[UUID | str | None] = set()

        async def describe(wanted: Any) -> bytes | dict[str, Any] | None:
            topic_id = getattr(wanted, "topic_id", None)
            asked = topic_id or wanted.name
            if asked in answered:
                return None
            exists = metadata.get_by_id(topic_id) if topic_id else metadata.get(wanted.name)
            if exists is not None or len(answered) < _MOST_NAMES:
                answered.add(asked)
            return await _describe_asked(describing, creating, wanted)

        is_large = len(body.topics) > _FEW_TOPICS
        answers = await request.awaited_answers(body.topics, describe, "topics", from_state=is_large)
        await request.slices.free(answered)
    return {
        "brokers": [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in nodes_seen_by(request.connection)
        ],
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "topics": answers,
        **(
            {"cluster_authorized_operations": _cluster_operations(authorizer, request)}
            if getattr(body, "include_cluster_authorized_operations", False)
            else {}
        ),
    }


class _Format(NamedTuple):
    """Everything that the encoded description of a topic depends on."""

    version: int
    #: The operations that the client may do with the topic; None if the client did not ask for them.
    operations: int | None
    listener: str


class _Describing:
    """Describes the topics that the client may see."""

    def __init__(
        self,
        request: Request,
        authorizer: Authorizer,
        metadata: MetadataCache,
        *,
        with_operations: bool,
        is_all: bool,
    ) -> None:
        self.metadata = metadata
        self._version = request.version
        self._connection = request.connection
        self._authorizer = authorizer
        self._with_operations = with_operations
        self.may_describe = allowed_topics(authorizer, request.connection, AclOperation.DESCRIBE, log_denied=not is_all)

    def operations(self, topic: str) -> dict[str, int]:
        """Returns the field of a topic that does not exist: the operations that the client could do with it."""
        if not self._with_operations:
            return {}
        operations = self._authorizer.authorized_operations(self._connection, ResourceType.TOPIC, topic)
        return {"topic_authorized_operations": operations}

    def encoded(self, topic: TopicInfo) -> bytes:
        operations = self.operations(topic.name).get("topic_authorized_operations")
        return _encoded(self.metadata, topic, _Format(self._version, operations, self._connection.listener_name))

    def if_allowed(self, topic: TopicInfo) -> bytes | None:
        return self.encoded(topic) if self.may_describe(topic.name) else None

    def may_create(self, name: str) -> bool:
        return is_allowed_on_cluster(
            self._authorizer, self._connection, AclOperation.CREATE, log_denied=False
        ) or self._authorizer.is_allowed(self._connection, AclOperation.CREATE, ResourceType.TOPIC, name)


def _cluster_operations(authorizer: Authorizer, request: Request) -> int:
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE):
        return 0
    return authorizer.authorized_operations(request.connection, ResourceType.CLUSTER, CLUSTER_NAME)


async def _describe_asked(describing: _Describing, creating: _Creating, wanted: Any) -> bytes | dict[str, Any]:
    metadata = describing.metadata
    topic_id = getattr(wanted, "topic_id", None)
    if topic_id is not None:
        topic = metadata.get_by_id(topic_id)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": topic_id, "partitions": ()}
        if not describing.may_describe(topic.name):  # the name of the topic stays hidden
            code = ErrorCode.topic_authorization_failed
            return {"error_code": code, "name": None, "topic_id": topic_id, "partitions": ()}
        return describing.encoded(topic)
    name: str | None = wanted.name
    if name is None:
        return {"error_code": ErrorCode.invalid_topic_exception, "name": "", "partitions": ()}
    if not describing.may_describe(name):
        return {"error_code": ErrorCode.topic_authorization_failed, "name": name, "partitions": ()}
    topic = metadata.get(name)
    if topic is None:
        if creating.may_create and not describing.may_create(name):
            code, is_internal = ErrorCode.topic_authorization_failed, name in INTERNAL_TOPICS
            return {"error_code": code, "name": name, "is_internal": is_internal, "partitions": ()}
        try:
            topic = await creating.create(name)
        except KafkaError as error:
            return {"error_code": error.code, "name": name, "partitions": (), **describing.operations(name)}
    return describing.encoded(topic)


class _Creating:
    """Creates the topics that a request names."""

    def __init__(
        self,
        metadata: MetadataCache,
        topics: Topics,
        mutations: ControllerMutations,
        request: Request,
        *,
        may_create: bool,
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._mutations = mutations
        self._request = request
        #: Whether the broker and the client both allow it.
        self.may_create = may_create

    async def create(self, name: str) -> TopicInfo:
        """
        :raises KafkaError: if the topic is not there afterwards.
        """
        self._topics.check_name(name)
        if not self.may_create:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        with suppress(TopicAlreadyExists):  # another request has just created it
            created = await self._topics.create_automatically(name)
            # As in Kafka, the topic is created in any case. Its partitions count, and later requests have to wait.
            self._mutations.quota_of(self._request, strict_since=_NEVER_STRICT).take(len(created.assignment))
        topic = self._metadata.get(name)
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
    if form.operations is not None:
        described["topic_authorized_operations"] = form.operations
    return described
