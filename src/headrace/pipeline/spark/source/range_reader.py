"""Reads ranges of the log into Arrow batches: exactly the records with offsets in ``[start, end)``.

Record batches are fetched ahead in the background while compiled kernels decode earlier ones on this thread. No Python
object is created per record. The kernels leave out records outside of the range.

In the driver, the speed layer keeps a :class:`RangeReader` open. A task reads one range.

A range ends when the position has reached its end, not when a record with the last offset has arrived: the last offsets
may have no record, because of markers of transactions, aborted records or compaction. The consumer's position moves
past all of these. If the position does not move, the log is asked where it begins and ends now. If the range is outside
of the log, its data is lost. If it is inside and nothing arrives for ``kafkaConsumer.pollTimeoutMs``, ``KafkaTimeout``
is raised, so that no task waits forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.arrow.reading import HEADERS_TYPE, RecordRange, decode_batches
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.sync_consumer import Consumer
from headrace.client.errors import KafkaTimeout, OffsetOutOfRange, error_for
from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.source.log_offsets import consumer_for, report_loss
from headrace.pipeline.spark.source.options import SourceOptions

#: Bytes per fetch; more than a consumer uses that waits for single records.
_FETCH_BYTES = 8 << 20
#: Bytes per Arrow batch: enough that the cost per batch is small, and few enough for the CPU caches on both sides.
_BATCH_BYTES = 4 << 20
#: How long a poll waits before the position is checked again.
_POLL_MS = 50
#: How long nothing may arrive before the log is asked where it begins and ends.
_CHECK_LOG_AFTER_MS = 1_000

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
#: The columns of a topic without headers.
COLUMNS = tuple(_TYPES)[:-1]


def spark_arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of these columns, with the types of Spark's connector."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


def read_range(
    options: SourceOptions,
    wanted: OffsetRange,
    columns: tuple[str, ...] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Reads the range of one Spark task.

    :raises DataLost: if the log no longer has all of it, and ``failOnDataLoss`` is true.
    """
    with RangeReader(options, columns=columns) as reader:
        yield from reader.read([wanted])


