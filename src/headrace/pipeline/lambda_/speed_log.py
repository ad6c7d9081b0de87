"""What is new in the log since a point, and its records: the speed layer's side of the log.

The log is asked where its partitions end before every micro-batch, and which partitions there are once a second. What
a view counts on must still be there, so it is an error, ``DataLost``, if

- a topic or partition that has been read is gone, or a topic of that name was made anew;
- a partition that nobody has read yet does not begin at its first record;
- a partition ends before what has been read of it. A new leader may not know for a moment how far its log counts, so
  that has to stay so for a while.

What retention took before it was read is found by who reads it (``reader``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.offsets import by_partition, by_topic, offset_at
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.source.range_reader import COLUMNS, RangeReader, spark_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.client.types import TopicPartition
    from headrace.pipeline.progress.ranges import OffsetRange
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.serving.catalog import Offsets
    from headrace.runtime.clock import Clock

_LOOK_FOR_PARTITIONS_MS = 1_000
_IS_LOST_AFTER_MS = 15_000
#: Records that are read here, at most; more of them are for Spark's tasks.
_MAX_BYTES_HERE = 64 << 20


class SpeedLog:
    def __init__(
        self, log_options: Mapping[str, str], definition: ViewDefinition, clock: Clock, *, with_headers: bool
    ) -> None:
        self._options = SourceOptions.parse({**log_options, **definition.which_topics}, is_stream=False)
        self._clock = clock
        self._columns = (*COLUMNS, "headers") if with_headers else COLUMNS
        self._log = LogOffsets(self._options)
        self._reader: RangeReader | None = None
        self._places: list[TopicPartition] = []
        self._looked_ms: int | None = None
        self._short_since_ms: dict[TopicPartition, int] = {}

    def close(self) -> None:
        self._log.close()
        self.forget()

    def forget(self) -> None:
        """After a failure: the next one to read opens a new connection."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()

    # ----------------------------------------------------------------------------------------------- what is new

    def ends(self, read: Offsets) -> Offsets:
        """Of all partitions, never before what has been read.

        :raises DataLost: if the log has not all any more that was read of it.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_FOR_PARTITIONS_MS:
            self._places = self._partitions(read)
            self._looked_ms = now_ms
        ends = self._log.latest(self._places)
        for place, end in ends.items():
            done = offset_at(read, place)
            if end < done:
                self._check_short(place, end, done, now_ms)
            else:
                self._short_since_ms.pop(place, None)
        return by_topic({place: max(end, offset_at(read, place)) for place, end in ends.items()})

    def _partitions(self, read: Offsets) -> list[TopicPartition]:
        places = self._log.partitions()
        known = set(by_partition(read))
        for place in sorted(known - set(places)):
            raise DataLost(f"{place} is gone, and the view counts what was in it: apply the view again without it")
        for place, first in self._log.earliest(set(places) - known - set(self._places)).items():
            if first > 0:
                raise DataLost(f"{place} is new to this view and begins at {first}: what was before that is gone")
        return places

    def _check_short(self, place: TopicPartition, end: int, done: int, now_ms: int) -> None:
        since_ms = self._short_since_ms.setdefault(place, now_ms)
        if now_ms - since_ms >= _IS_LOST_AFTER_MS:
            raise DataLost(f"{place} ends at {end}, and the view counts what was in it up to {done}")

    # ------------------------------------------------------------------------------------------------- its records

    def records(self, ranges: Sequence[OffsetRange]) -> pa.Table | None:
        """All of them; None if they are too much for this process.

        :raises DataLost: if the log does not have them any more.
        """
        if self._reader is None:
            self._reader = RangeReader(self._options, columns=self._columns)
        batches, size_bytes = [], 0
        for batch in self._reader.read(ranges):
            batches.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > _MAX_BYTES_HERE:
                self.forget()
                return None
        return pa.Table.from_batches(batches, spark_arrow_schema(self._columns))
