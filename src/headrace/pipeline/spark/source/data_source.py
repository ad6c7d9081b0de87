"""The data source ``headrace``: reads and writes Kafka topics as DataFrames, without a jar.

::

    from headrace.pipeline import register

    register(spark)
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    clicks = reader.option("subscribe", "clicks").load()

Columns and options are those of Spark's Kafka connector, so a program only changes the name of the format:
``options.py`` lists the options for reading, ``spark/sink/options.py`` those for writing.

Spark creates a :class:`HeadraceSource` in several Python processes: one that plans, one that runs a stream, and those
of the tasks. Objects are pickled between them. So the objects here contain only options and numbers, and open clients
when they need them. Each process imports this file first, so clients and Arrow are imported only where they are used.

Tried and dropped: filter pushdown (``spark.sql.python.filterPushdown.enabled``). Spark 4.3 keeps one reader per
``load()``, so the filters of one query also applied to the next: after ``df.where("partition = 1")``, ``df.count()``
counted partition 1 only. Use ``startingTimestamp``, ``endingOffsets`` and similar options to read less.

Spark does not tell the source which columns a query uses, so all columns are sent from Python to the JVM. A query is
faster if it names the columns that it needs, ``.schema("value BINARY")``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
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
from headrace.pipeline.spark.worker_login import kept_login

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from headrace.pipeline.spark.sink.writers import BatchSink, StreamSink
    from headrace.pipeline.spark.source.log_offsets import LogOffsets
    from headrace.pipeline.spark.source.stream_reader import StreamReader


class HeadraceSource(DataSource):
    #: Whether a reader was made from the options. Then the object is pickled only for tasks.
    _is_planned = False

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        if self._is_planned:
            state["options"] = options = copy(self.options)
            for name in [name for name in options if name.lower().startswith("kafka.sasl.")]:
                del options[name]
        return state

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        return spark_schema(include_headers=str(self.options.get("includeHeaders", "false")).lower() == "true")

    def reader(self, schema: StructType) -> LogReader:
        self._is_planned = True
        return LogReader(SourceOptions.parse(self.options, is_stream=False), self._columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  Spark's name
        from headrace.pipeline.spark.source.stream_reader import StreamReader

        self._is_planned = True
        return StreamReader(SourceOptions.parse(self.options, is_stream=True), self._columns(schema))

    def _columns(self, schema: StructType) -> tuple[str, ...]:
        """
        :raises BadOption: if ``.schema()`` has a column that a topic does not have.
        """
        known = spark_schema(include_headers=True)
        types = {one.name: one.dataType.simpleString() for one in known.fields}
        for one in schema.fields:
            if types.get(one.name) != one.dataType.simpleString():
                raise BadOption(
                    f"a topic has no column {one.name} {one.dataType.simpleString()}; .schema() may have any of "
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
    """The range that one task reads, and the login with which it reads."""

    def __init__(self, offset_range: OffsetRange, login: Mapping[str, str]) -> None:
        super().__init__(tuple(offset_range))
        self.login = dict(login)

    def __repr__(self) -> str:
        return f"RangePartition({self.offset_range})"

    @property
    def offset_range(self) -> OffsetRange:
        return OffsetRange(*self.value)


class LogReader(DataSourceReader):
    """The reader of ``spark.read``: plans in a process of the driver, reads in the processes of the tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def __reduce__(self) -> tuple[type[LogReader], tuple[SourceOptions, tuple[str, ...]]]:
        """Spark pickles the reader for its tasks. They get their login with their range."""
        return LogReader, (self._options.for_workers(), self._columns)

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
        login = kept_login(self._options.client, self._options.worker_login) if pieces else {}
        return [RangePartition(one, login) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from headrace.pipeline.spark.source.range_reader import read_range

        # If there is nothing to read, Spark passes a partition of its own.
        if isinstance(partition, RangePartition):
            yield from read_range(self._options.with_login(partition.login), partition.offset_range, self._columns)


def plan_batch(log: LogOffsets, options: SourceOptions) -> list[OffsetRange]:
    """The ranges that a batch reads, from the options and the log.

    :raises DataLost: if the log begins after the given start, or ends before the given end.
    """
    partitions = log.partitions()
    starts, ends = (
        log.resolve(options.start, partitions, is_start=True),
        log.resolve(options.end, partitions, is_start=False),
    )
    firsts, lasts = log.earliest(partitions), log.latest(partitions)
    ranges = []
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        # Records that arrive meanwhile only move the end forward.
        if end > lasts[partition]:
            log.lost(f"{partition} ends at offset {lasts[partition]}, before {end}, which endingOffsets asks for")
        if start < firsts[partition] and start < end:
            log.lost(f"{partition} begins at offset {firsts[partition]}, after {start}, which startingOffsets asks for")
        ranges.append(OffsetRange(*partition, max(start, firsts[partition]), min(end, lasts[partition])))
    return [one for one in ranges if one.size > 0]
