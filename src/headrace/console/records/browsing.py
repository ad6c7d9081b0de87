"""Reads pages of records: forwards from offsets, or backwards before offsets.

A page of all partitions is sorted by time, and each partition keeps its order. The page says where each partition goes
on, so that the next page has exactly the records behind. Backwards, each partition is read from as many offsets before
the place as the page has rows; offsets without a record (compacted, or of hidden control records) make it shorter.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.types import TopicPartition
from headrace.console.cluster.fetching import Fetched, Fetching
from headrace.console.cluster.reader import Ends
from headrace.console.records.batches import RawRecord, records_of

#: Bounds of one page: bytes that are fetched, and time.
_MOST_BYTES = 64 * 1024 * 1024
_MOST_SECONDS = 8.0
_PARTITION_BYTES, _FETCH_BYTES = 256 * 1024, 8 * 1024 * 1024
#: With more partitions, each one gives fewer of the newest records.
_MANY_PARTITIONS = 40

Offsets = Mapping[int, int]


@dataclass
class _Part:
    """The part of a page that is read from one partition: the offsets from ``at`` to before ``end``."""

    at: int
    end: int
    records: list[RawRecord] = field(default_factory=list)

    def is_done(self, rows: int) -> bool:
        return self.at >= self.end or len(self.records) >= rows


@dataclass(frozen=True)
class RawPage:
    """Records as they are shown, and the offset of each partition where the records behind and before begin.

    :ivar is_whole: whether nothing was left out because of the bounds of bytes and time.
    """

    records: list[RawRecord]
    following: dict[int, int]
    preceding: dict[int, int]
    is_whole: bool


class Browser:
    """Reads pages of one topic."""

    def __init__(self, fetching: Fetching, topic: str, *, with_control: bool = False) -> None:
        self._fetching = fetching
        self._topic = topic
        self._with_control = with_control

    async def forwards(self, starts: Offsets, ends: Mapping[int, Ends], rows: int) -> RawPage:
        """The first records of each partition from its start on, in the order of their times."""
        parts = {
            partition: _Part(max(starts[partition], end.first_offset or 0), end.end_offset or 0)
            for partition, end in ends.items()
            if partition in starts
        }
        begins = {partition: part.at for partition, part in parts.items()}
        is_whole = await self._fill(parts, rows)
        merged = heapq.merge(*(part.records for part in parts.values()), key=lambda record: record.timestamp_ms)
        shown = [record for _, record in zip(range(rows), merged, strict=False)]
        following = {number: part.at if not part.records else begins[number] for number, part in parts.items()}
        for record in shown:
            following[record.partition] = max(following[record.partition], _behind(record))
        return RawPage(shown, following, begins, is_whole)

    async def backwards(self, before: Offsets, ends: Mapping[int, Ends], rows: int) -> RawPage:
        """The last records of each partition before an offset, the newest first."""
        per_partition = rows if len(ends) <= _MANY_PARTITIONS else max(2, rows * _MANY_PARTITIONS // len(ends))
        parts: dict[int, _Part] = {}
        for partition, end in ends.items():
            stop = min(before.get(partition, end.end_offset or 0), end.end_offset or 0)
            parts[partition] = _Part(max(end.first_offset or 0, stop - per_partition), stop)
        stops = {partition: part.end for partition, part in parts.items()}
        is_whole = await self._fill(parts, per_partition)
        newest_first = heapq.merge(
            *(reversed(part.records) for part in parts.values()), key=lambda record: -record.timestamp_ms
        )
        shown = [record for _, record in zip(range(rows), newest_first, strict=False)]
        preceding = dict(stops)
        for record in shown:
            preceding[record.partition] = min(preceding[record.partition], record.offset)
        taken = {record.partition for record in shown}
        for partition, part in parts.items():
            # Nothing but offsets without records was there: the next page begins before them.
            if partition not in taken and not part.records:
                preceding[partition] = min(preceding[partition], max(0, part.end - per_partition))
        return RawPage(shown, stops, preceding, is_whole)

    async def one(self, partition: int, offset: int) -> RawRecord | None:
        """The record at an offset; None if there is none."""
        found = await self._fetching.fetch(
            {TopicPartition(self._topic, partition): offset}, partition_bytes=1, max_bytes=_FETCH_BYTES
        )
        for fetched in found.values():
            for header, batch in fetched.batches():
                if header.base_offset <= offset <= header.last_offset:
                    # The first record at or behind the offset: with a gap there it is another one.
                    record = await asyncio.to_thread(next, records_of(partition, header, batch, offset), None)
                    return record if record is not None and (record.offset == offset or record.problem) else None
        return None

    # -- parts

    async def _fill(self, parts: dict[int, _Part], rows: int) -> bool:
        """Reads until each part has enough. Returns False if a bound ends it before."""
        loop = asyncio.get_running_loop()
        deadline, left_bytes = loop.time() + _MOST_SECONDS, _MOST_BYTES
        while wanted := {number: part for number, part in parts.items() if not part.is_done(rows)}:
            if loop.time() > deadline or left_bytes <= 0:
                return False
            positions = {TopicPartition(self._topic, number): part.at for number, part in wanted.items()}
            found = await self._fetching.fetch(positions, partition_bytes=_PARTITION_BYTES, max_bytes=_FETCH_BYTES)
            read = sum(len(fetched.records) for fetched in found.values())
            left_bytes -= read
            await asyncio.to_thread(self._take, parts, {at.partition: each for at, each in found.items()}, rows)
            if not read:
                return True  # The ends are those of transactions or of removed records: nothing more is there.
        return True

    def _take(self, parts: dict[int, _Part], found: Mapping[int, Fetched], rows: int) -> None:
        for number, fetched in found.items():
            part = parts[number]
            for header, batch in fetched.batches():
                if part.is_done(rows):
                    break
                if self._with_control or not header.is_control:
                    for record in records_of(number, header, batch, part.at):
                        if record.offset >= part.end or len(part.records) >= rows:
                            break
                        part.records.append(record)
                part.at = max(part.at, header.next_offset)


def _behind(record: RawRecord) -> int:
    """The offset behind a record. One that stands for a damaged batch is as long as the batch."""
    return record.batch.next_offset if record.problem else record.offset + 1


def write_offsets(offsets: Offsets) -> str:
    """``{0: 12, 1: 40}`` as ``0:12,1:40``."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def read_offsets(text: str) -> dict[int, int]:
    """
    :raises ValueError: if the text is something else.
    """
    found: dict[int, int] = {}
    for pair in filter(None, text.split(",")):
        partition, colon, offset = pair.partition(":")
        is_good = colon and all(each.isascii() and each.isdecimal() and len(each) < 20 for each in (partition, offset))
        if not is_good or int(partition) in found:
            raise ValueError(f"{pair[:40]!r} is not PARTITION:OFFSET")
        found[int(partition)] = int(offset)
    return found


def wrong_offsets(text: str) -> str:
    """Returns what is wrong with offsets; empty if nothing is."""
    try:
        read_offsets(text)
    except ValueError as error:
        return str(error)
    return ""
