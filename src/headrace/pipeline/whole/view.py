"""Runs a version of a view whose whole answer is computed again, in either architecture.

The answer is computed every ``batch_every_ms``, or when a command asks for it. Between builds the version only watches
where the log ends, so that its lag is known.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from headrace.pipeline.lambda_.speed_log import SpeedLog
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.serving.catalog import Batch, Version, VersionEvent
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read
from headrace.pipeline.touched.master_data import ArchivedRecords, MasterData, master_data
from headrace.pipeline.touched.store import TouchedStore
from headrace.pipeline.version.built_version import BuiltVersion
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.whole.answer import WholeAnswer

if TYPE_CHECKING:
    from headrace.pipeline.decoding.dead_letters import DeadLetters

#: How often the log is asked where it ends.
_WATCH_S = 1.0


class WholeVersion(BuiltVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        self._data: MasterData = master_data(context, self.definition)
        self._dead_letters: dict[str, DeadLetters] = {}
        self._answer_of_query: WholeAnswer | None = None
        self._lag_tracker: LagTracker | None = None

    @property
    def _is_rebuilt(self) -> bool:
        return True

    def lag(self) -> Lag:
        tracker = self._lag_tracker
        return Lag() if tracker is None or not self._has_build else tracker.lag(self.context.clock.monotonic_ms())

    def has_caught_up(self) -> bool:
        """From the first build on: the answer is always that of the last build."""
        return self._has_build

    def has_fallen_behind(self) -> bool:
        return False

    def reading(self) -> int:
        if self._answer_of_query is None or self._has_build:
            return 0
        spark = self.context.spark
        return records_read(spark, jobs_with_tag(spark, self._tag))

    def run_once(self) -> None:
        self._once(self._advance)

    def _advance(self) -> None:
        self._run_build(is_full=True)

    def drop(self) -> None:
        with self.context.database.begin() as connection:
            TouchedStore(self.context.database, self.context.catalog, *self.version.key).drop(connection)

    # ------------------------------------------------------------------------------------------------- for its builds

    @property
    def _opened(self) -> WholeAnswer:
        assert self._answer_of_query is not None, f"{self.label} is not open"
        return self._answer_of_query

    def _open(self) -> None:
        self._dead_letters = {source.name: self.dead_letters(source) for source in self.definition.inputs}
        self._answer_of_query = WholeAnswer(self.context, self.definition, self.version, self._data, self._dead_letters)
        self.context.catalog.set_state(*self.version.key, VersionEvent.STARTED)

    def _close(self) -> None:
        for sender in self._dead_letters.values():
            sender.close()

    def _check_topics(self) -> None:
        progress = self._opened.store.progress()
        if progress is not None:
            self._data.check_topics(progress)

    def _last_build(self) -> Batch | None:
        return self._opened.store.last_build()

    def _build(self, *, is_full: bool) -> str:  # noqa: ARG002  every build is full
        number = self._opened.build(self._stopping.is_set)
        self._observe_commit()
        return f"build {number}"

    def _observe_commit(self) -> None:
        progress = self._opened.store.progress()
        if progress is not None:
            now_ms = self.context.clock.monotonic_ms()
            tracker = self._lag_tracker = self._lag_tracker or LagTracker({}, progress.offsets, {}, now_ms)
            tracker.committed(progress.offsets, now_ms)

    def _follow(self) -> None:
        """Watches where the log ends."""
        clock = self.context.clock
        self._observe_commit()
        log = SpeedLog(self.context, self._data.which_topics, with_headers=False)
        with closing(log):
            while not self._stopping.is_set():
                progress = self._opened.store.progress()
                if progress is not None and self._lag_tracker is not None:
                    asked_ms = clock.wall_ms()
                    self._lag_tracker.observed(log.ends(progress.offsets), asked_ms)
                self._stopping.wait(_WATCH_S)

    def _archive(self) -> None:
        progress = self._opened.store.progress()
        assert isinstance(self._data, ArchivedRecords)
        if progress is not None:
            self._data.archive(progress.offsets)

    def _advice(self) -> str:
        return self._data.advice()
