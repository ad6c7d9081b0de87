"""Runs a version of a Kappa view whose answer is combined from partial results, without a Spark stream.

::

    the log -> partial results of a micro-batch -> merged with the stored ones of the same keys -> <view>__v<N>
    consumer group headrace.<view>.v<N>, which shows the progress

One thread runs micro-batches (``lambda_.speed_layer``, the same code as in a Lambda view). A micro-batch of up to
20,000 records is read and computed in the driver. A replay reads up to five million records at a time by Spark's tasks.
A transaction has the rows and the offsets up to which they count (``combined_store``). There is no other state, so a
version starts in the same way after a crash and after a stop.

A topic that was deleted and created again has other records under the same offsets. So the ids of topics are stored
with the offsets, compared when a version starts, and compared every second while it runs.
"""

from __future__ import annotations

import threading
from contextlib import closing
from logging import getLogger
from typing import TYPE_CHECKING, Self

from headrace.pipeline.kappa.combined_store import CombinedStore
from headrace.pipeline.kappa.group_progress import GroupProgress
from headrace.pipeline.kappa.stream import KappaStream, log_starts, source_options
from headrace.pipeline.lambda_.speed_layer import SpeedLayer
from headrace.pipeline.progress.data_loss import find_data_loss, start_over_advice
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.progress.offsets import by_topic, is_before
from headrace.pipeline.serving.catalog import Version, VersionEvent
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.spark_threads import start_spark_thread
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import WorkInFlight

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.query.aggregates import Algebra

logger = getLogger("headrace.views")
#: Offsets per micro-batch of a replay: enough that the cost of a micro-batch is small.
_MAX_RECORDS = 5_000_000
#: How often ``stop`` checks whether the thread has ended.
_JOIN_S = 0.5


class KappaCombined(RunningVersion):
    def __init__(self, context: RunContext, version: Version, algebra: Algebra, work: WorkInFlight) -> None:
        super().__init__(context, version)
        self.work = work
        self._algebra = algebra
        self._store = CombinedStore(context.database, context.catalog, version, algebra)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._layer: SpeedLayer | None = None
        self._dead_letters: DeadLetters | None = None
        self._group = GroupProgress(context, f"headrace.{version.view}.v{version.version}")

    # ------------------------------------------------------------------------------------------------ for the runner

    def start(self) -> None:
        self._prepare()
        self._thread = start_spark_thread(self._run, self._fail, name=f"{self.label} micro-batches")

    def run_once(self) -> None:
        self._prepare()
        try:
            self._tag_jobs()
            self.advance()
            self._group.show(self._store.progress().offsets, now=True)
        except Exception as error:
            raise find_data_loss(error, start_over_advice(self.version.view)) or error from error
        finally:
            self._close()

    def stop(self, timeout_s: float = 30) -> None:
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            for _ in range(max(1, round(timeout_s / _JOIN_S))):
                self._cancel_jobs()  # repeated, because the thread may have started another job
                thread.join(_JOIN_S)
                if not thread.is_alive():
                    break
            else:
                raise TimeoutError(f"{self.label} has not stopped after {timeout_s} s: its batch is still in progress")
        self._close()

    def failure(self) -> BaseException | None:
        return self._failure

    def lag(self) -> Lag:
        return Lag() if self._layer is None else self._layer.lag()

    def reading(self) -> int:
        if self.work.is_idle:
            return 0
        spark = self.context.spark
        return records_read(spark, sorted(jobs_with_tag(spark, self._tag))[-1:])

    def select_sql(self, connection: Connection) -> str:
        found = self.context.catalog.version(*self.version.key, connection).select_sql
        assert found is not None, f"{self.label} has no table yet"
        return found

    def drop(self) -> None:
        KappaStream(self.context, self.version).drop()

    # ---------------------------------------------------------------------------------- for a caller without threads

    def stepped(self) -> Self:
        return self

    def open(self) -> None:
        self._prepare()

    def close(self) -> None:
        self._close()

    def advance(self) -> None:
        assert self._layer is not None, f"{self.label} is not open"
        target = self._log_ends()
        self._layer.step()
        while not is_before(target, self._store.progress().offsets):
            self._layer.step()

    def rebuild(self) -> None:
        """Does nothing: a Kappa view has no batches."""

    # ------------------------------------------------------------------------------------------------- start and end

    def _prepare(self) -> SpeedLayer:
        assert self._layer is None, "a version is started once; a restart needs a new object"
        with self.context.database.read() as reader:
            progress = self.context.catalog.progress(reader, *self.version.key)
        options = SourceOptions.parse(source_options(self.context, self.definition), is_stream=True)
        with closing(LogOffsets(options)) as log:
            self._store.starts = by_topic(log_starts(log, options, progress, self.version))
        self._dead_letters = self.dead_letters()
        layer = self._layer = SpeedLayer(
            self.context, self.definition, self._store, self._algebra, self._dead_letters, self.work,
            trigger_ms=self.definition.kappa.trigger_ms, max_records=_MAX_RECORDS, starts=self._store.starts,
        )  # fmt: skip
        self._store.topic_ids = layer.topic_ids
        with self.context.database.begin() as connection:
            self._store.create(connection)
            self.context.catalog.set_state(*self.version.key, VersionEvent.STARTED, connection=connection)
        return layer

    def _log_ends(self) -> dict[str, dict[int, int]]:
        options = SourceOptions.parse({**self.context.log_options, **self.definition.which_topics}, is_stream=False)
        with closing(LogOffsets(options)) as log:
            return by_topic(log.latest(log.partitions()))

    def _run(self) -> None:
        assert self._layer is not None
        self._tag_jobs()
        self._layer.run(self._stopping, each_round=lambda: self._group.show(self._store.known_offsets))
        self._group.show(self._store.known_offsets, now=True)

    def _fail(self, error: BaseException) -> None:
        """Keeps an exception of the thread. The runner gets it from ``failure``."""
        if self._stopping.is_set():  # a job that was cancelled ends with one of many exceptions
            logger.debug("%s: ended with %r", self.label, error)
        else:
            self._failure = find_data_loss(error, start_over_advice(self.version.view)) or error

    def _close(self) -> None:
        if self._layer is not None:
            self._layer.close()
        if self._dead_letters is not None:
            self._dead_letters.close()
        self._group.close()

    # ------------------------------------------------------------------------------------------------ jobs of Spark

    def _tag_jobs(self) -> None:
        """Tags the jobs of this thread, so that they can be cancelled, and gives them their own scheduler pool.

        With spark.scheduler.mode=FAIR a replay does not delay other versions.
        """
        context = self.context.spark.sparkContext
        context.addJobTag(self._tag)
        context.setLocalProperty("spark.scheduler.pool", self.label)

    @property
    def _tag(self) -> str:
        return f"headrace-{self.version.view}-{self.version.version}-{id(self)}"

    def _cancel_jobs(self) -> None:
        """Cancels the jobs in progress. Their micro-batch is repeated after the next start."""
        if is_alive(self.context.spark):
            self.context.spark.sparkContext.cancelJobsWithTag(self._tag)
