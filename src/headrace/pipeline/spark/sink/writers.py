"""The sink: rows of a DataFrame to topics, as Arrow batches that the kernels encode.

A task has a producer of its own, which is idempotent and waits for all replicas. At least once by default: a task that
is tried again writes its rows again. With ``transactionalIdPrefix`` exactly once for those who read with
``read_committed``: ``exactly_once.py``.

Writing appends; ``mode("overwrite")`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.client.arrow.tables import BlockingArrowDelivery
from headrace.client.producer.sync_producer import Producer
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.sink import exactly_once
from headrace.pipeline.spark.sink.commit_ledger import MicroBatch
from headrace.pipeline.spark.sink.exactly_once import Share
from headrace.pipeline.spark.sink.options import SinkOptions

#: Spark's batches are small; so much of them goes to the producer at a time.
_STEP_BYTES = 4 << 20
_COLUMNS = ("value", "key", "partition", "timestamp", "headers")
#: What Spark tells the tasks of a micro-batch.
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """Of one task."""

    row_count: int
    #: Only with transactions.
    share: Share | None = None


class _Sink:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @classmethod
    def for_schema(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """
        :raises BadOption: if it cannot be written so.
        """
        if overwrite:
            raise BadOption("a log is not overwritten: use mode append")
        return cls(SinkOptions.parse(options, schema))

    def _write(self, rows: Iterator[pa.RecordBatch], task: int, batch: MicroBatch | None) -> Written:
        topic = self._options.topic
        if self._options.transactional_id_prefix is None:
            with Producer(config=self._options.client) as producer:
                return Written(send_rows(producer, topic, rows))

        def send(producer: Producer, its_rows: Iterator[pa.RecordBatch], begin: Callable[[str], object]) -> int:
            return send_rows(producer, topic, its_rows, before_first=begin)

        return Written(*exactly_once.write_share(self._options, task, batch, rows, send))


class BatchSink(_Sink, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._write(iterator, _task().partitionId(), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once.commit(self._options, _shares(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once.abort(self._options, _shares(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        batch_id, query_id = task.getLocalProperty(_BATCH_ID), task.getLocalProperty(_QUERY_ID)
        assert batch_id is not None, "a micro-batch has a number"
        assert query_id is not None, "and belongs to a query"
        return self._write(iterator, task.partitionId(), MicroBatch(query_id, int(batch_id)))

    # The tasks tell the number of their batch themselves, as they have to know it before.

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        exactly_once.commit(self._options, _shares(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        exactly_once.abort(self._options, _shares(messages))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written in tasks"
    return task


def _shares(messages: Iterable[WriterCommitMessage | None]) -> list[Share]:
    return [one.share for one in messages if isinstance(one, Written) and one.share is not None]


# -- rows to a producer


def send_rows(
    producer: Producer,
    topic: str | None,
    batches: Iterable[pa.RecordBatch],
    *,
    before_first: Callable[[str], object] = lambda _: None,
) -> int:
    """Sends all and waits until it is acknowledged; how many rows that were.

    :param topic: for all, unless the rows say it themselves.
    :param before_first: called with its topic before anything is sent.
    :raises HeadraceError: if a part could not be delivered.
    """
    row_count = 0
    waiting: list[BlockingArrowDelivery] = []
    for table in _steps(batches):
        for its_topic, rows in _by_topic(table, topic):
            if not row_count:
                before_first(its_topic)
            waiting.append(producer.send_arrow(its_topic, rows))
            row_count += rows.num_rows
        while waiting and waiting[0].done():
            waiting.pop(0).result()
    for delivery in waiting:
        delivery.result()
    return row_count


def _steps(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size_bytes += batch.nbytes
        if size_bytes >= _STEP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _by_topic(table: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    rows = table.select([name for name in _COLUMNS if name in table.column_names and _is_meant(table, name)])
    if topic is not None:
        yield topic, rows
        return
    topics = table.column("topic")
    if topics.null_count:
        raise ValueError("a row has no topic: its column topic is null, and there is no option topic")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, name))


def _is_meant(table: pa.Table, name: str) -> bool:
    """A column timestamp of another type is somebody's own, and none of the record."""
    kind = table.schema.field(name).type
    return name != "timestamp" or bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
