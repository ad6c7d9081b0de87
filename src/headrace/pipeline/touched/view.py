"""Runs a version of a view that is maintained by touched keys, in either architecture.

Between builds, micro-batches follow the log, every ``trigger_ms``. In a Kappa view the first build is the replay, and
there is no other: a change of the definition makes a new version. In a Lambda view a build is a batch: it is computed
again from the archive every ``batch_every_ms``, or when it is asked for.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.pipeline.common_cut.common_cut import LeftOut, Member, SoloFollower
from headrace.pipeline.lambda_.speed_log import SpeedLog
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.progress.offsets import is_before, ranges_between
from headrace.pipeline.serving.catalog import Batch, Progress, Version, VersionEvent
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.touched.maintainer import MAX_RECORDS, Maintainer
from headrace.pipeline.touched.master_data import ArchivedRecords, master_data
from headrace.pipeline.touched.store import TouchedStore
from headrace.pipeline.version.built_version import BuiltVersion
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from headrace.pipeline.progress.ranges import OffsetRange


class TouchedVersion(BuiltVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        self._parts: _Parts | None = None

    def lag(self) -> Lag:
        return self._parts.steps.lag() if self._parts is not None and self._has_build else Lag()

    def reading(self) -> int:
        if self._parts is None or self._has_build:
            return 0
        spark = self.context.spark
        return records_read(spark, jobs_with_tag(spark, self._tag))

    def run_once(self) -> None:
        self._once(self._advance)

    def _advance(self) -> None:
        parts = self._opened
        if parts.maintainer.must_build():
            self._run_build(is_full=True)
        target = parts.data.log_ends()
        while not is_before(target, parts.steps.progress().offsets):
            parts.steps.step()

    def drop(self) -> None:
        with self.context.database.begin() as connection:
            TouchedStore(self.context.database, self.context.catalog, *self.version.key).drop(connection)

    # ------------------------------------------------------------------------------------------------- for its builds

    @property
    def _opened(self) -> _Parts:
        assert self._parts is not None, f"{self.label} is not open"
        return self._parts

    def _open(self) -> None:
        parts = _Parts(self)
        try:
            self.context.catalog.set_state(*self.version.key, VersionEvent.STARTED)
        except BaseException:
            parts.close()
            raise
        self._parts = parts

    def _close(self) -> None:
        if self._parts is not None:
            self._parts.close()

    def _check_topics(self) -> None:
        progress = self._opened.maintainer.store.progress()
        if progress is not None:
            self._opened.data.check_topics(progress)

    def _last_build(self) -> Batch | None:
        maintainer = self._opened.maintainer
        return None if maintainer.must_build() else maintainer.store.last_build()

    def _build(self, *, is_full: bool) -> str:  # noqa: ARG002  every build is full
        return f"build {self._opened.maintainer.build(self._opened.steps.read, self._stopping.is_set)}"

    def _follow(self) -> None:
        self._opened.steps.run(self._stopping)

    def _archive(self) -> None:
        data = self._opened.data
        assert isinstance(data, ArchivedRecords)
        data.archive(self._opened.steps.progress().offsets)

    def _advice(self) -> str:
        return self._opened.data.advice()


class _Parts:
    """The parts of a version that exist once Spark has analyzed its query."""

    def __init__(self, running: TouchedVersion) -> None:
        context, definition = running.context, running.definition
        self.data = master_data(context, definition)
        self._dead_letters = {source.name: running.dead_letters(source) for source in definition.inputs}
        self.maintainer = Maintainer(context, definition, running.version, self.data, self._dead_letters)
        has_dead_letters = any(sender.topic for sender in self._dead_letters.values())
        self.steps = Steps(running, self.maintainer, has_dead_letters=has_dead_letters)

    def close(self) -> None:
        self.steps.close()
        for sender in self._dead_letters.values():
            sender.close()


class Steps:
    """Reads the log and runs micro-batches."""

    def __init__(self, running: TouchedVersion, maintainer: Maintainer, *, has_dead_letters: bool) -> None:
        self._running, self._context = running, running.context
        self._maintainer = maintainer
        topics = master_data(running.context, running.definition).which_topics
        self._log = SpeedLog(running.context, topics, with_headers=has_dead_letters)
        self._has_headers = has_dead_letters
        self._reading = threading.Lock()
        #: The progress in the database; None if it has to be read again.
        self._known: Progress | None = None
        self._lag_tracker: LagTracker | None = None
        self._member: Member = SoloFollower(self._context.database)

    def close(self) -> None:
        self._log.close()

    def run(self, stop: threading.Event) -> None:
        """Runs micro-batches until ``stop`` is set: every ``trigger_ms``, or at once while there is more to read.

        Versions with common topics read them in rounds (``common_cut``).
        """
        clock, running, definition = self._context.clock, self._running, self._running.definition
        with self._context.follow(running.version.key, definition, running.work) as self._member:
            while not stop.is_set():
                began_ms = clock.monotonic_ms()
                with suppress(LeftOut):
                    self.step()
                interval_ms = self._member.interval_ms(definition.trigger_ms)
                wait_ms = interval_ms - (clock.monotonic_ms() - began_ms)
                if wait_ms > 0 and not self.lag().records:
                    stop.wait(wait_ms / 1000)

    def step(self) -> bool:
        """Runs one micro-batch; False if there was nothing to read."""
        try:
            return self._step()
        except BaseException:
            self._known = None  # the commit may have happened although it raised
            self._member.leave()
            self._log.close_reader()
            raise

    def lag(self) -> Lag:
        """The lag as last observed. Does no I/O."""
        return Lag() if self._lag_tracker is None else self._lag_tracker.lag(self._context.clock.monotonic_ms())

    def progress(self) -> Progress:
        if self._known is None:
            self._known = self._maintainer.store.progress()
        assert self._known is not None, "micro-batches follow the first build"
        return self._known

    def read(self, ranges: list[OffsetRange]) -> pa.Table:
        """The records of these ranges."""
        with self._reading:
            found = self._log.records(ranges)
        if found is not None:
            return found
        options = {
            **self._context.log_options,
            **options_for(ranges),
            "includeHeaders": "true" if self._has_headers else "false",
        }
        return self._context.spark.read.format("headrace").options(**options).load().toArrow()

    def _step(self) -> bool:
        clock = self._context.clock
        began_ms = clock.monotonic_ms()
        before = self.progress()
        asked_ms = clock.wall_ms()
        with self._reading:
            ends = self._log.ends(before.offsets)
        tracker = self._lag_tracker = self._lag_tracker or LagTracker({}, before.offsets, {}, began_ms)
        tracker.observed(ends, asked_ms)
        ranges = ranges_between(before.offsets, self._member.cut(before.offsets, ends), MAX_RECORDS)
        if not ranges:
            return False
        with self._running.work.of(Work.SPEED):
            done = self._maintainer.step(ranges, self.read(ranges), before, self._member.begin)
        self._known = done.progress
        now_ms = clock.monotonic_ms()
        tracker.committed(done.progress.offsets, now_ms)
        self._context.metrics.micro_batch(
            *self._running.version.key,
            seconds=(now_ms - began_ms - self._member.waited_ms) / 1000,
            events=done.records,
            dead_letters=done.bad,
            dropped_late=done.late,
        )
        return True
