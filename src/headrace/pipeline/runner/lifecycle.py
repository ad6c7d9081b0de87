"""Starts, watches, stops and drops the versions that run in this process, and handles their failures.

Each method changes the state of a version in the catalog and what runs here. A method that raises leaves the version in
a state from which the next round continues.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.common_cut.eligibility import why_outside
from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.progress.progress_log import ProgressLog
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.runner.active_versions import (
    ActiveVersion,
    VersionFactory,
    stop_all,
    stop_quietly,
    unfinished_work,
)
from headrace.pipeline.runner.costs import Costs
from headrace.pipeline.runner.decisions import Decision, decide, needs_restart
from headrace.pipeline.runner.failure_log import FailureLog, quarantine_text
from headrace.pipeline.runner.java_supervisor import JavaSupervisor
from headrace.pipeline.runner.quarantine import Quarantine
from headrace.pipeline.runner.reports import Obstacle, Reports
from headrace.pipeline.runner.retries import Retries
from headrace.pipeline.runner.starts import Starts
from headrace.pipeline.runner.view_switch import Outcome, ViewSwitch
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionEvent, VersionKey, VersionState, View
from headrace.pipeline.serving.catalog_tables.version_costs import VersionCosts
from headrace.pipeline.serving.errors import IllegalTransition
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import FailureKind, classify_failure, summary_of
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")

#: The events that lead from each state to ``starting``; from all others, STOPPED and RESTARTED.
_TO_STARTING = {
    VersionState.STARTING: (),
    VersionState.STOPPED: (VersionEvent.RESTARTED,),
    VersionState.FAILED: (VersionEvent.RESTARTED,),
}


class Lifecycle:
    """Used by the runner's thread only."""

    def __init__(
        self, context: RunContext, create: VersionFactory, java: JavaSupervisor, quarantine: Quarantine
    ) -> None:
        self._context, self._create = context, create
        self._catalog, self._clock = context.catalog, context.clock
        self._java, self._quarantine = java, quarantine
        self._active: dict[VersionKey, ActiveVersion] = {}
        self.starts = Starts(stop_quietly)
        self._retries = Retries(context.clock)
        self._progress = ProgressLog(context.clock)
        self.failures = FailureLog()
        self.reports = Reports(context.catalog, context.clock)
        self.costs = Costs(VersionCosts(context.database), context.metrics, context.clock)
        self._view_switch = ViewSwitch(context, self.reports)
        #: The versions that have run once, and wait for others to be switched to together.
        self._waiting: dict[VersionKey, RunningVersion] = {}

    @property
    def running(self) -> dict[VersionKey, RunningVersion]:
        """The versions that have started."""
        return {key: active.running for key, active in self._active.items() if key not in self.starts}

    def unfinished_work(self) -> dict[VersionKey, frozenset[Work]]:
        return unfinished_work(self._active)

    def use_session(self, spark: SparkSession) -> None:
        """Versions that start from now on use this session."""
        self._context = replace(self._context, spark=spark)

    def stop_all(self) -> None:
        """Stops all versions at the same time, and sets their state in the catalog."""
        for key in self._active:
            self.starts.abandon(key)
        with self._context.common_cut.paused(self._clock):
            stop_all(self._active, self._catalog)

    def try_again(self, key: VersionKey) -> None:
        """Forgets the failures of a version, because a user asks to try it again."""
        self._retries.forget(key)
        self._quarantine.release(key)

    def keep_only(self, known: Collection[VersionKey]) -> None:
        for key in [key for key in self._active if key not in known]:  # its rows were deleted by hand
            self.starts.abandon(key)
            stop_quietly(self._active.pop(key).running)
        self._retries.keep_only(known)
        self._quarantine.keep_only(known)
        self.reports.keep_only(known)

    def has_nothing_to_do(self, version: Version | None) -> bool:
        """Whether the version has read the whole log, or does not run and should not."""
        if version is None or version.desired_state is not DesiredState.RUN or version.state is VersionState.FAILED:
            return True
        active = self._active.get(version.key)
        return active is not None and active.running.work.is_idle and active.running.lag().records == 0

    # --------------------------------------------------------------------------------------------------- one version

    def handle(self, view: View, version: Version) -> bool:
        """Does what the catalog and the state of the version require now.

        :return: whether the version should be started.
        """
        self._update_metrics(view, version)
        active = self._active.get(version.key)
        decision = decide(version, is_active=active is not None)
        if decision is Decision.WATCH:
            assert active is not None
            if version.key not in self.starts:
                self._watch(view, version, active)
        elif decision in (Decision.START, Decision.RETRY):
            return self._may_start(version, decision)
        elif decision is Decision.STOP:
            self._stop(version)
        elif decision is Decision.DROP:
            self.drop(version)
        return False

    def run_once(self, version: Version) -> bool:
        """Processes everything that the log has now.

        :return: False if the version failed, or should serve and could not be switched to.
        """
        running, began_ms = None, self._clock.wall_ms()
        try:
            running = self._create(self._context, self._set_starting(version))
            self.activate(running)
            logger.info("%s: running once", version.label)
            with running.work.of(Work.START):
                running.run_once()
        except Exception as error:  # noqa: BLE001  the error belongs to this version; the others go on
            self._fail(version, error, running)
            self.reports.write(now=True)
            return False
        self._quarantine.clear(version.key, running.work.done())
        self.reports.set_complete(version.key, began_ms)
        self._catalog.set_state(*version.key, VersionEvent.CAUGHT_UP)
        view = self._catalog.view(version.view)
        outcome = self._view_switch.switch_if_ready(view, self._catalog.version(*version.key), running)
        if outcome is Outcome.WAITS:
            self._waiting[version.key] = running
            return True
        self._end_once(version)
        return outcome is not Outcome.REFUSED

    def _end_once(self, version: Version) -> None:
        self._catalog.set_state(*version.key, VersionEvent.STOPPED)
        self._deactivate(version.key)
        self.reports.write(now=True)
        logger.info("%s: done", version.label)

    def end_waiting(self) -> list[str]:
        """Ends the versions that have run once and waited for others. Those that can be switched to now, are.

        :return: the versions that should serve and do not.
        """
        failed = []
        for key, running in self._waiting.items():
            version = self._catalog.version(*key)
            outcome = Outcome.DONE
            if version.state is VersionState.CAUGHT_UP:
                view = self._catalog.view(version.view)
                outcome = self._view_switch.switch_if_ready(view, version, running, now=True)
            elif version.state is not VersionState.SERVING:  # the Java process died meanwhile
                outcome = Outcome.WAITS
            if outcome in (Outcome.WAITS, Outcome.REFUSED):
                failed.append(version.label)
            if version.state is not VersionState.STOPPED:
                self._end_once(version)
        self._waiting.clear()
        return failed

    def _may_start(self, version: Version, decision: Decision) -> bool:
        if (reason := self._quarantine.reason_for(version.key)) is not None:
            self.keep_quarantined(version, reason)
            return False
        is_due = decision is Decision.START or self._retries.is_due(version.key)
        return is_due and not self._quarantine.must_wait(version.key)

    def expect(self, version: Version) -> None:
        """Versions that start at the same offsets wait for this one, so that they go on at the same offsets."""
        with self._context.database.read() as connection:
            progress = self._catalog.progress(connection, *version.key)
        if progress is not None:
            trigger_ms = ViewDefinition.from_dict(version.definition).trigger_ms
            same_offsets = self._context.project.same_offsets
            if why_outside(stored_way(version.definition), trigger_ms, same_offsets=same_offsets) is None:
                self._context.common_cut.expect(version.key, progress.offsets, self._clock)

    def begin(self, version: Version) -> None:
        """Begins to start a version. ``started`` ends the start."""
        try:
            running = self._create(self._context, self._set_starting(version))
        except IllegalTransition:
            raise
        except Exception as error:  # noqa: BLE001  the error belongs to this version; the others go on
            self._fail(version, error, None)
            return
        self.activate(running)
        self.starts.begin(running)

    def started(self, running: RunningVersion, error: BaseException | None) -> None:
        """Notes that a version has started.

        :param error: what the start raised.
        """
        version = running.version
        if isinstance(error, IllegalTransition):
            self._deactivate(version.key)
            raise error
        if error is not None:
            self._fail(version, error, running)
            return
        logger.info("%s: started (%s)", version.label, running.definition.architecture)

    def _set_starting(self, version: Version) -> Version:
        """Sets the state ``starting``, whatever the state was, and returns the version."""
        with self._context.database.begin() as connection:
            state = self._catalog.version(*version.key, connection).state
            for event in _TO_STARTING.get(state, (VersionEvent.STOPPED, VersionEvent.RESTARTED)):
                self._catalog.set_state(*version.key, event, connection=connection)
            return self._catalog.version(*version.key, connection)

    def _watch(self, view: View, version: Version, active: ActiveVersion) -> None:
        running = active.running
        self._quarantine.clear(version.key, running.work.done())
        failure = running.failure()
        if failure is not None:
            self._fail(version, failure, running)
        elif needs_restart(version, running.version):
            logger.info("%s: restarting, because its definition has changed", version.label)
            self._stop(version)
        elif version.state is VersionState.REPLAYING and running.has_caught_up():
            self._catalog.set_state(*version.key, VersionEvent.CAUGHT_UP)
            self.reports.clear_obstacle(version.key, Obstacle.FAILED_TRY)
            logger.info("%s: caught up", version.label)
            self._view_switch.switch_if_ready(view, self._catalog.version(*version.key), running)
        elif version.state is VersionState.CAUGHT_UP and running.has_fallen_behind():
            self._catalog.set_state(*version.key, VersionEvent.FELL_BEHIND)
            logger.info("%s: has fallen behind by %s records", version.label, running.lag().records)
        elif version.state is VersionState.CAUGHT_UP:
            self._view_switch.switch_if_ready(view, version, running)
        elif version.state is VersionState.REPLAYING:
            if self.reports.is_reading_due(version.key):
                self.reports.set_reading(version.key, running.reading())
            self._progress.log(version.label, running.lag())

    def _stop(self, version: Version) -> None:
        active = self._active.get(version.key)
        if active is not None:
            active.running.stop()
        self._catalog.set_state(*version.key, VersionEvent.STOPPED)
        self._deactivate(version.key)
        logger.info("%s: stopped", version.label)

    def drop(self, version: Version) -> None:
        """Drops the version in steps that can be repeated: a process that dies in between leaves it ``dropping``."""
        key = version.key
        if version.state is not VersionState.DROPPING:
            if key in self._active:
                self._active[key].running.stop()
            with self._context.database.begin() as connection:
                if version.state is VersionState.SERVING:  # the whole view is dropped
                    self._catalog.set_state(*key, VersionEvent.STOPPED, connection=connection)
                self._catalog.set_state(*key, VersionEvent.DROPPED, connection=connection)
            self._deactivate(key)
            self._retries.forget(key)
        if not self._retries.is_due(key):
            return
        try:
            self._create(self._context, version).drop()
            with self._context.database.begin() as connection:
                self._catalog.remove_version(connection, *key)
                if not self._catalog.versions(version.view, connection):
                    self._catalog.remove_view(connection, version.view)
        except Exception as error:  # noqa: BLE001  it is tried again, and the other versions go on
            self._retries.failed(key, FailureKind.TRANSIENT)
            logger.warning("%s: not dropped yet: %s", version.label, summary_of(error))
            return
        self._context.metrics.forget(*key)
        logger.info("%s: dropped", version.label)

    # ------------------------------------------------------------------------------------------------------ failures

    def _fail(self, version: Version, error: BaseException, running: RunningVersion | None) -> None:
        self._java.check(error)
        key, text, kind = version.key, summary_of(error), classify_failure(error)
        if running is not None:
            stop_quietly(running)
        active = self._active.get(key)
        ran_ms = 0 if active is None else self._clock.monotonic_ms() - active.since_ms
        has_committed = active is not None and self._commits(key) > active.commits
        wait_ms = self._retries.failed(key, kind, ran_ms, has_committed=has_committed)
        if kind is FailureKind.OUT_OF_MEMORY:
            unfinished = (running.work.unfinished() if running else ()) or (Work.START,)
            self._quarantine.record_crash({key: unfinished}, text)
            if self._quarantine.reason_for(key) is not None:
                wait_ms, text = None, quarantine_text(version.view, text)
        due_ms = None if wait_ms is None else self._clock.wall_ms() + wait_ms
        # First: if the database is unavailable too, the next round finds the version inactive and starts it.
        self._deactivate(key)
        self._catalog.set_state(*key, VersionEvent.FAILED, error=text, due_ms=due_ms)
        if due_ms is not None:
            self.reports.set_obstacle(key, Obstacle.FAILED_TRY, f"failed at its last try: {text}")
        self._context.metrics.of(*key).failures += 1
        self.failures.failed(version, text, wait_ms, error)

    def keep_quarantined(self, version: Version, reason: str) -> None:
        """Sets the state of a quarantined version to failed, if it is not."""
        if version.state is not VersionState.FAILED:
            self._set_starting(version)
            text = quarantine_text(version.view, reason)
            self._catalog.set_state(*version.key, VersionEvent.FAILED, error=text)
            self._context.metrics.of(*version.key).failures += 1
            self.failures.failed(version, text, None)

    # ------------------------------------------------------------------------------------------------------- helpers

    def activate(self, running: RunningVersion) -> None:
        """Adds a version to those that run in this process."""
        key = running.version.key
        self._active[key] = ActiveVersion(running, self._clock.monotonic_ms(), self._commits(key))

    def _deactivate(self, key: VersionKey) -> None:
        self.starts.abandon(key)
        self._active.pop(key, None)
        self._context.common_cut.forget(key, self._clock)
        self.reports.version_stopped(key)

    def _commits(self, key: VersionKey) -> int:
        counts = self._context.metrics.of(*key)
        return counts.micro_batches + counts.batches

    def _update_metrics(self, view: View, version: Version) -> None:
        counts = self._context.metrics.of(*version.key)
        counts.state, counts.serves = version.state, view.serving_version == version.version
        if counts.serves:  # a command may have switched to it
            self.reports.clear_obstacle(version.key, Obstacle.NO_SWITCH)
        active = self._active.get(version.key)
        if active is not None and version.key not in self.starts:
            lag = active.running.lag()
            counts.records_behind, counts.records_per_s = lag.records, lag.per_s
            self.reports.set_lag(version.key, lag)
            if self._commits(version.key) > active.commits:
                self.reports.clear_obstacle(version.key, Obstacle.FAILED_TRY)
        complete_ms = self.reports.complete_ms(version.key)
        if complete_ms is not None:
            counts.age_seconds = max(0, self._clock.wall_ms() - complete_ms) / 1000
