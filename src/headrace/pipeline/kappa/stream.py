"""Runs a version of a Kappa view as a Spark stream: one stream that maintains one table.

::

    the log -> decode -> the query -> foreachBatch -> table <view>__v<N>           (``sink``)
    checkpoint <checkpoints>/<view>/v<N>      consumer group headrace.<view>.v<N>, which shows the progress

A new version reads from the start of the log, or from a time, while the old version continues. Each version has its own
table, checkpoint and consumer group, so a version that fails, is slow or is wrong does not affect another one. The
catalog says which version readers see.

The serving database has the rows and the offsets up to which they count, in one transaction per batch. The checkpoint
has the state of the query as of the same batches. ``checkpoint`` raises if one of the two is missing or older than the
other.

A topic that was deleted and created again has other records under the same offsets. So the ids of topics are stored
with the offsets and compared when a version starts. While the version runs, its source compares them before each batch.

``run_once`` is the same stream; it ends where the log ended when it started.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Any

from headrace.client.admin.sync_admin import Admin
from headrace.client.errors import HeadraceError, UnknownGroup, UnknownTopic
from headrace.client.types import TopicPartition
from headrace.pipeline.decoding.events import ERROR, decode_frame, event_schema, good_rows
from headrace.pipeline.kappa.batch_counts import count_bad_records
from headrace.pipeline.kappa.batch_reread import BatchReread
from headrace.pipeline.kappa.batch_rows import BatchRows, TargetTable
from headrace.pipeline.kappa.checkpoint import Checkpoint, check_belongs_to
from headrace.pipeline.kappa.hidden_groups import mark_hidden_groups
from headrace.pipeline.kappa.sink import KappaSink
from headrace.pipeline.progress.data_loss import DataLost, check_same_topics, find_data_loss, start_over_advice
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.progress.offsets import by_topic
from headrace.pipeline.project.definition import ViewDefinition, start_ms
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.needed_columns import needed_columns, needed_event_columns, with_columns
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.catalog import Offsets, Progress, Version, VersionEvent
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.serving.catalog_tables.versions import parse_offsets
from headrace.pipeline.serving.tables import create_table, drop_table
from headrace.pipeline.spark.job_progress import records_read, running_jobs_of_group
from headrace.pipeline.spark.options import short_client_options
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from sqlalchemy import Connection


logger = getLogger(__name__)
#: Records per batch of a replay: enough that the cost of a batch is small, and few enough that its rows fit into the
#: driver. A query with groups returns fewer rows than it reads.
_MAX_RECORDS, _MAX_GROUPED_RECORDS = 250_000, 5_000_000
#: A partition with more records than this is read by several tasks. Progress within a batch is known per task.
_MAX_TASK_RECORDS = 500_000
#: After a micro-batch with at most this many records, a stream waits as long as the micro-batch took, and a second at
#: most. So a stream that keeps up with few records does not fill the machine with jobs.
_FEW_RECORDS = 20_000
_LONGEST_PAUSE_MS = 1_000
#: The message of Spark's query status when the stream has read everything.
_WAITING = "Waiting for data to arrive"


class KappaStream(RunningVersion):
    def __init__(self, context: RunContext, version: Version, work: WorkInFlight | None = None) -> None:
        super().__init__(context, version)
        self.work = work or self.work
        self._query: StreamingQuery | None = None
        self._sink: KappaSink | None = None
        self._lag: LagTracker | None = None
        self._stopping = threading.Event()
        self._is_paced = False
        self._reading = 0

    @property
    def group(self) -> str:
        return f"headrace.{self.version.view}.v{self.version.version}"

    @property
    def checkpoint_path(self) -> str:
        return f"{self.context.checkpoints.rstrip('/')}/{self.version.view}/v{self.version.version}"

    # ------------------------------------------------------------------------------------------------ start and stop

    def start(self) -> None:
        self._is_paced = True
        self._start({"processingTime": f"{self.definition.kappa.trigger_ms} milliseconds"})

    def run_once(self) -> None:
        query = self._start({"availableNow": True})
        try:
            query._jsq.awaitTermination()
        except Exception as error:
            raise self.failure() or error from error
        finally:
            self._close()
        self._stopping.set()  # so that ``failure`` does not report the end as a failure
        assert self._lag is not None
        self._lag.reached_the_end()

    def stop(self, timeout_s: float = 30) -> None:
        if self._query is None:
            return
        self._stopping.set()
        if not is_alive(self.context.spark):
            self._end_without_java(timeout_s)
            return
        # Spark waits as long as its own setting says, and raises if that was not long enough.
        stopping = threading.Thread(target=self._ask_to_stop, name=f"stop {self.label}", daemon=True)
        stopping.start()
        stopping.join(timeout_s)
        if self._query.isActive:
            raise TimeoutError(f"{self.label} has not stopped after {timeout_s} s: its batch is still in progress")
        self._close()

    def _end_without_java(self, timeout_s: float) -> None:
        """Waits for the commit of a batch whose rows have already arrived. The version must not start before that."""
        if not self.work.wait_until_idle(timeout_s):
            raise TimeoutError(f"{self.label} has not stopped after {timeout_s} s: its batch is still in progress")
        self._close()

    def _ask_to_stop(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        assert self._query is not None
        with suppress(PySparkException, Py4JError):
            self._query.stop()

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def failure(self) -> BaseException | None:
        query = self._query
        if query is None or self._stopping.is_set() or query.isActive:
            return None
        error = self._sink.error if self._sink is not None else None
        error = (
            error
            or query.exception()
            or HeadraceError(f"the stream of {self.label} ended, but neither Headrace nor an error ended it")
        )
        return find_data_loss(error, start_over_advice(self.version.view)) or error

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        assert self._query is None, "a KappaStream is started once; a restart needs a new object"
        checkpoint = Checkpoint(self.context.spark, self.checkpoint_path)
        with self.context.database.read() as reader:
            progress = self.context.catalog.progress(reader, self.version.view, self.version.version)
        check_belongs_to(checkpoint, progress, self.label)
        starts = self._read_log_ends(progress)
        frame = self._frame()
        target = TargetTable.of(self.definition, self.version.table_name, frame)
        self._sink = KappaSink(
            self.context, self.version, self.definition, BatchRows(self.context, self.version, target), checkpoint,
            BatchReread(self.context, self.definition, frame, self.dead_letters()),
            starts=starts, topic_ids=self._ask_topic_ids, on_commit=self._committed,
        )  # fmt: skip
        self._create(target)
        writer = frame.writeStream.outputMode(target.mode).foreachBatch(self._run_batch).trigger(**trigger)
        name = f"{self.version.view} v{self.version.version}"
        # With spark.scheduler.mode=FAIR, versions share the executors: a replay does not delay other versions.
        self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        try:
            self._query = writer.queryName(name).option("checkpointLocation", self.checkpoint_path).start()
        finally:
            self.context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        self._sink.attach(self._query)
        return self._query

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        assert self._sink is not None
        clock, counts = self.context.clock, self.context.metrics.of(*self.version.key)
        began_ms, events = clock.monotonic_ms(), counts.events
        with self.work.of(Work.STREAM):
            self._sink(frame, batch_id)
        if self._is_paced and counts.events - events <= _FEW_RECORDS:
            self._stopping.wait(min(clock.monotonic_ms() - began_ms, _LONGEST_PAUSE_MS) / 1000)

    def _create(self, target: TargetTable) -> None:
        """Creates the table, if this is not a restart, and sets the state to started."""
        view, version = self.version.view, self.version.version
        info = target.table.info
        set_columns(self.context.database, self.version.key, info["key_columns"], info["schema"])
        with self.context.database.begin() as connection:
            create_table(connection, target.table)
            self.context.catalog.set_select(connection, view, version, target.select_sql)
            self.context.catalog.set_state(view, version, VersionEvent.STARTED, connection=connection)

    # --------------------------------------------------------------------------------------------------- what it reads

    @cached_property
    def _source_options(self) -> dict[str, str]:
        return source_options(self.context, self.definition) | {
            "maxOffsetsPerTrigger": str(self._max_records()),
            "maxRecordsPerPartition": str(_MAX_TASK_RECORDS),
            "commitGroup": self.group,
        }

    def _max_records(self) -> int:
        events = empty_events(self.context.spark, self.definition)
        is_grouped = grouping_of(apply_query(self.context.spark, self.definition, events)) is not None
        return _MAX_GROUPED_RECORDS if is_grouped else _MAX_RECORDS

    def _frame(self) -> DataFrame:
        """The query over the log, as a stream.

        :raises ViewError: if Spark cannot run the definition.
        """
        from pyspark.sql.types import StructType

        from headrace.pipeline.spark.source.data_source import spark_schema

        spark, definition = self.context.spark, self.definition
        whole = spark_schema(include_headers=False)
        columns = StructType([whole[name] for name in needed_columns(spark, definition)])
        reader = spark.readStream.format("headrace").options(**self._source_options)
        raw = with_columns(reader.schema(columns).load(), whole)
        decoded = decode_frame(definition.decode, raw).select(*needed_event_columns(spark, definition), ERROR)
        events = with_columns(good_rows(count_bad_records(definition.decode, decoded)), event_schema(definition.decode))
        return mark_hidden_groups(apply_query(spark, definition, events))

    def _read_log_ends(self, progress: Progress | None) -> Offsets:
        """Asks the log where it begins and ends, and starts to track the lag.

        :return: where the version begins or began.
        :raises DataLost: if a topic is gone, or is another one of the same name.
        :raises UnknownTopic: if a topic does not exist and was never read.
        """
        options = SourceOptions.parse(self._source_options, is_stream=True)
        with closing(LogOffsets(options)) as log:
            starts = log_starts(log, options, progress, self.version)
            ends = log.latest(starts)
        done = progress.offsets if progress is not None else {}
        now_ms = self.context.clock.monotonic_ms()
        self._lag = LagTracker(by_topic(starts), done, by_topic(ends), now_ms)
        return by_topic(starts)

    def _ask_topic_ids(self) -> dict[str, str]:
        with closing(LogOffsets(SourceOptions.parse(self._source_options, is_stream=True))) as log:
            log.partitions()
            return topic_id_texts(log)

    # ------------------------------------------------------------------------------------------------------ how it goes

    def _committed(self, ends: Offsets) -> None:
        assert self._lag is not None
        self._reading = 0
        self._lag.committed(ends, self.context.clock.monotonic_ms())

    def lag(self) -> Lag:
        if self._lag is None:
            return Lag()
        if self._query is not None and self._query.isActive:
            self._update_lag(self._query, self._lag)
        return self._lag.lag(self.context.clock.monotonic_ms())

    def reading(self) -> int:
        query = self._query
        if query is None or not query.isActive:
            return 0
        spark = self.context.spark
        # A batch may have several jobs, one after the other. The first one reads all records.
        read = records_read(spark, running_jobs_of_group(spark, str(query.runId)))
        self._reading = max(self._reading, read)
        return self._reading

    def _update_lag(self, query: StreamingQuery, lag: LagTracker) -> None:
        """Updates the lag from what Spark knows. Does not ask the log."""
        progress = query._jsq.lastProgress()
        if progress is not None:
            asked_ms = start_ms(progress.timestamp())  # when the trigger began, which is when it asked the log
            for source in progress.sources():
                if source.latestOffset() is not None:
                    lag.observed(parse_offsets(source.latestOffset()), asked_ms)
        status = query._jsq.status()
        if not status.isDataAvailable() and status.message() == _WAITING:
            lag.reached_the_end(self.context.clock.wall_ms())

    def select_sql(self, connection: Connection) -> str:
        found = self.context.catalog.version(self.version.view, self.version.version, connection)
        assert found.select_sql is not None, f"{self.label} has no table yet"
        return found.select_sql

    def drop(self) -> None:
        with self.context.database.begin() as connection:
            drop_table(connection, self.version.table_name)
        self.context.database.drop_stages(self.version.table_name)
        Checkpoint(self.context.spark, self.checkpoint_path).remove()
        # A group that never committed anything does not exist.
        with Admin(short_client_options(self.context.client_options)) as admin, suppress(UnknownGroup):
            admin.delete_group(self.group)


# ------------------------------------------------------------------------------------------------------------- helpers


def source_options(context: RunContext, definition: ViewDefinition) -> dict[str, str]:
    """The options with which a version reads its topics from its start."""
    options = context.log_options | definition.which_topics
    start = definition.kappa.start
    if start == "earliest":
        return options | {"startingOffsets": "earliest"}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    return options | latest | {"startingTimestamp": str(start_ms(start))}


def log_starts(
    log: LogOffsets, options: SourceOptions, progress: Progress | None, version: Version
) -> dict[TopicPartition, int]:
    """Asks the log where a version begins or began, for all partitions.

    :raises DataLost: if a topic is gone, or is another one of the same name.
    :raises UnknownTopic: if a topic does not exist and was never read.
    """
    try:
        partitions = log.partitions()
    except UnknownTopic as error:
        if progress is None:
            raise
        raise DataLost(f"{error}, but {version.label} has read from it; {start_over_advice(version.view)}") from error
    if progress is not None:
        check_same_topics(progress, topic_id_texts(log), version.label)
    return log.resolve(options.start, partitions, is_start=True)


def topic_id_texts(log: LogOffsets) -> dict[str, str]:
    return {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
