"""OffsetFetch (key 9): the committed offsets of groups.

Speaks v1 to v10: many groups at once from v8 on, topics by their ids from v10 on. From v2 on null topics mean all
topics of the group. The offset is -1 if none was committed, or if the group does not exist. With require_stable (from
v7 on) a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT. The error of a group is in the field
that the version has for it: at each partition (v1), at the top (v2 to v7), or at the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.authorization.checks import allowed_topics, check
from headrace.broker.network.answer_memory import AnswerTooLarge
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.groups.committed_offsets import CommittedOffset
from headrace.groups.committing import client_error_code
from headrace.groups.shard import GroupShard
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.large_messages import ElementArray
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache

_TOP_LEVEL_ERROR_SINCE = 2
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NO_MEMBER_EPOCH = -1

Answer = dict[str, Any]


async def handle(request: Request, authorizer: Authorizer, metadata: MetadataCache, groups: GroupService) -> Reply:
    body = request.body
    require_stable = getattr(body, "require_stable", False)
    if request.version >= _MANY_GROUPS_SINCE:

        async def answer(group: Any) -> Answer:
            return await _answer(request, authorizer, metadata, groups, group, require_stable=require_stable)

        return {"groups": await request.awaited_answers(body.groups, answer, "groups", from_state=len(body.groups) > 1)}
    return await _answer(request, authorizer, metadata, groups, body, require_stable=require_stable)


async def _answer(
    request: Request,
    authorizer: Authorizer,
    metadata: MetadataCache,
    groups: GroupService,
    asked: Any,
    *,
    require_stable: bool,
) -> Answer:
    may_describe = allowed_topics(
        authorizer, request.connection, AclOperation.DESCRIBE, log_denied=asked.topics is not None
    )
    try:
        check(authorizer, request.connection, AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        shard = groups.coordinator.shard_for(asked.group_id)
        group = shard.group(asked.group_id)
        if group is not None:
            group.check_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", _NO_MEMBER_EPOCH))
        reader = _Reader(request, metadata, shard, asked.group_id, may_describe, require_stable=require_stable)
        topics = await (reader.all() if asked.topics is None else reader.some(asked.topics))
        await groups.replicated(asked.group_id)
    except AnswerTooLarge:
        raise
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        return await _refusal(request, asked, client_error_code(error))
    return {"group_id": asked.group_id, "topics": topics}


async def _refusal(request: Request, asked: Any, code: ErrorCode) -> Answer:
    topics: Answers | list[Answer] = []
    if request.version < _TOP_LEVEL_ERROR_SINCE:

        async def refuse(topic: Any) -> Answer:
            return {"name": topic.name, "partitions": await _same_for_all(request, topic.partition_indexes, code)}

        topics = await request.awaited_answers(asked.topics, refuse, "topics")
    return {"group_id": asked.group_id, "error_code": code, "topics": topics}


async def _same_for_all(request: Request, indexes: Sequence[int], code: ErrorCode) -> Answers | list[Answer]:
    return await request.answers(indexes, lambda index: _no_offset(index, code), *_path(request), "partitions")


def _path(request: Request) -> tuple[str, ...]:
    """Returns the names of the fields that lead to the topics of a group in the answer."""
    return ("groups", "topics") if request.version >= _MANY_GROUPS_SINCE else ("topics",)


def _no_offset(index: int, code: ErrorCode = ErrorCode.none) -> Answer:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


def _is_of_earlier_topic(committed_for: UUID | None, asked_for: UUID | None) -> bool:
    """Returns whether the offset was committed for an earlier topic of the same name. Such an offset does not count."""
    return committed_for is not None and asked_for is not None and committed_for != asked_for


class _Reader:
    """Reads the offsets of one group."""

    def __init__(
        self,
        request: Request,
        metadata: MetadataCache,
        shard: GroupShard,
        group_id: str,
        may_describe: Callable[[str], bool],
        *,
        require_stable: bool,
    ) -> None:
        self._may_describe = may_describe
        self._request = request
        self._by_id = request.version >= _TOPIC_IDS_SINCE
        self._metadata = metadata
        self._offsets = shard.offsets
        self._group_id = group_id
        self._require_stable = require_stable and shard.offsets.has_pending(group_id)

    async def some(self, topics: Sequence[Any]) -> Answers | list[Answer]:
        return await self._request.awaited_answers(topics, self._asked, *_path(self._request))

    async def _asked(self, topic: Any) -> Answer:
        indexes = topic.partition_indexes
        if not self._by_id:
            if not self._may_describe(topic.name):
                return {"name": topic.name, "partitions": await self._refusals(indexes)}
            return await self._topic(topic.name, None, indexes)
        known = None if topic.topic_id is None else self._metadata.get_by_id(topic.topic_id)
        if known is None:
            unknown = await _same_for_all(self._request, indexes, ErrorCode.unknown_topic_id)
            return {"topic_id": topic.topic_id, "partitions": unknown}
        if not self._may_describe(known.name):
            return {"topic_id": topic.topic_id, "partitions": await self._refusals(indexes)}
        return await self._topic(known.name, known.topic_id, indexes)

    async def _refusals(self, indexes: Sequence[int]) -> Answers | list[Answer]:
        return await _same_for_all(self._request, indexes, ErrorCode.topic_authorization_failed)

    async def all(self) -> Answers:
        topics: dict[str, tuple[UUID | None, Answers] | None] = {}
        path, slices = _path(self._request), self._request.slices
        async for (topic, index), committed in slices.over(self._offsets.each_of_group(self._group_id)):
            if topic not in topics:
                is_shown, topic_id = self._id_of(topic)
                topics[topic] = (topic_id, self._request.state_answers(*path, "partitions")) if is_shown else None
            shown = topics[topic]
            if shown is not None:
                topic_id, partitions = shown
                partitions.add(self._partition(topic, topic_id, index, committed))
        answers = self._request.state_answers(*path)
        async for name, shown in slices.over(topics.items()):
            if shown is not None:
                answers.add({"name": name, "topic_id": shown[0], "partitions": shown[1]})
        return answers

    def _id_of(self, topic: str) -> tuple[bool, UUID | None]:
        """Returns whether a topic of the group is shown, and the id of the topic if the version has ids."""
        if not self._may_describe(topic):
            return False, None
        if not self._by_id:
            return True, None
        known = self._metadata.get(topic)
        return known is not None, None if known is None else known.topic_id

    async def _topic(self, name: str, topic_id: UUID | None, indexes: Sequence[int]) -> Answer:
        partitions: Answers | list[Answer]
        if isinstance(indexes, ElementArray):
            partitions = await self._request.answers(
                indexes,
                lambda index: self._partition(
                    name, topic_id, index, self._offsets.committed(self._group_id, name, index)
                ),
                *_path(self._request),
                "partitions",
            )
        else:
            found = zip(indexes, self._offsets.of_topic(self._group_id, name, indexes), strict=True)
            partitions = [self._partition(name, topic_id, index, committed) for index, committed in found]
        return {"name": name, "topic_id": topic_id, "partitions": partitions}

    def _partition(self, topic: str, topic_id: UUID | None, index: int, committed: CommittedOffset | None) -> Answer:
        if self._require_stable and self._offsets.has_pending(self._group_id, topic, index):
            return _no_offset(index, ErrorCode.unstable_offset_commit)
        if committed is None or _is_of_earlier_topic(committed.topic_id, topic_id):
            return _no_offset(index)
        return {
            "partition_index": index,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
        }
