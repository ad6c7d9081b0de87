"""A version of a Lambda view, at work: its two layers, and when each of them runs.

::

    thread "pages v1 batches"   first batch -> | request, or the time has come -> batch -> | ...
    thread "pages v1 speed"                    | micro-batch -> micro-batch -> micro-batch -> ...

The first batch covers all that the log has, and the speed layer begins where it was cut; so a view is never built from
a million micro-batches. From then on both go on side by side: a batch takes as long as it takes, and lands in one
transaction between two micro-batches. Requests that come while a batch runs are answered by the next one.

Batches are due ``batch_every_ms`` after the last one that landed, whichever process made it. Where that is long or
never, what came is brought to the archive every hour all the same: a batch needs it, and the log may forget. A batch
that fails because something was away is tried again later, and the speed layer goes on: the view is as right as before.
Any other failure, of either layer, ends the version and is told to the runner.

All state is in the serving database and in the archive: starting is the same after a crash and after a stop.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.lambda_.batch_layer import BatchLayer, BatchResult, BatchStopped
from headrace.pipeline.lambda_.speed_layer import SpeedLayer
from headrace.pipeline.lambda_.store import LambdaStore, drop_tables
from headrace.pipeline.progress.data_loss import DataLost, lost_data
from headrace.pipeline.progress.lag import Behind
from headrace.pipeline.progress.offsets import is_before
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.view_query import apply_query, template
from headrace.pipeline.serving.catalog import Event, Request, Version
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.failures import Verdict, summary_of, verdict_on
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = getLogger("headrace.views")
#: How often the batch thread looks at the clock.
_LOOK_S = 0.2
#: After a batch that failed.
_TRY_AGAIN_MS = 30_000
#: How long something may be in the log only.
_ARCHIVE_EVERY_MS = 3_600_000
#: How often who stops looks whether it has come to that.
_JOIN_S = 0.5


class _Layers:
    """What a version is made of once its query is known to Spark."""

    def __init__(self, around: Surroundings, running: LambdaView) -> None:
        definition, version = running.definition, running.version
        query = apply_query(around.spark, definition, template(around.spark, definition))
        algebra = Algebra(analyze(query))
        self.store = LambdaStore(around.database, around.catalog, version.view, version.version, algebra)
        self.dead_letters = running.dead_letters()
        self.speed = SpeedLayer(around, definition, self.store, algebra, self.dead_letters, running.work)
        self.batch = BatchLayer(around, definition, self.store, algebra, around.archive, self.dead_letters)

    def close(self) -> None:
        self.speed.close()
        self.dead_letters.close()


class LambdaView(RunningVersion):
    def __init__(self, around: Surroundings, version: Version) -> None:
        super().__init__(around, version)
        self._stopping = threading.Event()
        self._news = threading.Condition()
        self._requests: deque[Request] = deque()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._layers: _Layers | None = None
        self._has_batch = False
        self._due_ms: int | None = None
        self._archive_due_ms = 0

    # ------------------------------------------------------------------------------------------------ for the runner

    def start(self) -> None:
        self._layers = self._prepared()
        self._run_thread("batches", self._batches)

    def stop(self, timeout_s: float = 30) -> None:
        self._stopping.set()
        with self._news:
            self._news.notify_all()
        for thread in self._threads:  # the first one may start the second while we wait for it
            for _ in range(max(1, round(timeout_s / _JOIN_S))):
                self._cancel_jobs()  # and again: it may have begun another one
                thread.join(_JOIN_S)
                if not thread.is_alive():
                    break
            else:
                logger.warning("%s: its thread %s has not ended within %g s", self.who, thread.name, timeout_s)
        self._close()

    def failure(self) -> BaseException | None:
        return self._failure

    def behind(self) -> Behind:
        return self._layers.speed.behind() if self._layers is not None and self._has_batch else Behind()

    def reading(self) -> int:
        """Of the first batch: the view has an answer already when others run."""
        first = None if self._layers is None or self._has_batch else self._layers.batch.first_reads
        if first is None:
            return 0
        spark = self.around.spark
        return first.share(records_read(spark, jobs_with_tag(spark, self._tag)))

    def select_sql(self, connection: Connection) -> str:
        found = self.around.catalog.version(self.version.view, self.version.version, connection).select_sql
        assert found is not None, f"{self.who} has no tables yet"
        return found

    def request(self, request: Request) -> bool:
        if request.kind != "batch":
            return super().request(request)
        with self._news:
            if self._stopping.is_set() or self._failure is not None:
                return False
            self._requests.append(request)
            self._news.notify_all()
        return True

    def run_once(self) -> None:
        layers = self._layers = self._prepared()
        try:
            self._check_topics()
            if not layers.store.batches():
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
        """Its tables; the archive is the project's."""
        view, version = self.version.view, self.version.version
        with self.around.database.begin() as connection:
            batches = [each.batch for each in self.around.catalog.batches(connection, view, version)]
            drop_tables(connection, view, version, batches)

    # ------------------------------------------------------------------------------------------------- start and end

    def _prepared(self) -> _Layers:
        layers = _Layers(self.around, self)
        try:
            with self.around.database.begin() as connection:
                layers.store.create(connection)
                self.around.catalog.set_state(
                    self.version.view, self.version.version, Event.STARTED, connection=connection
                )
        except BaseException:
            layers.close()
            raise
        return layers

    def _check_topics(self) -> None:
        """A log that is not the one that we have read must not be read on."""
        assert self._layers is not None
        progress = self._layers.store.progress()
        for topic in sorted(progress.offsets) if progress is not None else ():
            self.around.archive.check(topic)

    def _run_thread(self, name: str, work: Callable[[], None]) -> None:
        from pyspark import InheritableThread

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001  the runner is told, and decides
                self._fail(error)

        # Such a thread has one of its own in the JVM, which ends with it.
        thread = InheritableThread(target=run, name=f"{self.who} {name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fail(self, error: BaseException) -> None:
        with self._news:
            if self._stopping.is_set():  # what is cut off says so in many ways
                logger.debug("%s: ended with %r", self.who, error)
                return
            self._failure = self._lost(error) or error
            self._stopping.set()
            self._news.notify_all()
        self._cancel_jobs()

    def _lost(self, error: BaseException) -> DataLost | None:
        if lost_data(error, "") is None:  # first: the advice needs a Java process that is there
            return None
        topics = self.definition.topics or ("TOPIC",)  # of a pattern: the error names the one
        return lost_data(error, "; ".join(map(self.around.archive.advice, topics)))

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
            if last is None:
                self._run_batch(full=True)
                self._schedule(self.around.clock.wall_ms())
            else:
                self._schedule(last.created_ms)
            self._has_batch = True
            self._run_thread("speed", self._speed)
            while (work := self._next()) is not None:
                work()

    def _speed(self) -> None:
        assert self._layers is not None
        with self._jobs("speed"):
            self._layers.speed.run(self._stopping)

    def _next(self) -> Callable[[], None] | None:
        """Waits for requests or for the time; None at the end."""
        with self._news:
            while not self._stopping.is_set():
                now_ms = self.around.clock.wall_ms()
                if self._requests or (self._due_ms is not None and now_ms >= self._due_ms):
                    wanted = list(self._requests)
                    self._requests.clear()
                    return partial(self._batch, wanted)
                if now_ms >= self._archive_due_ms:
                    return self._archive
                self._news.wait(_LOOK_S)
        return None

    def _batch(self, requests: list[Request]) -> None:
        """Answers all that were there when it began."""
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
            self._schedule(self.around.clock.wall_ms())

    def _archive(self) -> None:
        assert self._layers is not None
        try:
            with self.work.of(Work.BATCH):
                self._layers.batch.archive()
            self._archive_due_ms = self.around.clock.wall_ms() + _ARCHIVE_EVERY_MS
        except Exception as error:  # noqa: BLE001  raised again unless it passes
            self._archive_due_ms = self._try_again_ms(error)

    def _try_again_ms(self, error: Exception) -> int:
        """When; raises the error if it does not pass by itself."""
        if self._stopping.is_set() or verdict_on(error) is not Verdict.TRANSIENT or not is_alive(self.around.spark):
            raise error
        logger.warning("%s: a batch failed, the view goes on without it: %s", self.who, summary_of(error))
        return self.around.clock.wall_ms() + _TRY_AGAIN_MS

    def _run_batch(self, *, full: bool) -> BatchResult:
        assert self._layers is not None
        with self.work.of(Work.BATCH):
            done = self._layers.batch.run(full, self._stopping.is_set)
        if done.is_new:
            kind = "full" if done.is_full else "incremental"
            logger.info(
                "%s: batch %d (%s) has landed: %d rows, %.1f s", self.who, done.batch, kind, done.rows, done.seconds
            )
        return done

    def _answer(self, requests: list[Request], error: str | None) -> None:
        for request in requests:
            self.around.catalog.answer(request.id, error=error)

    def _schedule(self, last_ms: int) -> None:
        """What follows on a batch of that time, which has archived everything up to it."""
        every_ms = self.definition.lambda_.batch_every_ms
        self._due_ms = last_ms + every_ms if every_ms else None
        self._archive_due_ms = last_ms + _ARCHIVE_EVERY_MS

    # ----------------------------------------------------------------------------------------------- jobs of Spark

    @contextmanager
    def _jobs(self, layer: str) -> Iterator[None]:
        """Jobs of this thread can be cancelled; and where Spark shares fairly, neither layer waits for the other."""
        context = self.around.spark.sparkContext
        context.addJobTag(self._tag)
        context.setLocalProperty("spark.scheduler.pool", f"{self.who} {layer}")
        yield

    @property
    def _tag(self) -> str:
        return f"headrace-{self.version.view}-{self.version.version}-{id(self)}"

    def _cancel_jobs(self) -> None:
        """A batch under way is of no use any more; a micro-batch is done again."""
        if self._threads and is_alive(self.around.spark):
            self.around.spark.sparkContext.cancelJobsWithTag(self._tag)


__all__ = ["BatchStopped", "LambdaView"]
