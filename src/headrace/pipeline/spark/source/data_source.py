"""The data source ``headrace``: Kafka topics as DataFrames, read and written without a jar.

::

    from headrace.pipeline import register

    register(spark)
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    clicks = reader.option("subscribe", "clicks").load()

Columns and options are those of Spark's Kafka connector, so that a program changes one word: ``source_options.py``
lists the options of reading, ``sink_options.py`` those of writing.

Spark makes a :class:`HeadraceSource` of a query's options in Python processes of its own: one that plans, one that
keeps a stream going, and those of the tasks. What they have in common travels pickled, so the objects here hold options
and numbers, and open clients when they need them; and as each process imports this file first, it imports clients and
Arrow only where they are used.

Tried and dropped: filters that Spark pushes down (``spark.sql.python.filterPushdown.enabled``). Spark 4.3 keeps one
reader per ``load()``, so the filters of one query stayed in force for the next: after ``df.where("partition = 1")`` a
``df.count()`` counted partition 1 alone. ``startingTimestamp``, ``endingOffsets`` and their like narrow what is read.

Spark does not say which columns a query uses: all come from Python to the JVM. A query that wants it faster names those
that it needs, ``.schema("value BINARY")``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipeline.progress.ranges import OffsetRange, split
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from headrace.pipeline.spark.sink.writers import BatchSink, StreamSink
    from headrace.pipeline.spark.source.log_offsets import LogOffsets
    from headrace.pipeline.spark.source.stream_reader import StreamReader


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return spark_schema(include_headers=str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(SourceOptions.parse(self.options, is_stream=False), self._columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  Spark's name
        from headrace.pipeline.spark.source.stream_reader import StreamReader

        return StreamReader(SourceOptions.parse(self.options, is_stream=True), self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        """
        :raises BadOption: if ``.schema()`` was given, and names what a topic has not.
        """
        known = spark_schema(include_headers=True)
        types = {one.name: one.dataType.simpleString() for one in known.fields}
        for one in schema.fields:
            if types.get(one.name) != one.dataType.simpleString():
                raise BadOption(
                    f"a topic has no column {one.name} {one.dataType.simpleString()}; .schema() may name some of "
                    f"{known.simpleString()}"
                )
        return tuple(schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from headrace.pipeline.spark.sink.writers import BatchSink

        return BatchSink.for_schema(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802  Spark's name
        from headrace.pipeline.spark.sink.writers import StreamSink

        return StreamSink.for_schema(self.options, schema, overwrite=overwrite)


def spark_schema(*, include_headers: bool) -> StructType:
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def wanted(self) -> OffsetRange:
        return OffsetRange(*self.value)


class LogReader(DataSourceReader):
    """Of ``spark.read``: plans in the driver's process, reads in those of the tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        from headrace.pipeline.spark.source.log_offsets import LogOffsets

        log = LogOffsets(self._options)
        try:
            ranges = plan_batch(log, self._options)
        finally:
            log.close()
        pieces = split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return [RangePartition(one) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from headrace.pipeline.spark.source.range_reader import read_range

        # Where nothing is to be read, Spark makes up a partition.
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, partition.wanted, self._columns)


def plan_batch(log: LogOffsets, options: SourceOptions) -> list[OffsetRange]:
    """What a batch has to read: from the options, and what the log has.

    :raises DataLost: if the log begins after the start or ends before the end that was given as a number.
    """
    places = log.partitions()
    starts, ends = log.resolve(options.start, places, is_start=True), log.resolve(options.end, places, is_start=False)
    firsts, lasts = log.earliest(places), log.latest(places)
    ranges = []
    for place in places:
        start, end = starts[place], ends[place]
        # What comes while we ask moves the end on, never back.
        if end > lasts[place]:
            log.lost(f"{place} ends at {lasts[place]}, not at {end} as endingOffsets says")
        if start < firsts[place] and start < end:
            log.lost(f"{place} begins at {firsts[place]}, not at {start} as startingOffsets says")
        ranges.append(OffsetRange(*place, max(start, firsts[place]), min(end, lasts[place])))
    return [one for one in ranges if one.size > 0]
