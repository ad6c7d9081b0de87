"""Runs a version of a Lambda view: its batch layer and its speed layer, each in a thread.

::

    thread "pages v1 batches"   first batch -> | request, or batch due -> batch -> | ...
    thread "pages v1 speed"                    | micro-batch -> micro-batch -> micro-batch -> ...

The first batch covers everything that the log has, and the speed layer begins at its cut. So a new view does not need
thousands of micro-batches. From then on both layers run side by side. A batch may take long; it is committed in one
transaction between two micro-batches. A request that arrives while a batch runs is answered by the next batch.

If the log is small, the speed layer reads all of it, and the first batch follows half a minute later: a few
micro-batches in the driver take less time than the first jobs of a Spark session, which start Python processes.

A batch is due ``batch_every_ms`` after the commit of the last one, whichever process ran it. If batches are rare, the
records are still copied to the archive every hour: the next batch needs them, and the log may delete them. A batch that
fails for a transient reason is tried again later; the speed layer goes on, and the view stays correct. Any other
failure of either layer ends the version, and the runner handles it.

All state is in the serving database and in the archive, so a version starts in the same way after a crash and after a
stop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.lambda_.batch_layer import BatchLayer, BatchResult, BatchStopped
from headrace.pipeline.lambda_.speed_layer import SpeedLayer
from headrace.pipeline.lambda_.store import LambdaStore, batch_name, drop_tables
from headrace.pipeline.progress.data_loss import DataLost, check_same_topics, find_data_loss
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.progress.offsets import by_topic, is_before
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.catalog import Request, Version, VersionEvent
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import FailureKind, classify_failure, summary_of
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = getLogger("headrace.views")
#: How often the batch thread checks the clock.
_POLL_S = 0.2
#: The wait after a batch that failed.
_TRY_AGAIN_MS = 30_000
#: A log with at most this many records is read by the speed layer before the first batch.
SMALL_LOG = 100_000
#: How long after the start the first batch begins, if the log was small.
_FIRST_BATCH_AFTER_MS = 30_000
#: How long a record may be in the log and not in the archive.
_ARCHIVE_EVERY_MS = 3_600_000
#: How often ``stop`` checks whether a thread has ended.
_JOIN_S = 0.5


class _Layers:
    """The parts of a version that exist once Spark has analyzed its query."""

    def __init__(self, context: RunContext, running: LambdaView) -> None:
        definition, version = running.definition, running.version
        query = apply_query(context.spark, definition, empty_events(context.spark, definition))
        algebra = Algebra(analyze(query))
        self.store = LambdaStore(context.database, context.catalog, version.view, version.version, algebra)
        self.dead_letters = running.dead_letters()
        self.speed = SpeedLayer(context, definition, self.store, algebra, self.dead_letters, running.work)
        self.batch = BatchLayer(context, definition, self.store, algebra, context.archive, self.dead_letters)

    def close(self) -> None:
        self.speed.close()
        self.dead_letters.close()


class LambdaView(RunningVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._layers: _Layers | None = None
        self._has_answer = False
        self._due_ms: int | None = None
        self._archive_due_ms = 0

    # ------------------------------------------------------------------------------------------------ for the runner

    def start(self) -> None:
        self._layers = self._prepared()
        self._run_thread("batches", self._batches)

    def stop(self, timeout_s: float = 30) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:  # the first thread may start the second one meanwhile
            for _ in range(max(1, round(timeout_s / _JOIN_S))):
                self._cancel_jobs()  # repeated, because the thread may have started another job
                thread.join(_JOIN_S)
                if not thread.is_alive():
                    break
            else:
                logger.warning("%s: the thread %s has not ended within %g s", self.label, thread.name, timeout_s)
        self._close()

    def failure(self) -> BaseException | None:
        return self._failure

    def lag(self) -> Lag:
        return self._layers.speed.lag() if self._layers is not None and self._has_answer else Lag()

    def reading(self) -> int:
        """Records of the first batch only: during later batches the view already has an answer."""
        first = None if self._layers is None or self._has_answer else self._layers.batch.first_batch_size
        if first is None:
            return 0
        spark = self.context.spark
        return first.records_after(records_read(spark, jobs_with_tag(spark, self._tag)))

    def select_sql(self, connection: Connection) -> str:
        found = self.context.catalog.version(self.version.view, self.version.version, connection).select_sql
        assert found is not None, f"{self.label} has no tables yet"
        return found

    def request(self, request: Request) -> bool:
        if request.kind != "batch":
            return super().request(request)
        with self._changed:
            if self._stopping.is_set() or self._failure is not None:
                return False
            self._requests.append(request)
            self._changed.notify_all()
        return True

    def run_once(self) -> None:
        layers = self._layers = self._prepared()
        try:
            self._check_topics()
            if layers.store.progress() is None:
                self._run_batch(full=True)
                return
            target = layers.batch.log_ends()
            while (progress := layers.store.progress()) is None or not is_before(target, progress.offsets):
                layers.speed.step()
            self._run_batch(full=False)
        except Exception as error:
            if (lost := self._lost(error)) is not None:
                raise lost from error
            raise
        finally:
            self._close()

    def drop(self) -> None:
        """Drops the tables. The archive belongs to the project and stays."""
        view, version = self.version.view, self.version.version
        with self.context.database.begin() as connection:
            batches = [each.batch for each in self.context.catalog.batches(connection, view, version)]
            drop_tables(connection, view, version, batches)
        self.context.database.drop_stages(batch_name(view, version, max(batches, default=0) + 1))

    # ------------------------------------------------------------------------------------------------- start and end

    def _prepared(self) -> _Layers:
        layers = _Layers(self.context, self)
        try:
            with self.context.database.begin() as connection:
                layers.store.create(connection)
                self.context.catalog.set_state(
                    self.version.view, self.version.version, VersionEvent.STARTED, connection=connection
                )
        except BaseException:
            layers.close()
            raise
        return layers

    def _check_topics(self) -> None:
        """Checks that the topics are those that were read before."""
        assert self._layers is not None
        progress = self._layers.store.progress()
        if progress is None:
            return
        if progress.topic_ids:  # nothing is archived yet
            with closing(LogOffsets(self._source_options)) as log:
                log.partitions(skip_missing=True)
                known = {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
            check_same_topics(progress, known, self.label)
        for topic in sorted(progress.offsets):
            self.context.archive.check(topic)

    def _run_thread(self, name: str, work: Callable[[], None]) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  the runner gets it from ``failure``
                self._fail(error)

        # An InheritableThread has its own thread in the JVM, which ends with it.
        thread = InheritableThread(target=run, name=f"{self.label} {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._stopping.is_set():  # a job that was cancelled ends with one of many exceptions
                logger.debug("%s: ended with %r", self.label, error)
                return
            self._failure = self._lost(error) or error
            self._stopping.set()
            self._changed.notify_all()
        self._cancel_jobs()

    def _lost(self, error: BaseException) -> DataLost | None:
        if find_data_loss(error, "") is None:  # before the advice, which needs the Java process
            return None
        topics = self.definition.topics or ("TOPIC",)  # of a pattern: the error names the topic
        return find_data_loss(error, "; ".join(map(self.context.archive.advice, topics)))

    def _close(self) -> None:
        if self._layers is not None:
            self._layers.close()

    # ------------------------------------------------------------------------------------------------------- batches

    def _batches(self) -> None:
        layers = self._layers
        assert layers is not None
        with self._jobs("batch"):
            self._check_topics()
            last = next(reversed(layers.store.batches()), None)
            if last is not None:
                self._schedule(last.created_ms)
            elif layers.store.progress() is not None or self._begins_without_batch(layers):
                every_ms = self.definition.lambda_.batch_every_ms or _FIRST_BATCH_AFTER_MS
                self._due_ms = self.context.clock.wall_ms() + min(every_ms, _FIRST_BATCH_AFTER_MS)
                self._archive_due_ms = self._due_ms + _ARCHIVE_EVERY_MS
            else:
                self._run_batch(full=True)
                self._schedule(self.context.clock.wall_ms())
            self._has_answer = True
            self._run_thread("speed", self._speed)
            while (work := self._next()) is not None:
                work()

    def _begins_without_batch(self, layers: _Layers) -> bool:
        """Whether the speed layer may read the log from its start: if it is small, and has lost nothing yet."""
        with closing(LogOffsets(self._source_options)) as log:
            partitions = log.partitions()
            starts, ends = log.earliest(partitions), log.latest(partitions)
            topic_ids = {topic: str(topic_id or "") for topic, topic_id in log.topic_ids.items()}
        if any(starts.values()) or sum(ends.values()) > SMALL_LOG:
            return False
        for topic in sorted(by_topic(starts)):
            self.context.archive.check(topic)
        layers.store.begin_at(by_topic(starts), topic_ids)
        return True

    @property
    def _source_options(self) -> SourceOptions:
        options = {**self.context.log_options, **self.definition.which_topics}
        return SourceOptions.parse(options, is_stream=False)

    def _speed(self) -> None:
        assert self._layers is not None
        with self._jobs("speed"):
            self._layers.speed.run(self._stopping)

    def _next(self) -> Callable[[], None] | None:
        """Waits until there is work, and returns it; None when the version stops."""
        with self._changed:
            while not self._stopping.is_set():
                now_ms = self.context.clock.wall_ms()
                if self._requests or (self._due_ms is not None and now_ms >= self._due_ms):
                    wanted = list(self._requests)
                    self._requests.clear()
                    return partial(self._batch, wanted)
                if now_ms >= self._archive_due_ms:
                    return self._archive
                self._changed.wait(_POLL_S)
        return None

    def _batch(self, requests: list[Request]) -> None:
        """Runs a batch, and answers the requests that were open when it began."""
        try:
            self._run_batch(full=any(request.detail.get("full") for request in requests))
        except Exception as error:
            if self._stopping.is_set():
                raise
            self._answer(requests, summary_of(error))
            again_ms = self._try_again_ms(error)
            self._due_ms = again_ms if self.definition.lambda_.batch_every_ms else None
        else:
            self._answer(requests, None)
            self._schedule(self.context.clock.wall_ms())

    def _archive(self) -> None:
        assert self._layers is not None
        try:
            with self.work.of(Work.BATCH):
                self._layers.batch.archive()
            self._archive_due_ms = self.context.clock.wall_ms() + _ARCHIVE_EVERY_MS
        except Exception as error:  # noqa: BLE001  raised again unless it is transient
            self._archive_due_ms = self._try_again_ms(error)

    def _try_again_ms(self, error: Exception) -> int:
        """The time of the next try. Raises the error if it is not transient."""
        if (
            self._stopping.is_set()
            or classify_failure(error) is not FailureKind.TRANSIENT
            or not is_alive(self.context.spark)
        ):
            raise error
        logger.warning(
            "%s: a batch failed and is tried again; the speed layer goes on: %s", self.label, summary_of(error)
        )
        return self.context.clock.wall_ms() + _TRY_AGAIN_MS

    def _run_batch(self, *, full: bool) -> BatchResult:
        assert self._layers is not None
        with self.work.of(Work.BATCH):
            done = self._layers.batch.run(full, self._stopping.is_set)
        if done.is_new:
            kind = "full" if done.is_full else "incremental"
            logger.info(
                "%s: batch %d (%s) is committed: %d rows, %.1f s", self.label, done.batch, kind, done.rows, done.seconds
            )
        return done

    def _answer(self, requests: list[Request], error: str | None) -> None:
        for request in requests:
            self.context.catalog.finish_request(request.id, error=error)

    def _schedule(self, last_ms: int) -> None:
        """Schedules what follows a batch that was committed at that time. The batch has archived everything before."""
        every_ms = self.definition.lambda_.batch_every_ms
        self._due_ms = last_ms + every_ms if every_ms else None
        self._archive_due_ms = last_ms + _ARCHIVE_EVERY_MS

    # ----------------------------------------------------------------------------------------------- jobs of Spark

    @contextmanager
    def _jobs(self, layer: str) -> Iterator[None]:
        """Tags the jobs of this thread, so that they can be cancelled, and gives them their own scheduler pool.

        With spark.scheduler.mode=FAIR neither layer then waits for the other.
        """
        context = self.context.spark.sparkContext
        context.addJobTag(self._tag)
        context.setLocalProperty("spark.scheduler.pool", f"{self.label} {layer}")
        yield

    @property
    def _tag(self) -> str:
        return f"headrace-{self.version.view}-{self.version.version}-{id(self)}"

    def _cancel_jobs(self) -> None:
        """Cancels the jobs in progress. A batch is discarded; a micro-batch is repeated after the next start."""
        if self._threads and is_alive(self.context.spark):
            self.context.spark.sparkContext.cancelJobsWithTag(self._tag)


__all__ = ["BatchStopped", "LambdaView"]
