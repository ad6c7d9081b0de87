"""Finds late events: those that the watermark of a source leaves out, in ways that do not use Spark's streams.

An event is late if an earlier record of its partition has a time that is more than the delay after the event's time.
So the log alone says which events are late, and not the batches in which it was read: a replay leaves out the same
events. An event without a time is never late.

Spark's streams compare an event with the largest time of all partitions at the last micro-batch, and drop only what
would change a group that has ended. Both leave out nothing that arrives within the delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.project.definition import duration_ms
from headrace.pipeline.project.source_definition import Watermark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The column that says whether an event is late.
LATE = "_late"
#: The columns that an event needs besides its time.
PLACE = ("_topic", "_partition", "_offset")
#: A topic and a partition.
Place = tuple[str, int]


class LateRows(NamedTuple):
    """
    :ivar is_late: for each row.
    :ivar largest: the largest time of each partition after these rows, in microseconds.
    """

    is_late: list[bool]
    largest: dict[Place, int]


def late_rows(rows: pa.Table, watermark: Watermark, largest: Mapping[Place, int]) -> LateRows:
    """Finds the late events of a micro-batch.

    :param rows: good rows with the columns of ``PLACE``.
    :param largest: the largest time of each partition before these rows.
    """
    delay_us = 1000 * duration_ms(watermark.delay)
    after, is_late = dict(largest), [False] * rows.num_rows
    topics, partitions, offsets = (rows.column(name).to_pylist() for name in PLACE)
    times = arrow_us(rows.column(watermark.column))
    for at in sorted(range(rows.num_rows), key=offsets.__getitem__):
        time, place = times[at], (topics[at], partitions[at])
        if time is None:
            continue
        known = after.get(place, time)
        is_late[at] = time < known - delay_us
        after[place] = max(known, time)
    return LateRows(is_late, after)


def with_late(good: DataFrame, watermark: Watermark) -> DataFrame:
    """All good rows from the start of the log, with ``LATE``. For batches only."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    topic, partition, offset = PLACE
    earlier = Window.partitionBy(topic, partition).orderBy(offset).rowsBetween(Window.unboundedPreceding, -1)
    time = spark_us(F.col(_quoted(watermark.column)))
    is_late = time < F.max(time).over(earlier) - F.lit(1000 * duration_ms(watermark.delay))
    return good.withColumn(LATE, F.coalesce(is_late, F.lit(False)))


def arrow_us(column: pa.ChunkedArray) -> list[int | None]:
    """Times or dates as microseconds since 1970."""
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    values: list[int | None] = column.cast(pa.timestamp("us", zone)).cast(pa.int64()).to_pylist()
    return values


def spark_us(time: Column) -> Column:
    """A time or date as microseconds since 1970."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.unix_micros(time.cast("timestamp"))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
