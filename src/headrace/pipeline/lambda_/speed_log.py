"""Reads the log for the speed layer: where it ends, and the records since the last micro-batch.

The log is asked for the ends of its partitions before every micro-batch, and for its partitions once per second. It is
an error, ``DataLost``, if

- a topic or partition that was read is gone, or a topic was deleted and created again;
- a partition that was not read yet does not begin at offset 0;
- a partition ends before what was read of it, for 15 seconds. For a moment this is normal: a new leader may not know
  its high watermark yet.

Records that retention deleted before they were read are noticed when they are read (``spark.source.range_reader``).

Versions that read the same topics share the answers and the records (``version.shared_log``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.offsets import by_partition, by_topic, offset_at
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.range_reader import COLUMNS, RangeReader, spark_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.client.types import TopicPartition
    from headrace.pipeline.progress.ranges import OffsetRange
    from headrace.pipeline.serving.catalog import Offsets
    from headrace.pipeline.version.context import RunContext

_LIST_PARTITIONS_EVERY_MS = 1_000
_IS_LOST_AFTER_MS = 15_000
#: At most this many bytes are read in the driver; larger ranges are read by Spark's tasks.
_MAX_BYTES_IN_DRIVER = 64 << 20


class SpeedLog:
    """
    :param which_topics: the option of Spark's source that selects the topics.
    :ivar asked_ms: the time of day at which the log was asked for the last ``ends``.
    """

    def __init__(self, context: RunContext, which_topics: Mapping[str, str], *, with_headers: bool) -> None:
        self._options = SourceOptions.parse({**context.log_options, **which_topics}, is_stream=False)
        self._clock = context.clock
        self._columns = (*COLUMNS, "headers") if with_headers else COLUMNS
        self._shared_logs = context.shared_logs
        self._log = self._shared_logs.open(self._options, self._columns, self._clock)
        self.asked_ms = 0
        self._reader: RangeReader | None = None
        self._known_partitions: list[TopicPartition] = []
        self._listed_ms: int | None = None
        self._is_closed = False
        self._short_since_ms: dict[TopicPartition, int] = {}

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._shared_logs.close(self._log)
        self.close_reader()

    def close_reader(self) -> None:
        """Closes the connection, after a failure or at the end. The next read opens a new one."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics, as of the last call of ``ends``. Empty texts if the brokers have no topic ids."""
        return self._log.topic_ids()

    # ----------------------------------------------------------------------------------------------- what is new

    def ends(self, read: Offsets) -> Offsets:
        """The ends of all partitions, never before what was read.

        :raises DataLost: if the log no longer has what was read of it.
        """
        now_ms = self._clock.monotonic_ms()
        if self._listed_ms is None or now_ms - self._listed_ms >= _LIST_PARTITIONS_EVERY_MS:
            self._known_partitions = self._partitions(read)
            self._listed_ms = now_ms
        ends, self.asked_ms = self._log.latest(self, self._known_partitions)
        for partition, end in ends.items():
            done = offset_at(read, partition)
            if end < done:
                self._check_short(partition, end, done, now_ms)
            else:
                self._short_since_ms.pop(partition, None)
        return by_topic({partition: max(end, offset_at(read, partition)) for partition, end in ends.items()})

    def _partitions(self, read: Offsets) -> list[TopicPartition]:
        try:
            partitions = self._log.partitions(self)
        except DataLost:
            self._shared_logs.forget(self._log)
            raise
        known = set(by_partition(read))
        for partition in sorted(known - set(partitions)):
            raise DataLost(
                f"{partition} no longer exists, but the view has counted its records: apply the view again without it"
            )
        for partition, first in self._log.earliest(
            sorted(set(partitions) - known - set(self._known_partitions))
        ).items():
            if first > 0:
                raise DataLost(
                    f"{partition} is new to this view but begins at offset {first}: the log has deleted "
                    "the records before that"
                )
        return partitions

    def _check_short(self, partition: TopicPartition, end: int, done: int, now_ms: int) -> None:
        since_ms = self._short_since_ms.setdefault(partition, now_ms)
        if now_ms - since_ms >= _IS_LOST_AFTER_MS:
            raise DataLost(f"{partition} ends at offset {end}, but the view has read it up to {done}")

    # ------------------------------------------------------------------------------------------------- its records

    def records(self, ranges: Sequence[OffsetRange]) -> pa.Table | None:
        """The records of these ranges; None if they are too large for this process.

        :raises DataLost: if the log no longer has them.
        """
        shared = self._log.records(ranges)
        if shared is not None:
            self.close_reader()  # it would go on to fetch ahead
            return pa.Table.from_batches(shared, spark_arrow_schema(self._columns))
        if self._reader is None:
            self._reader = RangeReader(self._options, columns=self._columns)
        batches, size_bytes = [], 0
        for batch in self._reader.read(ranges):
            batches.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > _MAX_BYTES_IN_DRIVER:
                self.close_reader()
                return None
        return pa.Table.from_batches(batches, spark_arrow_schema(self._columns))
