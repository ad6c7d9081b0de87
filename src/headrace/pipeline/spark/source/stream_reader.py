"""``spark.readStream``: how far a stream is, how far it goes next, and what it reads between.

An offset of the stream is, as in Spark's connector, ``{"topic": {"0": next_offset}}``: it is what Spark writes to the
checkpoint and shows in the progress of a query. Spark asks in turn, in one process that lives as long as the query::

    initialOffset()              once, unless there is a checkpoint
    latestOffset(start, limit)   before each micro-batch; the start itself says that there is nothing to do
    partitions(start, end)       what the tasks of the micro-batch read
    commit(end)                  when a micro-batch is done for good

``maxOffsetsPerTrigger`` is shared among partitions in proportion to what they have waiting. ``minOffsetsPerTrigger``
holds a micro-batch back until there is enough, or the last one is ``maxTriggerDelay`` ago; the first is not held back.
With the trigger ``availableNow`` the ends are taken once, and the minimum does not count.

A partition that appears is read from its first offset. One that vanishes, one whose log begins behind where the stream
is, or one that ends before it (the topic was deleted and made anew) is lost data: an error, or with
``failOnDataLoss=false`` a warning. In the last case the stream goes on at the start of the new log. A topic that was
made anew and is longer than the old one already is known by its id, as long as the query runs; the checkpoint has no
ids.

``commitGroup`` names a consumer group that is told the end of each micro-batch that is done, so that every tool sees
how far the query is behind. The group is written to, never read: what counts is the checkpoint. Spark commits a
micro-batch only when there is another one; but when it asks how far to go next, all before the start is done, so the
group is told then, and stands where the query does even while nothing comes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.client.errors import HeadraceError, UnknownTopic
from headrace.client.types import TopicPartition
from headrace.pipeline.progress.offsets import by_topic
from headrace.pipeline.progress.ranges import OffsetRange, share_out, split
from headrace.pipeline.spark.options import shared_client_options
from headrace.pipeline.spark.source.data_source import RangePartition
from headrace.pipeline.spark.source.log_offsets import LogOffsets, Offsets
from headrace.pipeline.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from headrace.client.admin.sync_admin import Admin

logger = getLogger(__name__)
#: As Spark keeps it.
StreamOffset = dict[str, dict[str, int]]


def to_stream_offset(offsets: Mapping[TopicPartition, int]) -> StreamOffset:
    return {
        topic: {str(at): next_offset for at, next_offset in those.items()} for topic, those in by_topic(offsets).items()
    }


def from_stream_offset(offset: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, partitions in offset.items()
        for partition, number in partitions.items()
    }


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """:param now_s: seconds that only go forward."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._columns = columns
        self._now_s = now_s
        self._log = LogOffsets(options)
        #: Where a query with the trigger availableNow ends.
        self._target: Offsets | None = None
        self._triggered_s = -math.inf
        self._newest: Offsets | None = None
        self._admin: Admin | None = None
        self._told: StreamOffset | None = None

    # -- how far

    def initialOffset(self) -> StreamOffset:  # noqa: N802  Spark's name, here and below
        return to_stream_offset(self._log.resolve(self._options.start, self._log.partitions(), is_start=True))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        is_lenient = not self._options.fail_on_data_loss
        self._target = self._log.latest(self._log.partitions(skip_missing=is_lenient))

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        self._tell_group(start)
        starts = from_stream_offset(start)
        ends = self._newest = dict(self._target) if self._target is not None else self._ends(starts)
        begins = self._begins(starts, ends)
        waiting = {place: max(0, end - begins[place]) for place, end in ends.items()}
        if not isinstance(limit, ReadAllAvailable):
            if self._is_to_wait(sum(waiting.values())):
                return start
            most = self._options.max_offsets_per_trigger
            if most is not None and sum(waiting.values()) > most:
                shares = share_out(waiting, most)
                # A log that is shorter than the stream was goes back to where it ends.
                ends = {place: min(end, begins[place] + shares[place]) for place, end in ends.items()}
        if any(waiting.values()):
            self._triggered_s = self._now_s()
        return to_stream_offset(ends)

    def _is_to_wait(self, waiting: int) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or waiting >= least:
            return False
        return (self._now_s() - self._triggered_s) * 1000 < self._options.max_trigger_delay_ms

    def _ends(self, starts: Offsets) -> Offsets:
        try:
            return self._log.latest(self._log.partitions())
        except UnknownTopic as error:
            self._log.lost(f"{error}, but the stream has read of it")
        # What is gone stays where it was, so that it is noticed if it comes back shorter.
        return starts | self._log.latest(self._log.partitions(skip_missing=True))

    def _begins(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Where each partition goes on: where the stream is; new ones, and those made anew, at their start."""
        fresh = [place for place, end in sorted(ends.items()) if starts.get(place, end + 1) > end]
        for place in fresh:
            if place in starts:
                self._log.lost(f"{place} ends at {ends[place]} now, but the stream has read it up to {starts[place]}")
        return {place: starts[place] for place in ends if place in starts} | self._log.earliest(fresh)

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """The ends as they were seen last, without asking again."""
        return None if self._newest is None else to_stream_offset(self._newest)

    # -- what to read

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        ranges = self.ranges(from_stream_offset(start), from_stream_offset(end))
        options = self._options
        pieces = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
        return [RangePartition(one) for one in pieces]

    def ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        """
        :raises DataLost: if some of it is there no more, and that is an error by the options.
        """
        for place in sorted(starts.keys() - ends.keys()):
            self._log.lost(f"{place} is gone; the stream has read it up to {starts[place]}")
        if starts == ends:
            return []
        begins = self._begins(starts, ends)
        to_read = {place: end for place, end in sorted(ends.items()) if begins[place] < end}
        firsts = self._log.earliest(to_read)
        ranges = []
        for place, end in to_read.items():
            if place not in starts and begins[place] > 0:
                self._log.lost(f"{place} is new and begins at {begins[place]} already")
            elif begins[place] < firsts[place]:
                self._log.lost(f"{place} begins at {firsts[place]} now, but the stream is at {begins[place]}")
            ranges.append(OffsetRange(*place, max(begins[place], firsts[place]), end))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from headrace.pipeline.spark.source.range_reader import read_range

        assert isinstance(partition, RangePartition)
        yield from read_range(self._options, partition.wanted, columns=self._columns)

    # -- the end

    def commit(self, end: StreamOffset) -> None:
        self._tell_group(end)

    def _tell_group(self, done: StreamOffset) -> None:
        group = self._options.commit_group
        if group is None or done == self._told:
            return
        try:
            if self._admin is None:
                from headrace.client.admin.sync_admin import Admin  # a process starts for every stream; most need none

                self._admin = Admin(config=shared_client_options(self._options.client))
            self._admin.alter_group_offsets(group, from_stream_offset(done)).all()
            self._told = done
        except HeadraceError as error:  # what counts is the checkpoint: the next one may succeed
            logger.warning("the progress of the stream was not committed to the group %s: %s", group, error)

    def stop(self) -> None:
        self._log.close()
        if self._admin is not None:
            self._admin.close()
