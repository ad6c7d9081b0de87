"""Searches the partitions of a topic, one after the other, and reports how far it is.

The next batches are fetched while the last ones are searched. Searching runs on a thread, a few megabytes at a time, so
that the console answers other visitors meanwhile. A search ends when all offsets that existed at its begin are read, it
has found enough, its time is up, or somebody stops it. It then knows where each partition would go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Literal

from headrace.client.types import TopicPartition
from headrace.console.cluster.fetching import Fetched, Fetching
from headrace.console.cluster.reader import Ends
from headrace.console.records.batches import RawRecord
from headrace.console.records.criteria import Criteria
from headrace.console.records.matching import Matcher

_FETCH_BYTES = 8 * 1024 * 1024

State = Literal["running", "complete", "enough found", "time is up", "stopped", "failed"]


class Search:
    """One search. ``found()`` runs it.

    :ivar scanned_records, scanned_bytes: what was read, without what lies outside of the wanted offsets.
    :ivar positions: the offset where each partition goes on.
    """

    def __init__(
        self,
        fetching: Fetching,
        topic: str,
        ranges: Mapping[int, range],
        matcher: Matcher,
        *,
        most_records: int,
        seconds: float,
    ) -> None:
        """
        :param ranges: the offsets to search, by partition.
        """
        self._fetching = fetching
        self._topic = topic
        self._ranges = dict(sorted(ranges.items()))
        self._matcher = matcher
        self._most_records = most_records
        self._seconds = seconds
        self._is_stopped = False
        self.state: State = "running"
        self.positions = {partition: offsets.start for partition, offsets in self._ranges.items()}
        self.scanned_records = self.scanned_bytes = self.found_records = 0
        self.began_seconds = self.took_seconds = 0.0

    @property
    def offsets(self) -> int:
        """How many offsets there are to search."""
        return sum(len(offsets) for offsets in self._ranges.values())

    @property
    def offsets_done(self) -> int:
        return sum(
            min(position, offsets.stop) - offsets.start
            for position, offsets in zip(self.positions.values(), self._ranges.values(), strict=True)
        )

    @property
    def unreadable(self) -> int:
        return self._matcher.unreadable

    def stop(self) -> None:
        self._is_stopped = True

    async def found(self) -> AsyncIterator[list[RawRecord]]:
        """Searches, and yields what was found, in portions.

        :raises HeadraceError: if a partition cannot be read.
        """
        loop = asyncio.get_running_loop()
        self.began_seconds = loop.time()
        self.state = "failed"
        for partition, offsets in self._ranges.items():
            async for fetched in self._fetched(partition, offsets):
                some = await asyncio.to_thread(self._searched, partition, fetched, offsets)
                self.took_seconds = loop.time() - self.began_seconds
                if some:
                    yield some
                ended = self._ended()
                if ended is not None:
                    self.state = ended
                    return
        self.took_seconds = loop.time() - self.began_seconds
        self.state = "complete"

    # -- parts

    def _ended(self) -> State | None:
        if self._is_stopped:
            return "stopped"
        if self.found_records >= self._most_records:
            return "enough found"
        return "time is up" if self.took_seconds > self._seconds else None

    async def _fetched(self, partition: int, offsets: range) -> AsyncIterator[Fetched]:
        """Batches of a partition. The next request is sent before the caller searches the last answer."""
        at, position = TopicPartition(self._topic, partition), offsets.start
        request: asyncio.Task[Fetched] | None = None
        try:
            while position < offsets.stop:
                fetched = await (request or asyncio.ensure_future(self._ask(at, position)))
                request = None
                following = max((header.next_offset for header, _ in fetched.batches()), default=None)
                if following is None or following <= position:
                    break  # Only removed records are left before the end.
                position = following
                if position < offsets.stop:
                    request = asyncio.ensure_future(self._ask(at, position))
                yield fetched
            self.positions[partition] = max(self.positions[partition], offsets.stop)
        finally:
            if request is not None:
                request.cancel()

    async def _ask(self, at: TopicPartition, offset: int) -> Fetched:
        found = await self._fetching.fetch({at: offset}, partition_bytes=_FETCH_BYTES, max_bytes=_FETCH_BYTES)
        return found[at]

    def _searched(self, partition: int, fetched: Fetched, offsets: range) -> list[RawRecord]:
        found: list[RawRecord] = []
        room = self._most_records - self.found_records
        for header, batch in fetched.batches():
            position = self.positions[partition]
            if header.last_offset < position:
                continue
            if self._is_stopped or header.base_offset >= offsets.stop:
                break
            for record in self._matcher.of_batch(partition, header, batch, position):
                if record.offset >= offsets.stop or len(found) >= room or self._is_stopped:
                    break
                found.append(record)
            self.scanned_records += header.record_count
            self.scanned_bytes += header.size_bytes
            is_full = len(found) >= room
            self.positions[partition] = found[-1].offset + 1 if is_full else header.next_offset
            if is_full:
                break
        self.found_records += len(found)
        return found


def ranges_of(ends: Mapping[int, Ends], starts: Mapping[int, int], criteria: Criteria) -> dict[int, range]:
    """The offsets to search, by partition.

    :param starts: where partitions begin, because of a time or of an earlier search.
    """
    found: dict[int, range] = {}
    for partition, end in ends.items():
        if end.first_offset is None or end.end_offset is None:
            continue
        start = max(end.first_offset, starts.get(partition, 0), criteria.from_offset or 0)
        stop = end.end_offset if criteria.until_offset is None else min(end.end_offset, criteria.until_offset)
        found[partition] = range(start, max(start, stop))
    return found
