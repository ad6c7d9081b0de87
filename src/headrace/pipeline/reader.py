"""A range of the log to Arrow batches, in a task of Spark: exactly the records with offsets in ``[start, end)``.

Whole batches are fetched ahead in the background while the kernels decode the last ones on this thread; nothing makes
an object of a record. What lies outside, by offset or by time, is left out by the kernel.

A range ends when the position has reached its end, not when a record of the last offset has come: the last offsets may
have none, as they belong to markers of transactions, to aborted records or to what compaction has taken. The consumer's
position goes past all of these. If it goes no further, the log is asked where it begins and ends now. A range that lies
outside is lost data; if it does not and nothing comes for ``kafkaConsumer.pollTimeoutMs``, that is an error, so that no
task waits forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.arrow_reading import HEADERS_TYPE, RecordRange, decode_batches
from headrace.client.errors import KafkaTimeout, OffsetOutOfRange, error_for
from headrace.client.fetch_positions import BatchToRead
from headrace.client.sync_consumer import Consumer
from headrace.pipeline.log_offsets import consumer_for, report_loss
from headrace.pipeline.ranges import Bounds, OffsetRange
from headrace.pipeline.source_options import SourceOptions

#: Of a fetch; larger than what suits a consumer that waits for single records.
_FETCH_BYTES = 8 << 20
#: Of an Arrow batch: enough that what each costs does not count, small enough for the caches on both sides.
_BATCH_BYTES = 4 << 20
#: How long a poll waits before the position is looked at again.
_LOOK_UP_MS = 50
#: How long nothing may come before the log is asked where it begins and ends.
_DOUBT_MS = 1_000

_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def spark_arrow_schema(*, include_headers: bool) -> pa.Schema:
    """The columns of Spark's connector, as Spark wants them in Arrow."""
    return _SCHEMA_WITH_HEADERS if include_headers else _SCHEMA


def read_range(options: SourceOptions, wanted: OffsetRange, bounds: Bounds | None = None) -> Iterator[pa.RecordBatch]:
    """
    :raises DataLost: if the log has not all of it any more, and that is an error by the options.
    """
    if wanted.size == 0:
        return
    consumer = consumer_for(options, max_partition_fetch_bytes=_FETCH_BYTES, client_id="headrace-spark")
    with consumer:
        reading = _Reading(options, consumer, wanted, bounds or Bounds())
        yield from reading.batches()


@dataclass
class _Reading:
    options: SourceOptions
    consumer: Consumer
    wanted: OffsetRange
    bounds: Bounds
    now_s: Callable[[], float] = time.monotonic

    def batches(self) -> Iterator[pa.RecordBatch]:
        place, end = self.wanted.place, self.wanted.end
        self.consumer.assign([place])
        self.consumer.seek(place, self.wanted.start)
        position, moved_s, asked_s = self.wanted.start, self.now_s(), self.now_s()
        while position < end:
            try:
                batches = self.consumer.poll_batches(_LOOK_UP_MS, max_bytes=_BATCH_BYTES)
                reached = self.consumer.position(place)
            except OffsetOutOfRange:
                position = self._where_there_is_more(position)
                continue
            yield from self._decoded(batches)
            if reached > position:
                position, moved_s, asked_s = reached, self.now_s(), self.now_s()
            elif (self.now_s() - moved_s) * 1000 > self.options.poll_timeout_ms:
                raise KafkaTimeout(
                    f"nothing came of {self.wanted} from offset {position} on for {self.options.poll_timeout_ms} ms "
                    "(kafkaConsumer.pollTimeoutMs)"
                )
            elif (self.now_s() - asked_s) * 1000 > _DOUBT_MS:
                position, asked_s = self._where_there_is_more(position), self.now_s()

    def _where_there_is_more(self, position: int) -> int:
        """The position to go on from, or the end if there is nothing more of the range."""
        place, (start, end) = self.wanted.place, (position, self.wanted.end)
        first, last = self.consumer.beginning_offsets(place)[place], self.consumer.end_offsets(place)[place]
        if first > position:
            self._lost(start, min(first, end), f"the log begins at {first} now")
            self.consumer.seek(place, first)
            return first
        if last < end:
            self._lost(max(start, last), end, f"the log ends at {last} now")
            return end
        return position

    def _lost(self, start: int, end: int, why: str) -> None:
        what = f"offsets {start} to {end - 1} of {self.wanted.place} are gone: {why}"
        report_loss(what, is_error=self.options.fail_on_data_loss)

    def _decoded(self, batches: list[BatchToRead]) -> Iterator[pa.RecordBatch]:
        place, include_headers = self.wanted.place, self.options.include_headers
        wanted = RecordRange({place: self.wanted.end - 1}, self.bounds.min_timestamp_ms, self.bounds.max_timestamp_ms)
        check_crcs = self.consumer.config.check_crcs
        while batches:
            decoded = decode_batches(batches, include_headers=include_headers, check_crcs=check_crcs, wanted=wanted)
            if decoded.records.num_rows:
                yield as_spark(decoded.records, self.wanted, include_headers=include_headers)
            if decoded.error is not None and not decoded.batches:
                header = batches[0].batch.header
                where = f"the batch of {place} at offsets {header.base_offset} to {header.last_offset}"
                raise error_for(decoded.error.code, f"{where} cannot be read: {decoded.error}") from decoded.error
            batches = batches[decoded.batches :]


def as_spark(records: pa.RecordBatch, source: OffsetRange, *, include_headers: bool) -> pa.RecordBatch:
    """The client's columns, all of one partition, in Spark's order and types; bytes are not copied."""
    columns = [
        records.column("key"),
        records.column("value"),
        pa.repeat(pa.scalar(source.topic, pa.string()), records.num_rows),
        records.column("partition"),
        records.column("offset"),
        records.column("timestamp").cast(_FIELDS[5].type),
        records.column("timestamp_type").cast(pa.int32()),
    ]
    if include_headers:
        columns.append(_nullable(records.column("headers")))
    return pa.RecordBatch.from_arrays(columns, schema=spark_arrow_schema(include_headers=include_headers))


def _nullable(headers: pa.ListArray) -> pa.Array:
    """The same memory; only that Spark declares keys of headers to be null at times."""
    assert headers.type == HEADERS_TYPE
    entries = headers.values
    loose = pa.StructArray.from_arrays([entries.field(0), entries.field(1)], fields=list(_HEADERS.value_type))
    return pa.Array.from_buffers(_HEADERS, len(headers), [None, headers.buffers()[1]], 0, headers.offset, [loose])
