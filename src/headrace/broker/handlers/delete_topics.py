"""DeleteTopics (key 20): deletes topics and their data, by name, from v6 on also by id.

Speaks v1 to v6. If ``delete.topic.enable`` is false, the whole request is refused. In a cluster every broker answers,
as for CreateTopics. The deletion continues until all replicas are deleted, also those on brokers that are offline now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.authorization.checks import allowed_topics, authorization_failed, is_allowed_on_cluster
from headrace.broker.handlers._topic_changes import wait_until_complete
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.protocol.errors import InvalidRequest, KafkaError, TopicDeletionDisabled, code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.quotas.controller_mutations import ControllerMutations, MutationQuota
    from headrace.broker.topics import Topics

#: A topic's name, or its id.
_Named = tuple[str | None, UUID | None]

_DELETION_DISABLED_SINCE = 3  # older clients do not know TOPIC_DELETION_DISABLED
_BY_ID_SINCE = 6
_THROTTLING_ERROR_SINCE = 5


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    metadata: MetadataCache,
    topics: Topics,
    controller_mutations: ControllerMutations,
) -> Reply:
    body = request.body
    by_id = request.version >= _BY_ID_SINCE
    wanted = body.topics if by_id else body.topic_names
    disabled = None
    if not config.bool("delete.topic.enable"):
        refusal = TopicDeletionDisabled if request.version >= _DELETION_DISABLED_SINCE else InvalidRequest
        disabled = refusal("delete.topic.enable is false")

    def named(asked: Any) -> _Named:
        return (asked.name, asked.topic_id) if by_id else (asked, None)

    repeated = await request.slices.repeated(wanted, lambda asked: _identity(metadata, *named(asked)))
    rights = _Rights(authorizer, request)
    quota = controller_mutations.quota_of(request, strict_since=_THROTTLING_ERROR_SINCE)
    answered: set[_Named] = set()
    answers = request.collect(wanted, "responses")
    deleted: list[dict[str, Any]] = []
    async for asked in request.slices.over(wanted):
        name_and_id = named(asked)
        is_twice = bool(repeated) and _identity(metadata, *name_and_id) in repeated
        if is_twice:
            if name_and_id in answered:
                continue
            answered.add(name_and_id)
        answer = await _delete(rights, metadata, topics, quota, *name_and_id, disabled, is_twice=is_twice)
        is_deleted = "error_code" not in answer
        answers.add(answer, may_change=is_deleted)
        if is_deleted:
            deleted.append(answer)
    gone = [answer["name"] for answer in deleted]
    timeout_ms = milliseconds(body.timeout)
    await wait_until_complete(topics, deleted, deleted=gone, timeout_ms=timeout_ms)
    await topics.wait_until_removed(gone, timeout_ms)
    quota.throttle(request)
    return {"responses": answers}


def _identity(metadata: MetadataCache, name: str | None, topic_id: UUID | None) -> str | UUID | None:
    """Returns one value for a topic, whether the request gives its name or its id."""
    topic = metadata.get_by_id(topic_id) if topic_id else None
    return name or (topic.name if topic else topic_id)


class _Rights:
    """The rights of the client on the topics of one request."""

    def __init__(self, authorizer: Authorizer, request: Request) -> None:
        connection = request.connection
        self._may_delete_all = is_allowed_on_cluster(authorizer, connection, AclOperation.DELETE, log_denied=False)
        self._may_describe = allowed_topics(authorizer, connection, AclOperation.DESCRIBE)
        self._may_delete = allowed_topics(authorizer, connection, AclOperation.DELETE)

    def may_describe(self, topic: str) -> bool:
        return self._may_delete_all or self._may_describe(topic)

    def may_delete(self, topic: str) -> bool:
        return self._may_delete_all or self._may_delete(topic)


async def _delete(
    rights: _Rights,
    metadata: MetadataCache,
    topics: Topics,
    quota: MutationQuota,
    name: str | None,
    topic_id: UUID | None,
    disabled: KafkaError | None,
    *,
    is_twice: bool,
) -> dict[str, Any]:
    with code_for_errors(name=name, topic_id=topic_id) as answer:
        if disabled is not None:
            raise disabled
        if (name is None) == (topic_id is None):
            raise InvalidRequest("give either the name or the id of a topic, and not both")
        if is_twice:
            raise InvalidRequest("the request names the topic twice")
        if name and not rights.may_describe(name):
            raise authorization_failed(ResourceType.TOPIC)
        topic = metadata.identified(topic_id) if topic_id else metadata.named(name or "")
        if topic_id and rights.may_describe(topic.name):
            answer["name"] = topic.name
        if not rights.may_delete(topic.name):
            raise authorization_failed(ResourceType.TOPIC)
        answer["topic_id"] = topic.topic_id
        quota.take(len(topic.partitions))
        await topics.delete(topic.name)
    return answer
