"""A version of a Kappa view, at work: one stream of Spark that keeps one table.

::

    the log -> decode -> the query -> foreachBatch -> table <view>__v<N>           (kappa_sink)
    checkpoint <checkpoints>/<view>/v<N>      consumer group headrace.<view>.v<N>, which shows how far it is

A new version begins at the start of the log, or at a time, while the old one goes on: each has a table, a checkpoint
and a group of its own, and they know nothing of each other. Which one readers see is the catalog's business. So a
version that fails, is slow or is wrong touches nothing but its own.

What counts is in the serving database: the rows and the offsets up to which they count, in one transaction a batch. The
checkpoint has the state of the query as of the same batches; ``kappa_checkpoint`` refuses to go on if one of the two is
missing or older than the other.

A topic that was deleted and made anew has other records under the same offsets. The ids of topics are kept with the
offsets, and compared when a version starts; while it runs, its source compares them before each batch.

Streams and batches are the same code: ``run_once`` is the stream, ended where the log ended when it began.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Any

from headrace.client.admin.sync_admin import Admin
from headrace.client.errors import HeadraceError, UnknownGroup, UnknownTopic
from headrace.pipeline.decoding.events import ERROR, decode_frame, event_schema, good_rows
from headrace.pipeline.kappa.batch_counts import counted
from headrace.pipeline.kappa.batch_reread import SecondLook
from headrace.pipeline.kappa.checkpoint import Checkpoint, check_belongs_to
from headrace.pipeline.kappa.hidden_groups import hiding
from headrace.pipeline.kappa.sink import KappaSink, Target
from headrace.pipeline.progress.data_loss import DataLost, begin_anew, check_same_topics, lost_data
from headrace.pipeline.progress.lag import Behind, Lag
from headrace.pipeline.progress.offsets import by_topic
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.needed_columns import needed_columns, needed_event_columns, with_columns
from headrace.pipeline.query.view_query import apply_query, template
from headrace.pipeline.serving.catalog import Event, Offsets, Progress, Version
from headrace.pipeline.serving.catalog_tables import parse_offsets
from headrace.pipeline.serving.tables import create_table, drop_table
from headrace.pipeline.spark.job_progress import records_read, running_jobs_of_group
from headrace.pipeline.spark.options import shared_client_options
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from sqlalchemy import Connection


logger = getLogger(__name__)
#: A batch of a replay: so large that what each costs does not count, so small that its rows fit into the driver. Groups
#: are fewer than records, as a rule.
_MAX_RECORDS, _MAX_GROUPED_RECORDS = 250_000, 5_000_000
#: More than this of one partition is read by several tasks. Progress within a batch is told task by task.
_MAX_TASK_RECORDS = 500_000
#: How often the log is asked for more once all is read.
_TRIGGER = "500 milliseconds"
_WAITING = "Waiting for data to arrive"


class KappaView(RunningVersion):
    def __init__(self, around: Surroundings, version: Version) -> None:
        super().__init__(around, version)
        self._query: StreamingQuery | None = None
        self._sink: KappaSink | None = None
        self._lag: Lag | None = None
        self._is_stopping = False
        self._reading = 0

    @property
    def group(self) -> str:
        return f"headrace.{self.version.view}.v{self.version.version}"

    @property
    def checkpoint_path(self) -> str:
        return f"{self.around.checkpoints.rstrip('/')}/{self.version.view}/v{self.version.version}"

    # ------------------------------------------------------------------------------------------------ start and stop

    def start(self) -> None:
        self._start({"processingTime": _TRIGGER})

    def run_once(self) -> None:
        query = self._start({"availableNow": True})
        try:
            query._jsq.awaitTermination()
        except Exception as error:
            raise self.failure() or error from error
        finally:
            self._close()
        self._is_stopping = True  # that it runs no more is as it should be
        assert self._lag is not None
        self._lag.reached_the_end()

    def stop(self, timeout_s: float = 30) -> None:
        if self._query is None:
            return
        self._is_stopping = True
        if not is_alive(self.around.spark):
            self._end_without_java(timeout_s)
            return
        # Spark waits for as long as its own setting says, and says in an exception that it was not long enough.
        stopping = threading.Thread(target=self._ask_to_stop, name=f"stop {self.who}", daemon=True)
        stopping.start()
        stopping.join(timeout_s)
        if self._query.isActive:
            raise TimeoutError(f"{self.who} has not stopped after {timeout_s} s: its batch is still under way")
        self._close()

    def _end_without_java(self, timeout_s: float) -> None:
        """A batch whose rows are here already may still be committed, and nobody else must begin before."""
        if not self.work.wait_until_idle(timeout_s):
            raise TimeoutError(f"{self.who} has not stopped after {timeout_s} s: its batch is still under way")
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
        if query is None or self._is_stopping or query.isActive:
            return None
        error = self._sink.error if self._sink is not None else None
        error = error or query.exception() or HeadraceError(f"the stream of {self.who} was ended by somebody else")
        return lost_data(error, begin_anew(self.version.view)) or error

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        assert self._query is None, "a version is started once; a restart is a new object"
        checkpoint = Checkpoint(self.around.spark, self.checkpoint_path)
        with self.around.database.read() as reader:
            progress = self.around.catalog.progress(reader, self.version.view, self.version.version)
        check_belongs_to(checkpoint, progress, self.who)
        starts = self._look_at_log(progress)
        frame = self._frame()
        target = Target.of(self.definition, self.version.table_name, frame)
        self._sink = KappaSink(
            self.around, self.version, self.definition, target, checkpoint,
            SecondLook(self.around, self.definition, frame, self.dead_letters()),
            starts=starts, topic_ids=self._ask_topic_ids, on_commit=self._committed,
        )  # fmt: skip
        self._create(target)
        writer = frame.writeStream.outputMode(target.mode).foreachBatch(self._land).trigger(**trigger)
        name = f"{self.version.view} v{self.version.version}"
        # Versions share the executors fairly, where spark.scheduler.mode is FAIR: a replay does not hold others up.
        self.around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        try:
            self._query = writer.queryName(name).option("checkpointLocation", self.checkpoint_path).start()
        finally:
            self.around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        self._sink.belongs_to(self._query)
        return self._query

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        assert self._sink is not None
        with self.work.of(Work.STREAM):
            self._sink(frame, batch_id)

    def _create(self, target: Target) -> None:
        """In the state ``starting`` nothing is there yet; or all is, after a restart."""
        view, version = self.version.view, self.version.version
        with self.around.database.begin() as connection:
            create_table(connection, target.table)
            self.around.catalog.set_select(connection, view, version, target.select_sql)
            self.around.catalog.set_state(view, version, Event.STARTED, connection=connection)

    # --------------------------------------------------------------------------------------------------- what it reads

    @cached_property
    def _source_options(self) -> dict[str, str]:
        definition = self.definition
        options = self.around.log_options | definition.which_topics
        options |= {
            "maxOffsetsPerTrigger": str(self._max_records()),
            "maxRecordsPerPartition": str(_MAX_TASK_RECORDS),
            "commitGroup": self.group,
        }
        start = definition.kappa.start
        if start == "earliest":
            return options | {"startingOffsets": "earliest"}
        latest = {"startingOffsetsByTimestampStrategy": "latest"}
        return options | latest | {"startingTimestamp": str(start_ms(start))}

    def _max_records(self) -> int:
        events = template(self.around.spark, self.definition)
        is_grouped = grouping_of(apply_query(self.around.spark, self.definition, events)) is not None
        return _MAX_GROUPED_RECORDS if is_grouped else _MAX_RECORDS

    def _frame(self) -> DataFrame:
        """The query over the log as a stream.

        :raises ViewError: if it does not work.
        """
        from pyspark.sql.types import StructType

        from headrace.pipeline.spark.source.data_source import spark_schema

        spark, definition = self.around.spark, self.definition
        whole = spark_schema(include_headers=False)
        columns = StructType([whole[name] for name in needed_columns(spark, definition)])
        reader = spark.readStream.format("headrace").options(**self._source_options)
        raw = with_columns(reader.schema(columns).load(), whole)
        decoded = decode_frame(definition.decode, raw).select(*needed_event_columns(spark, definition), ERROR)
        events = with_columns(good_rows(counted(definition.decode, decoded)), event_schema(definition.decode))
        return hiding(apply_query(spark, definition, events))

    def _look_at_log(self, progress: Progress | None) -> Offsets:
        """Where the version begins or began; notes how far it is behind.

        :raises DataLost: if a topic is not the one that was read before.
        :raises UnknownTopic: if one has never been there.
        """
        options = SourceOptions.parse(self._source_options, is_stream=True)
        with closing(LogOffsets(options)) as log:
            try:
                places = log.partitions()
            except UnknownTopic as error:
                if progress is None:
                    raise
                raise DataLost(f"{error}, but {self.who} has read of it; {begin_anew(self.version.view)}") from error
            if progress is not None:
                check_same_topics(progress, _texts(log), self.who)
            starts, ends = log.resolve(options.start, places, is_start=True), log.latest(places)
        done = progress.offsets if progress is not None else {}
        now_ms = self.around.clock.monotonic_ms()
        self._lag = Lag(by_topic(starts), done, by_topic(ends), now_ms)
        return by_topic(starts)

    def _ask_topic_ids(self) -> dict[str, str]:
        with closing(LogOffsets(SourceOptions.parse(self._source_options, is_stream=True))) as log:
            log.partitions()
            return _texts(log)

    # ------------------------------------------------------------------------------------------------------ how it goes

    def _committed(self, ends: Offsets) -> None:
        assert self._lag is not None
        self._reading = 0
        self._lag.committed(ends, self.around.clock.monotonic_ms())

    def behind(self) -> Behind:
        if self._lag is None:
            return Behind()
        if self._query is not None and self._query.isActive:
            self._look_at_query(self._query, self._lag)
        return self._lag.behind(self.around.clock.monotonic_ms())

    def reading(self) -> int:
        query = self._query
        if query is None or not query.isActive:
            return 0
        spark = self.around.spark
        # A batch may have several jobs, one after the other; the first one reads everything.
        read = records_read(spark, running_jobs_of_group(spark, str(query.runId)))
        self._reading = max(self._reading, read)
        return self._reading

    def _look_at_query(self, query: StreamingQuery, lag: Lag) -> None:
        """What Spark knows already; the log is not asked."""
        progress = query._jsq.lastProgress()
        if progress is not None:
            asked_ms = start_ms(progress.timestamp())  # of the trigger, which asks the log first of all
            for source in progress.sources():
                if source.latestOffset() is not None:
                    lag.seen(parse_offsets(source.latestOffset()), asked_ms)
        status = query._jsq.status()
        if not status.isDataAvailable() and status.message() == _WAITING:
            lag.reached_the_end(self.around.clock.wall_ms())

    def select_sql(self, connection: Connection) -> str:
        found = self.around.catalog.version(self.version.view, self.version.version, connection)
        assert found.select_sql is not None, f"{self.who} has no table yet"
        return found.select_sql

    def drop(self) -> None:
        with self.around.database.begin() as connection:
            drop_table(connection, self.version.table_name)
        Checkpoint(self.around.spark, self.checkpoint_path).remove()
        # A group that never committed anything is not there.
        with Admin(shared_client_options(self.around.client_options)) as admin, suppress(UnknownGroup):
            admin.delete_group(self.group)


# ------------------------------------------------------------------------------------------------------------- helpers


def start_ms(text: str) -> int:
    """``2026-11-16T08:00:00Z`` in milliseconds; UTC unless it says otherwise."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _texts(log: LogOffsets) -> dict[str, str]:
    return {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
