"""Follows the end of a topic. Nothing is lost as long as a reader keeps up; what is left out is counted.

The reader says where it is, and gets the records behind, in portions with the next place. So a reader who pauses, or
whose connection breaks, goes on where it was. If more than ``MOST_BEHIND`` records wait, the oldest are left out, and
the portion says how many offsets that were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from headrace.client.errors import BrokerError, ErrorCode
from headrace.client.types import TopicPartition
from headrace.console.cluster.fetching import Fetched
from headrace.console.cluster.reader import ClusterReader
from headrace.console.records.batches import RawRecord, records_of
from headrace.console.records.decoding import Decoder, harmless

MOST_BEHIND = 50_000
_KEPT_BEHIND = 1_000
MOST_IN_PORTION = 2_000
_PARTITION_BYTES, _FETCH_BYTES = 512 * 1024, 4 * 1024 * 1024
_WAIT_MS = 400
_LONGEST_VALUE = 300


@dataclass(frozen=True)
class TailRow:
    """A record in a tail: only the beginning of its key and value."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    size_bytes: int


class Portion(NamedTuple):
    """The next records, and the place behind them.

    :ivar dropped: how many offsets were left out because the reader was too slow.
    :ivar behind: how many offsets follow.
    """

    records: list[RawRecord]
    positions: dict[int, int]
    dropped: int
    behind: int


class Tail:
    """Reads behind the positions of one reader."""

    def __init__(self, reader: ClusterReader, topic: str) -> None:
        self._reader = reader
        self._topic = topic

    async def portion(self, positions: Mapping[int, int]) -> Portion:
        """Waits a moment for records, and returns those that came.

        :raises HeadraceError: if a partition cannot be read.
        """
        asked = {TopicPartition(self._topic, partition): offset for partition, offset in positions.items()}
        try:
            found = await self._reader.fetching.fetch(
                asked, partition_bytes=_PARTITION_BYTES, max_bytes=_FETCH_BYTES, wait_ms=_WAIT_MS
            )
        except BrokerError as error:
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            return await self._behind_removed(positions)
        by_partition = {at.partition: fetched for at, fetched in found.items()}
        behind = _behind(positions, by_partition)
        if behind > MOST_BEHIND:
            return self._skipped(positions, by_partition)
        return await asyncio.to_thread(_taken, positions, by_partition)

    async def _behind_removed(self, positions: Mapping[int, int]) -> Portion:
        """The records at a position are gone, or the topic is a new one: the partition goes on at its first record."""
        ends = await self._reader.ends([TopicPartition(self._topic, partition) for partition in positions])
        moved, dropped = dict(positions), 0
        for at, end in ends.items():
            first, stop, offset = end.first_offset or 0, end.end_offset or 0, positions[at.partition]
            if not first <= offset <= stop:
                moved[at.partition], dropped = first, dropped + max(0, first - offset)
        return Portion([], moved, dropped, 0)

    def _skipped(self, positions: Mapping[int, int], found: Mapping[int, Fetched]) -> Portion:
        moved, dropped = dict(positions), 0
        keep = max(1, _KEPT_BEHIND // max(1, len(found)))
        for partition, fetched in found.items():
            at = max(positions[partition], fetched.high_watermark - keep)
            dropped += at - positions[partition]
            moved[partition] = at
        return Portion([], moved, dropped, _behind(moved, found))


def _behind(positions: Mapping[int, int], found: Mapping[int, Fetched]) -> int:
    return sum(max(0, fetched.high_watermark - positions[partition]) for partition, fetched in found.items())


def _taken(positions: Mapping[int, int], found: Mapping[int, Fetched]) -> Portion:
    records: list[RawRecord] = []
    following = dict(positions)
    for partition, fetched in found.items():
        for header, batch in fetched.batches():
            if len(records) >= MOST_IN_PORTION:
                break
            if not header.is_control:
                room = MOST_IN_PORTION - len(records)
                its = list(islice(records_of(partition, header, batch, following[partition]), room))
                records += its
                if its and its[-1].offset < header.last_offset and len(records) >= MOST_IN_PORTION:
                    following[partition] = header.next_offset if its[-1].problem else its[-1].offset + 1
                    break
            following[partition] = max(following[partition], header.next_offset)
    records.sort(key=lambda record: record.timestamp_ms)
    return Portion(records, following, 0, _behind(following, found))


def tail_row(record: RawRecord, decoder: Decoder) -> TailRow:
    key, value = decoder.brief(record.key, _LONGEST_VALUE), decoder.brief(record.value, _LONGEST_VALUE)
    if record.problem:
        value = harmless(record.problem)
    return TailRow(record.partition, record.offset, record.timestamp_ms, key, value, record.size_bytes)
