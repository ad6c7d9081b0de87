"""A version that is built from the start, and then followed: the threads, the schedule and the requests of builds.

::

    thread "orders v1 builds"    first build -> | request, or build due -> build -> | ...
    thread "orders v1 follow"                   | what a way does between builds

The first build covers everything that the log has. Further builds are due ``batch_every_ms`` after the last one,
whichever process ran it, if the version wants them (``_is_rebuilt``), or when a command asks. A request that arrives
while a build runs is answered by the next build. A build that fails for a transient reason is tried again later, and
the version goes on. Any other failure ends the version, and the runner handles it.

All state is in the serving database, the log and the archive, so a version starts in the same way after a crash and
after a stop.

If builds are rare, the records of a Lambda view are still copied to the archive every hour: the next build needs them,
and the log may delete them.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Self

from headrace.pipeline.progress.data_loss import DataLost, find_data_loss
from headrace.pipeline.serving.catalog import Batch, Request, Version
from headrace.pipeline.spark.session import is_alive
from headrace.pipeline.spark.spark_threads import start_spark_thread
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import FailureKind, classify_failure, summary_of
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = getLogger("headrace.views")
#: How often the thread of builds checks the clock.
_POLL_S = 0.2
#: The wait after a build that failed.
_TRY_AGAIN_MS = 30_000
#: How long a record may be in the log and not in the archive.
ARCHIVE_EVERY_MS = 3_600_000
#: How often ``stop`` checks whether a thread has ended.
_JOIN_S = 0.5


class BuiltVersion(RunningVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._has_build = False
        self._due_ms: int | None = None
        self._archive_due_ms = 0

    # ----------------------------------------------------------------------------------------- what a way has to do

    @abstractmethod
    def _open(self) -> None:
        """Prepares the query and sets the state to started. If it raises, nothing is left to close."""

    @abstractmethod
    def _close(self) -> None:
        """Closes what ``_open`` opened, if anything."""

    @abstractmethod
    def _check_topics(self) -> None:
        """Checks that the topics are those that were read before."""

    @abstractmethod
    def _last_build(self) -> Batch | None:
        """The build that readers see."""

    @abstractmethod
    def _build(self, *, is_full: bool) -> str | None:
        """Computes the answer and commits it.

        :param is_full: whether to compute it from the start; a way may always do so.
        :return: what was committed, for the log; None if there was nothing to do.
        """

    @abstractmethod
    def _follow(self) -> None:
        """Follows the log between builds, until ``_stopping`` is set."""

    @abstractmethod
    def _advance(self) -> None:
        """Reads the log to its present end, with no more builds than necessary."""

    @abstractmethod
    def _archive(self) -> None:
        """Copies what was read of the log to the archive."""

    @abstractmethod
    def _advice(self) -> str:
        """Returns the advice for a user after data was lost."""

    @property
    def _is_rebuilt(self) -> bool:
        """Whether the version is built again while it runs."""
        return self.definition.architecture == "lambda"

    # ------------------------------------------------------------------------------------------------ for the runner

    def start(self) -> None:
        self._open()
        self._run_thread("builds", self._builds)

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

    def select_sql(self, connection: Connection) -> str:
        found = self.context.catalog.version(self.version.view, self.version.version, connection).select_sql
        assert found is not None, f"{self.label} has no tables yet"
        return found

    def request(self, request: Request) -> bool:
        if request.kind != "batch" or not self._is_rebuilt:
            return super().request(request)
        with self._changed:
            if self._stopping.is_set() or self._failure is not None:
                return False
            self._requests.append(request)
            self._changed.notify_all()
        return True

    def _once(self, work: Callable[[], None]) -> None:
        """Does the work of ``run_once`` in this thread."""
        self._open()
        try:
            self._check_topics()
            work()
            self._has_build = True
        except Exception as error:
            if (lost := self._lost(error)) is not None:
                raise lost from error
            raise
        finally:
            self._close()

    # ---------------------------------------------------------------------------------- for a caller without threads

    def stepped(self) -> Self:
        return self

    def open(self) -> None:
        self._open()

    def close(self) -> None:
        self._close()

    def advance(self) -> None:
        self._advance()
        self._has_build = True

    def rebuild(self) -> None:
        self._run_build(is_full=False)

    # ------------------------------------------------------------------------------------------------------- threads

    def _run_thread(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            with self._jobs(name):
                work()

        self._threads.append(start_spark_thread(run, self._fail, name=f"{self.label} {name}"))

    def _fail(self, error: BaseException) -> None:
        """Keeps an exception of a thread. The runner gets it from ``failure``."""
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
        return find_data_loss(error, self._advice())

    @contextmanager
    def _jobs(self, name: str) -> Iterator[None]:
        """Tags the jobs of this thread, so that they can be cancelled, and gives them their own scheduler pool.

        With spark.scheduler.mode=FAIR, builds and what runs between builds do not wait for each other.
        """
        context = self.context.spark.sparkContext
        context.addJobTag(self._tag)
        context.setLocalProperty("spark.scheduler.pool", f"{self.label} {name}")
        yield

    @property
    def _tag(self) -> str:
        return f"headrace-{self.version.view}-{self.version.version}-{id(self)}"

    def _cancel_jobs(self) -> None:
        """Cancels the jobs in progress. A build is discarded; a micro-batch is repeated after the next start."""
        if self._threads and is_alive(self.context.spark):
            self.context.spark.sparkContext.cancelJobsWithTag(self._tag)

    # -------------------------------------------------------------------------------------------------------- builds

    def _builds(self) -> None:
        self._check_topics()
        self._begin()
        self._has_build = True
        self._run_thread("follow", self._follow)
        while (work := self._next()) is not None:
            work()

    def _begin(self) -> None:
        """Makes sure that there is an answer, and schedules the next build."""
        last = self._last_build()
        if last is None:
            self._run_build(is_full=True)
            self._schedule(self.context.clock.wall_ms())
        else:
            self._schedule(last.created_ms)

    def _next(self) -> Callable[[], None] | None:
        """Waits until there is work, and returns it; None when the version stops."""
        with self._changed:
            while not self._stopping.is_set():
                now_ms = self.context.clock.wall_ms()
                if self._requests or (self._due_ms is not None and now_ms >= self._due_ms):
                    wanted = list(self._requests)
                    self._requests.clear()
                    return partial(self._requested_build, wanted)
                if self.definition.architecture == "lambda" and now_ms >= self._archive_due_ms:
                    return self._scheduled_archive
                self._changed.wait(_POLL_S)
        return None

    def _requested_build(self, requests: list[Request]) -> None:
        """Runs a build, and answers the requests that were open when it began."""
        try:
            self._run_build(is_full=any(request.detail.get("full") for request in requests))
        except Exception as error:
            if self._stopping.is_set():
                raise
            self._answer(requests, summary_of(error))
            again_ms = self._try_again_ms(error)
            self._due_ms = again_ms if self._due_ms is not None else None
        else:
            self._answer(requests, None)
            self._schedule(self.context.clock.wall_ms())

    def _run_build(self, *, is_full: bool) -> None:
        clock = self.context.clock
        began_ms = clock.monotonic_ms()
        with self.work.of(Work.BATCH):
            committed = self._build(is_full=is_full)
        if committed is not None:
            seconds = (clock.monotonic_ms() - began_ms) / 1000
            self.context.metrics.batch(*self.version.key, seconds=seconds)
            logger.info("%s: %s is committed: %.1f s", self.label, committed, seconds)

    def _scheduled_archive(self) -> None:
        try:
            with self.work.of(Work.BATCH):
                self._archive()
            self._archive_due_ms = self.context.clock.wall_ms() + ARCHIVE_EVERY_MS
        except Exception as error:  # noqa: BLE001  raised again unless it is transient
            self._archive_due_ms = self._try_again_ms(error)

    def _try_again_ms(self, error: Exception) -> int:
        """The time of the next try. Raises the error if it is not transient."""
        is_passing = classify_failure(error) is FailureKind.TRANSIENT and is_alive(self.context.spark)
        if self._stopping.is_set() or not is_passing:
            raise error
        logger.warning("%s: a build failed and is tried again; the view goes on: %s", self.label, summary_of(error))
        return self.context.clock.wall_ms() + _TRY_AGAIN_MS

    def _answer(self, requests: list[Request], error: str | None) -> None:
        for request in requests:
            self.context.catalog.finish_request(request.id, error=error)

    def _schedule(self, last_ms: int) -> None:
        """Schedules what follows a build that was committed at that time."""
        every_ms = self.definition.batch_every_ms if self._is_rebuilt else 0
        self._due_ms = last_ms + every_ms if every_ms else None
        self._archive_due_ms = last_ms + ARCHIVE_EVERY_MS
