"""Reads how far groups are behind: committed offsets against the ends of partitions."""

from __future__ import annotations

from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.console.cluster.reader import LIST_SECONDS, ClusterReader

_TIMEOUT_MS = 3_000


async def committed_offsets(cluster: ClusterReader, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of a group, by partition."""

    async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
        return await cluster.admin.list_group_offsets(group, timeout_ms=_TIMEOUT_MS)

    return await cluster.kept(("committed", group), LIST_SECONDS, ask)


async def group_lag(cluster: ClusterReader, group: str) -> int | None:
    """How many records a group has not read; None if it has committed nothing."""
    committed = await committed_offsets(cluster, group)
    if not committed:
        return None
    ends = await cluster.ends(sorted(committed))
    return sum(lag_of(offset.offset, ends[at].end_offset) or 0 for at, offset in committed.items())


def lag_of(committed: int | None, end: int | None) -> int | None:
    """How many offsets are between the two."""
    return None if committed is None or end is None else max(0, end - committed)
