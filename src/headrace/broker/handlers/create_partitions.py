"""CreatePartitions (key 37): adds partitions to topics. The number of partitions never shrinks.

Speaks v0 to v3. In a cluster every broker answers, as for CreateTopics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, authorization_failed
from headrace.broker.handlers._topic_changes import check_new_partitions, wait_until_complete
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.protocol.errors import InvalidRequest, code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.quotas.controller_mutations import ControllerMutations, MutationQuota
    from headrace.broker.topics import Topics

_THROTTLING_ERROR_SINCE = 3


async def handle(
    request: Request,
    authorizer: Authorizer,
    metadata: MetadataCache,
    topics: Topics,
    controller_mutations: ControllerMutations,
) -> Reply:
    body = request.body
    quota = controller_mutations.quota_of(request, strict_since=_THROTTLING_ERROR_SINCE)
    growing = _Growing(metadata, topics, quota, body.validate_only)
    repeated = await request.slices.repeated(body.topics, lambda topic: topic.name)
    answers = request.collect(body.topics, "results")
    grown: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    may_alter = allowed_topics(authorizer, request.connection, AclOperation.ALTER)
    async for topic in request.slices.over(body.topics):
        if repeated.was_met_before(topic.name):
            continue
        answer = await growing.grow(topic, may_alter, is_twice=topic.name in repeated)
        is_grown = "error_code" not in answer
        answers.add(answer, may_change=is_grown)
        if is_grown:
            grown.append(answer)
            counts[topic.name] = topic.count
    if not body.validate_only:
        await wait_until_complete(topics, grown, partition_counts=counts, timeout_ms=milliseconds(body.timeout))
    quota.throttle(request)
    return {"results": answers}


class _Growing:
    """Adds partitions to the topics of one request."""

    def __init__(self, metadata: MetadataCache, topics: Topics, quota: MutationQuota, validate_only: bool) -> None:
        self._metadata = metadata
        self._topics = topics
        self._quota = quota
        self._validate_only = validate_only

    async def grow(self, topic: Any, may_alter: Callable[[str], bool], *, is_twice: bool) -> dict[str, Any]:
        with code_for_errors(name=topic.name) as answer:
            if is_twice:
                raise InvalidRequest(f"topic {topic.name!r} is named more than once in the request")
            if not may_alter(topic.name):
                raise authorization_failed(ResourceType.TOPIC)
            new_partitions = topic.count - len(self._metadata.named(topic.name).partitions)
            check_new_partitions(new_partitions)
            given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
            if self._quota and not self._validate_only:  # partitions that cannot be added take no tokens
                await self._topics.add_partitions(topic.name, topic.count, given, validate_only=True)
                self._quota.take(new_partitions)
            await self._topics.add_partitions(topic.name, topic.count, given, validate_only=self._validate_only)
        return answer