class RangeReader:
    """Reads ranges of different partitions, and keeps its consumer for the next call.

    If the next ranges begin where the last ones ended, the records that were fetched ahead are used.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        columns: tuple[str, ...] = COLUMNS,
        consumer: Consumer | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._columns = columns
        self._now_s = now_s
        self._consumer = consumer or consumer_for(
            options, max_partition_fetch_bytes=_FETCH_BYTES, client_id="headrace-spark"
        )
        #: The position of the consumer in partitions that were read to the end of their range.
        self._positions: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def table(self, ranges: Iterable[OffsetRange]) -> pa.Table:
        """The records of all ranges in one table."""
        return pa.Table.from_batches(self.read(ranges), spark_arrow_schema(self._columns))

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """
        :raises DataLost: if the log no longer has all of it, and ``failOnDataLoss`` is true.
        """
        wanted = {one.topic_partition: one for one in ranges if one.size > 0}
        self._begin(wanted)
        moved_s = asked_s = self._now_s()
        left = {partition: one.start for partition, one in wanted.items()}
        while left:
            try:
                batches = self._consumer.poll_batches(_POLL_MS, max_bytes=_BATCH_BYTES)
            except OffsetOutOfRange:
                batches, reached = [], self._skip_lost(wanted, left)
            else:
                reached = {partition: self._consumer.position(partition) for partition in left}
            yield from self._decoded(batches, wanted)
            now_s = self._now_s()
            if reached == left and (now_s - asked_s) * 1000 > _CHECK_LOG_AFTER_MS:
                reached, asked_s = self._skip_lost(wanted, left), now_s
            if reached != left:
                moved_s = asked_s = now_s
            elif (now_s - moved_s) * 1000 > self._options.poll_timeout_ms:
                raise self._too_long(wanted, left)
            left = self._unfinished(wanted, reached)

    def _begin(self, wanted: Mapping[TopicPartition, OffsetRange]) -> None:
        self._consumer.assign(wanted)
        if wanted:
            self._consumer.resume(*wanted)
        for partition, one in wanted.items():
            if self._positions.get(partition) != one.start:
                self._consumer.seek(partition, one.start)
        self._positions = {}

    def _unfinished(
        self, wanted: Mapping[TopicPartition, OffsetRange], reached: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        left = {partition: at for partition, at in reached.items() if at < wanted[partition].end}
        done = reached.keys() - left.keys()
        # Not ``reached``: if data is lost, that is not the position of the consumer.
        self._positions |= {partition: self._consumer.position(partition) for partition in done}
        if left and done:
            self._consumer.pause(*done)
        return left

    def _skip_lost(
        self, wanted: Mapping[TopicPartition, OffsetRange], left: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The positions to continue from, after lost records. The end of the range if the log has no more of it."""
        firsts, lasts = self._consumer.beginning_offsets(*left), self._consumer.end_offsets(*left)
        reached = dict(left)
        for partition, position in left.items():
            first, last, end = firsts[partition], lasts[partition], wanted[partition].end
            if first > position:
                self._lost(partition, position, min(first, end), f"the log begins at offset {first} now")
                self._consumer.seek(partition, first)
                reached[partition] = first
            elif last < end:
                self._lost(partition, max(position, last), end, f"the log ends at offset {last} now")
                reached[partition] = end
        return reached

    def _lost(self, partition: TopicPartition, start: int, end: int, why: str) -> None:
        what = f"offsets {start} to {end - 1} of {partition} are gone: {why}"
        report_loss(what, is_error=self._options.fail_on_data_loss)

    def _too_long(
        self, wanted: Mapping[TopicPartition, OffsetRange], left: Mapping[TopicPartition, int]
    ) -> KafkaTimeout:
        partition, position = next(iter(left.items()))
        return KafkaTimeout(
            f"no record of {wanted[partition]} arrived after offset {position} for {self._options.poll_timeout_ms} ms "
            "(kafkaConsumer.pollTimeoutMs)"
        )

    def _decoded(
        self, batches: list[BatchToRead], wanted: Mapping[TopicPartition, OffsetRange]
    ) -> Iterator[pa.RecordBatch]:
        last_offsets = {partition: one.end - 1 for partition, one in wanted.items()}
        limits = RecordRange(last_offsets)
        while batches:
            decoded = decode_batches(
                batches,
                include_headers="headers" in self._columns,
                check_crcs=self._consumer.config.check_crcs,
                wanted=limits,
            )
            if decoded.records.num_rows:
                yield as_spark(decoded.records, self._columns)
            if decoded.error is not None and not decoded.batches:
                partition, header = batches[0].partition, batches[0].batch.header
                where = f"the batch of {partition} at offsets {header.base_offset} to {header.last_offset}"
                raise error_for(decoded.error.code, f"{where} cannot be read: {decoded.error}") from decoded.error
            batches = batches[decoded.batches :]


def as_spark(records: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns of the client in the order and types of Spark. Bytes are not copied."""
    arrays = [_column(records, name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=spark_arrow_schema(columns))


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    match name:
        case "topic":
            return _topics(records.column(name))
        case "timestampType":
            return records.column("timestamp_type").cast(_TYPES[name])
        case "headers":
            return _nullable(records.column(name))
    return records.column(name).cast(_TYPES[name])


def _topics(topics: pa.DictionaryArray) -> pa.Array:
    if len(topics.dictionary) == 1:
        return pa.repeat(topics.dictionary[0], len(topics))
    return topics.dictionary_decode()


def _nullable(headers: pa.ListArray) -> pa.Array:
    """The same memory with another type: Spark declares that keys of headers may be NULL."""
    assert headers.type == HEADERS_TYPE
    entries = headers.values
    loose = pa.StructArray.from_arrays([entries.field(0), entries.field(1)], fields=list(_HEADERS.value_type))
    return pa.Array.from_buffers(_HEADERS, len(headers), [None, headers.buffers()[1]], 0, headers.offset, [loose])
