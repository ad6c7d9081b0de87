"""Lists, sets and deletes the committed offsets of groups.

The offsets of a group with members cannot be set from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from headrace.client.admin.requests import AdminRequests, by_topic, outcome, raise_for
from headrace.client.admin.types import Results
from headrace.client.errors import ErrorCode
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.protocol.api import Api

#: Later versions have topic ids, and a deleted topic has no id.
_BY_NAME_VERSION = 9
_PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unstable_offset_commit,
    }
)


class GroupOffsetsAdmin:
    """The committed offsets of groups."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of a group: of the given partitions, or of all.

        A partition without a committed offset is not in the result. For a group that does not exist, the result is
        empty.

        :param require_stable: waits for open transactions that commit offsets of the group.
        """
        wanted = None if partitions is None else by_topic(partitions)
        topics = None if wanted is None else [{"name": t, "partition_indexes": n} for t, n in wanted.items()]
        answer = await self._requests.cluster.ask_coordinator(
            Api.OFFSET_FETCH,
            "group",
            group_id,
            version=_BY_NAME_VERSION,
            timeout_ms=timeout_ms,
            codes=_passing_codes,
            groups=[{"group_id": group_id, "topics": topics}],  # Several groups since v8.
            group_id=group_id,
            topics=topics,
            require_stable=require_stable,
        )
        (group,) = _groups(answer)
        raise_for(getattr(group, "error_code", ErrorCode.none), f"the group {group_id!r}")
        offsets = {}
        for topic in group.topics:
            for found in topic.partitions:
                at = TopicPartition(topic.name, int(found.partition_index))
                raise_for(found.error_code, f"the offset of the group {group_id!r} in {at}")
                if found.committed_offset >= 0:
                    epoch = int(getattr(found, "committed_leader_epoch", -1))
                    offsets[at] = OffsetAndMetadata(int(found.committed_offset), found.metadata or "", epoch)
        return dict(sorted(offsets.items()))

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Sets the committed offsets of a group, which must have no members. A missing group is created."""
        given = {at: OffsetAndMetadata(to) if isinstance(to, int) else to for at, to in offsets.items()}
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": given[TopicPartition(topic, index)].offset,
                        "committed_leader_epoch": given[TopicPartition(topic, index)].leader_epoch,
                        "committed_metadata": given[TopicPartition(topic, index)].metadata,
                    }
                    for index in indexes
                ],
            }
            for topic, indexes in by_topic(given).items()
        ]
        answer = await self._requests.cluster.ask_coordinator(
            Api.OFFSET_COMMIT,
            "group",
            group_id,
            version=_BY_NAME_VERSION,
            timeout_ms=timeout_ms,
            codes=_passing_codes,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        return _per_partition(answer)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, None]:
        """Deletes committed offsets of a group. Partitions of a topic that the group is subscribed to are refused."""
        answer = await self._requests.cluster.ask_coordinator(
            Api.OFFSET_DELETE,
            "group",
            group_id,
            timeout_ms=timeout_ms,
            group_id=group_id,
            topics=[
                {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        raise_for(answer.error_code, f"the group {group_id!r}")
        return _per_partition(answer)


def _per_partition(answer: Any) -> Results[TopicPartition, None]:
    return Results(
        (
            TopicPartition(topic.name, int(found.partition_index)),
            outcome(found.error_code, None, f"{topic.name}-{found.partition_index}"),
        )
        for topic in answer.topics
        for found in topic.partitions
    )


def _groups(answer: Any) -> Iterable[Any]:
    """Returns the groups of an OffsetFetch answer. Before v8 the answer is about one group."""
    return cast(Iterable[Any], getattr(answer, "groups", (answer,)))


def _passing_codes(answer: Any) -> list[ErrorCode]:
    """Returns the codes after which the request is sent again: the coordinator moves or loads, a transaction is open.

    Other codes of a partition are the result of that partition.
    """
    codes = [getattr(group, "error_code", ErrorCode.none) for group in _groups(answer)]
    codes += [found.error_code for group in _groups(answer) for topic in group.topics for found in topic.partitions]
    return [code for code in codes if code in _PASSING]
