"""The reader of ``spark.readStream``: plans the micro-batches of a stream and reads their records.

An offset of the stream is ``{"topic": {"0": next_offset}}``, as in Spark's connector. Spark writes it to the checkpoint
and shows it in the progress of a query. Spark calls these methods, in one process that lives as long as the query::

    initialOffset()              once, unless there is a checkpoint
    latestOffset(start, limit)   before each micro-batch; returns the start if there is nothing to do
    partitions(start, end)       the ranges that the tasks of the micro-batch read, with a login for the tasks
    commit(end)                  when a micro-batch is done

``maxOffsetsPerTrigger`` is shared among partitions in proportion to what they have waiting. ``minOffsetsPerTrigger``
delays a micro-batch until there are enough offsets, or until the last one is ``maxTriggerDelay`` ago. The first one is
not delayed. With the trigger ``availableNow`` the ends are taken once, and the minimum is ignored.

A new partition is read from its first offset. Data is lost if a partition disappears, if its log begins after the
position of the stream, or if it ends before that (the topic was deleted and created again). Lost data is an error, or a
warning with ``failOnDataLoss=false``; the stream then continues, in the last case at the start of the new log. A topic
that was created again and is already longer than the old one is recognized by its id while the query runs. The
checkpoint has no ids.

``commitGroup`` names a consumer group to which the end of each finished micro-batch is committed, so that every tool
can show the lag. The group is only written, never read: the checkpoint has the position of the stream. Spark calls
``commit`` only when there is a next micro-batch. But when it calls ``latestOffset``, everything before the start is
done. So the group is updated then, and is up to date even while no records arrive.
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
from headrace.pipeline.spark.worker_login import WorkerLogins

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from headrace.client.admin.sync_admin import Admin

logger = getLogger(__name__)
#: The offset of a stream as Spark stores it.
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
    """:param now_s: a monotonic clock in seconds."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._columns = columns
        self._now_s = now_s
        self._log = LogOffsets(options)
        self._logins = WorkerLogins(options.client, options.worker_login)
        #: Where a query with the trigger availableNow ends.
        self._target: Offsets | None = None
        self._triggered_s = -math.inf
        self._newest: Offsets | None = None
        self._admin: Admin | None = None
        self._committed: StreamOffset | None = None

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions, tuple[str, ...]]]:
        """Spark pickles the reader for its tasks. They get their login with their range."""
        return StreamReader, (self._options.for_workers(), self._columns)

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
        self._commit_to_group(start)
        starts = from_stream_offset(start)
        ends = self._newest = dict(self._target) if self._target is not None else self._ends(starts)
        begins = self._begins(starts, ends)
        waiting = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
        if not isinstance(limit, ReadAllAvailable):
            if self._must_wait(sum(waiting.values())):
                return start
            most = self._options.max_offsets_per_trigger
            if most is not None and sum(waiting.values()) > most:
                shares = share_out(waiting, most)
                # If a log is shorter than the position of the stream, its end counts.
                ends = {partition: min(end, begins[partition] + shares[partition]) for partition, end in ends.items()}
        if any(waiting.values()):
            self._triggered_s = self._now_s()
        return to_stream_offset(ends)

    def _must_wait(self, waiting: int) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or waiting >= least:
            return False
        return (self._now_s() - self._triggered_s) * 1000 < self._options.max_trigger_delay_ms

    def _ends(self, starts: Offsets) -> Offsets:
        try:
            return self._log.latest(self._log.partitions())
        except UnknownTopic as error:
            self._log.lost(f"{error}, but the stream has read from it")
        # A partition that is gone keeps its offset, so that it is noticed if it is created again and is shorter.
        return starts | self._log.latest(self._log.partitions(skip_missing=True))

    def _begins(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Returns the first offset per partition: the position of the stream, or the start of partitions that are
        new or shorter.
        """
        fresh = [partition for partition, end in sorted(ends.items()) if starts.get(partition, end + 1) > end]
        for partition in fresh:
            if partition in starts:
                self._log.lost(
                    f"{partition} ends at offset {ends[partition]} now, but the stream has read it up "
                    f"to {starts[partition]}"
                )
        return {partition: starts[partition] for partition in ends if partition in starts} | self._log.earliest(fresh)

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """The ends as last observed. Does not ask the log."""
        return None if self._newest is None else to_stream_offset(self._newest)

    # -- what to read

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        ranges = self.ranges(from_stream_offset(start), from_stream_offset(end))
        options = self._options
        pieces = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
        login = self._logins.login() if pieces else {}
        return [RangePartition(one, login) for one in pieces]

    def ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        """
        :raises DataLost: if the log no longer has all of it, and ``failOnDataLoss`` is true.
        """
        for partition in sorted(starts.keys() - ends.keys()):
            self._log.lost(f"{partition} no longer exists, but the stream has read it up to offset {starts[partition]}")
        if starts == ends:
            return []
        begins = self._begins(starts, ends)
        to_read = {partition: end for partition, end in sorted(ends.items()) if begins[partition] < end}
        firsts = self._log.earliest(to_read)
        ranges = []
        for partition, end in to_read.items():
            if partition not in starts and begins[partition] > 0:
                self._log.lost(f"{partition} is new but begins at offset {begins[partition]}, not at 0")
            elif begins[partition] < firsts[partition]:
                self._log.lost(
                    f"{partition} begins at offset {firsts[partition]} now, but the stream has read it only up "
                    f"to {begins[partition]}"
                )
            ranges.append(OffsetRange(*partition, max(begins[partition], firsts[partition]), end))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from headrace.pipeline.spark.source.range_reader import read_range

        assert isinstance(partition, RangePartition)
        yield from read_range(self._options.with_login(partition.login), partition.offset_range, self._columns)

    # -- the end

    def commit(self, end: StreamOffset) -> None:
        self._commit_to_group(end)

    def _commit_to_group(self, done: StreamOffset) -> None:
        group = self._options.commit_group
        if group is None or done == self._committed:
            return
        try:
            if self._admin is None:
                from headrace.client.admin.sync_admin import Admin  # imported here, because most streams do not need it

                self._admin = Admin(config=shared_client_options(self._options.client))
            self._admin.alter_group_offsets(group, from_stream_offset(done)).all()
            self._committed = done
        except HeadraceError as error:  # the checkpoint has the position; the next commit may succeed
            logger.warning("cannot commit the progress of the stream to the group %s: %s", group, error)

    def stop(self) -> None:
        self._log.close()
        self._logins.close()
        if self._admin is not None:
            self._admin.close()
