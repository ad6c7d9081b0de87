"""Writes the rows of a DataFrame to topics, as Arrow batches that compiled kernels encode.

Each task has its own producer, which is idempotent and waits for all replicas. By default rows are written at least
once: a task that is tried again writes its rows again. With ``transactionalIdPrefix`` readers with ``read_committed``
see each row exactly once: ``exactly_once.py``.

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
from headrace.pipeline.spark.sink.exactly_once import TaskResult
from headrace.pipeline.spark.sink.options import SinkOptions
from headrace.pipeline.spark.worker_login import kept_login

#: Spark's batches are small, so they are combined to this size for the producer.
_STEP_BYTES = 4 << 20
_COLUMNS = ("value", "key", "partition", "timestamp", "headers")
#: The properties of a micro-batch that Spark passes to its tasks.
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """The records that one task has written."""

    row_count: int
    #: None without transactions.
    task_result: TaskResult | None = None


class _Sink:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @classmethod
    def for_schema(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """
        :raises BadOption: if the options or columns cannot be used.
        """
        if overwrite:
            raise BadOption("a log cannot be overwritten: use mode append")
        return cls(SinkOptions.parse(options, schema))

    def __reduce__(self) -> tuple[type[Self], tuple[SinkOptions]]:
        """Spark pickles a sink for its tasks, and for the commit of a batch. The copies have a login of their own."""
        login = kept_login(self._options.client, self._options.worker_login)
        return type(self), (self._options.for_workers(login),)

    def _write(self, rows: Iterator[pa.RecordBatch], task: int, batch: MicroBatch | None) -> Written:
        topic = self._options.topic
        if self._options.transactional_id_prefix is None:
            with Producer(config=self._options.client) as producer:
                return Written(send_rows(producer, topic, rows))

        def send(producer: Producer, its_rows: Iterator[pa.RecordBatch], begin: Callable[[str], object]) -> int:
            return send_rows(producer, topic, its_rows, before_first=begin)

        return Written(*exactly_once.write_task(self._options, task, batch, rows, send))


class BatchSink(_Sink, DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._write(iterator, _task().partitionId(), None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once.commit(self._options, _task_results(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once.abort(self._options, _task_results(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        batch_id, query_id = task.getLocalProperty(_BATCH_ID), task.getLocalProperty(_QUERY_ID)
        assert batch_id is not None, "Spark sets the batch id of a micro-batch"
        assert query_id is not None, "Spark sets the query id of a micro-batch"
        return self._write(iterator, task.partitionId(), MicroBatch(query_id, int(batch_id)))

    # The batch id is not used here: the tasks know it already and put it into their results.

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        exactly_once.commit(self._options, _task_results(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        exactly_once.abort(self._options, _task_results(messages))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write is called in a task"
    return task


def _task_results(messages: Iterable[WriterCommitMessage | None]) -> list[TaskResult]:
    return [one.task_result for one in messages if isinstance(one, Written) and one.task_result is not None]


# -- rows to a producer


def send_rows(
    producer: Producer,
    topic: str | None,
    batches: Iterable[pa.RecordBatch],
    *,
    before_first: Callable[[str], object] = lambda _: None,
) -> int:
    """Sends all rows, waits until they are acknowledged, and returns their number.

    :param topic: the topic of all rows; None if the rows have a column topic.
    :param before_first: called with the topic of the first row before it is sent.
    :raises HeadraceError: if some rows could not be delivered.
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
    rows = table.select([name for name in _COLUMNS if name in table.column_names and _is_record_column(table, name)])
    if topic is not None:
        yield topic, rows
        return
    topics = table.column("topic")
    if topics.null_count:
        raise ValueError("a row has no topic: its column topic is NULL, and the option topic is not set")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, name))


def _is_record_column(table: pa.Table, name: str) -> bool:
    """A column timestamp of another type is the user's own, and does not set the timestamp of the record."""
    kind = table.schema.field(name).type
    return name != "timestamp" or bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
