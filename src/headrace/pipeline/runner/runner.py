"""``headrace views run``: makes what the catalog wants true, and writes what is.

Every 200 ms the runner reads the catalog and compares it with the versions that it has at work. ``decisions`` says what
follows; a command only ever changes what is wanted. So it does not matter who dies when: whoever starts next reads the
catalog and goes on.

**Failures.** A version that failed is tried again later (``retries``) if ``failures.verdict_on`` says that it may pass;
otherwise it stays failed until a command asks (request ``restart``) or a new runner begins. Its state says so
meanwhile, with the error. No other version is touched by it: one that failed while it served goes on being read as it
is.

**The Java process** is shared by all versions. If it dies, all of them are stopped, another process is started, and the
versions start again from what is committed. ``suspects`` finds the version that is to blame, and keeps it from running.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.progress.progress_log import ProgressLines
from headrace.pipeline.runner.active_versions import AtWork, Make, in_flight, running_version, stop_all, stop_quietly
from headrace.pipeline.runner.decisions import Decision, decide, runs_otherwise
from headrace.pipeline.runner.failure_log import FailureLines, set_aside_text
from headrace.pipeline.runner.java_supervisor import JavaKeeper
from headrace.pipeline.runner.quarantine import Suspects
from headrace.pipeline.runner.reports import Obstacle, Reports
from headrace.pipeline.runner.requests import RequestDesk
from headrace.pipeline.runner.retries import Key, Retries
from headrace.pipeline.runner.view_switch import Switching
from headrace.pipeline.serving.catalog import Event, State, Version, View, Wanted
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, IllegalTransition
from headrace.pipeline.serving.java_crashes import JavaDeaths
from headrace.pipeline.spark.java_process import Java, JavaGone, LastingJava
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.failures import Verdict, summary_of, verdict_on
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")

TICK_S = 0.2


class Runner:
    """One thread calls it; ``run`` is that thread's loop, ``tick`` is one round of it."""

    def __init__(self, around: Surroundings, make: Make = running_version, java: Java | None = None) -> None:
        self._around, self._make = around, make
        self._catalog, self._clock = around.catalog, around.clock
        self._suspects = Suspects(JavaDeaths(around.database), around.clock)
        self._java = JavaKeeper(java or LastingJava(), self._suspects, around.clock)
        self._at_work: dict[Key, AtWork] = {}
        self._retries = Retries(around.clock)
        self._desk = RequestDesk(around.catalog, self._try_again)
        self._progress = ProgressLines(self._clock)
        self._reports = Reports(around.catalog, around.clock)
        self._switching = Switching(around, self._reports)
        self._is_cut_off = False
        self._lines = FailureLines()
        self._stop_asked = threading.Event()

    # ------------------------------------------------------------------------------------------------------- loops

    def run(self, stop: threading.Event, check: Callable[[], None] = lambda: None) -> None:
        """Until it is told to stop; then all versions are stopped, and the catalog says so.

        :param check: called at every round; whatever it raises that does not pass ends the runner.
        """
        self._stop_asked = stop
        try:
            while not stop.is_set():
                self._round(check)
                stop.wait(TICK_S)
            logger.info("stopping")
        finally:
            self.close()

    def _round(self, check: Callable[[], None]) -> None:
        """The database may be away: versions notice for themselves, and we wait for it."""
        try:
            check()
            self.tick()
        except (DatabaseUnreachable, DatabaseBusy) as error:
            if not self._is_cut_off:
                logger.warning("waiting for the serving database: %s", error)
            self._is_cut_off = True
        else:
            if self._is_cut_off:
                logger.info("the serving database is back")
            self._is_cut_off = False

    def tick(self) -> None:
        if not self._has_java():
            return
        try:
            self._see_to_all()
        except JavaGone as error:
            logger.debug("the Java process is gone", exc_info=error)
            self._java_died()

    def _see_to_all(self) -> None:
        with self._around.database.read() as connection:
            views = {view.name: view for view in self._catalog.views(connection)}
            versions = self._catalog.versions(None, connection)
        for version in versions:
            if self._stop_asked.is_set():  # starting may take long when something is away
                return
            try:
                self._see_to(views[version.view], version)
            except (DatabaseUnreachable, DatabaseBusy, JavaGone):
                raise
            except IllegalTransition as error:  # a command was faster; the next round sees what it did
                logger.debug("%s", error)
            except Exception as error:  # noqa: BLE001  the others go on, and the next round tries it again
                self._java.check(error)
                self._lines.complain(version, error)
            else:
                self._lines.no_complaint(version)
        known = {_key(version): version for version in versions}
        self._forget_but(known.keys())
        self._suspects.go_on(lambda key: self._is_trial_over(known.get(key)))
        self._reports.write()
        self._desk.pass_on(
            {view: [version for version in versions if version.view == view] for view in views},
            {key: at_work.running for key, at_work in self._at_work.items()},
        )

    def run_once(self, stop: threading.Event | None = None) -> list[str]:
        """Brings every version that is wanted up to what the log has now, one after the other; which are not there."""
        failed: list[str] = []
        self._desk.restart(self._catalog.versions())
        for version in self._catalog.versions():
            is_stopped = stop is not None and stop.is_set()
            if version.wanted is Wanted.DROP or version.state is State.DROPPING:
                if not is_stopped:
                    self._drop(version)
            elif version.wanted is Wanted.RUN and (is_stopped or not self._ran_once(version)):
                failed.append(version.who)
        return failed

    def _ran_once(self, version: Version) -> bool:
        """Again after a death of the Java process; the second one sets the version aside."""
        while (said := self._suspects.why_set_aside(_key(version))) is None:
            try:
                return self._try_once(version)
            except JavaGone as error:
                logger.debug("the Java process is gone", exc_info=error)
                self._java_died()
                while not self._is_with(self._java.started()):
                    pass
        self._keep_aside(self._fresh(version), said)
        return False

    def _try_once(self, version: Version) -> bool:
        running, began_ms = None, self._clock.wall_ms()
        try:
            running = self._make(self._around, self._at_start(version))
            self._at_work[_key(version)] = self._now_at_work(running)
            logger.info("%s: running once", version.who)
            with running.work.of(Work.START):
                running.run_once()
        except Exception as error:  # noqa: BLE001  whatever it is, it is this version's, and the others go on
            self._fail(version, error, running)
            self._reports.write(now=True)
            return False
        self._suspects.clear(_key(version), running.work.done())
        self._reports.is_complete(_key(version), began_ms)
        self._catalog.set_state(version.view, version.version, Event.CAUGHT_UP)
        is_switched = self._switching.follow(self._catalog.view(version.view), self._fresh(version), running)
        self._catalog.set_state(version.view, version.version, Event.STOPPED)
        self._let_go(_key(version))
        self._reports.write(now=True)
        logger.info("%s: done", version.who)
        return is_switched

    def close(self) -> None:
        """Stops everything, all at the same time; the catalog says so."""
        stop_all(self._at_work, self._catalog)

    # ------------------------------------------------------------------------------------------------ one version

    def _see_to(self, view: View, version: Version) -> None:
        self._count(view, version)
        at_work = self._at_work.get(_key(version))
        decision = decide(version, is_at_work=at_work is not None)
        if decision is Decision.WATCH:
            assert at_work is not None
            self._watch(view, version, at_work)
        elif decision in (Decision.START, Decision.RETRY) and self._may_start(version, decision):
            self._start(version)
        elif decision is Decision.STOP:
            self._stop(version)
        elif decision is Decision.DROP:
            self._drop(version)

    def _may_start(self, version: Version, decision: Decision) -> bool:
        key = _key(version)
        if (said := self._suspects.why_set_aside(key)) is not None:
            self._keep_aside(version, said)
            return False
        return not self._suspects.has_to_wait(key) and (decision is Decision.START or self._retries.is_due(key))

    def _start(self, version: Version) -> None:
        running = None
        try:
            running = self._make(self._around, self._at_start(version))
            self._at_work[_key(version)] = self._now_at_work(running)
            with running.work.of(Work.START):
                running.start()
        except IllegalTransition:
            self._let_go(_key(version))
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is this version's, and the others go on
            self._fail(version, error, running)
            return
        logger.info("%s: started (%s)", version.who, running.definition.architecture)

    def _at_start(self, version: Version) -> Version:
        """In state ``starting``, whatever it was in."""
        with self._around.database.begin() as connection:
            state = self._catalog.version(version.view, version.version, connection).state
            events = {State.STARTING: (), State.STOPPED: (Event.RESTARTED,), State.FAILED: (Event.RESTARTED,)}
            for event in events.get(state, (Event.STOPPED, Event.RESTARTED)):
                self._catalog.set_state(version.view, version.version, event, connection=connection)
            return self._catalog.version(version.view, version.version, connection)

    def _now_at_work(self, running: RunningVersion) -> AtWork:
        return AtWork(running, self._clock.monotonic_ms(), self._commits(_key(running.version)))

    def _watch(self, view: View, version: Version, at_work: AtWork) -> None:
        running = at_work.running
        self._suspects.clear(_key(version), running.work.done())
        failure = running.failure()
        if failure is not None:
            self._fail(version, failure, running)
        elif runs_otherwise(version, running.version):
            logger.info("%s: restarting, as its definition says something else now", version.who)
            self._stop(version)
        elif version.state is State.REPLAYING and running.has_caught_up():
            self._catalog.set_state(version.view, version.version, Event.CAUGHT_UP)
            self._reports.is_past(_key(version), Obstacle.FAILED_TRY)
            logger.info("%s: caught up", version.who)
            self._switching.follow(view, self._fresh(version), running)
        elif version.state is State.CAUGHT_UP and running.has_fallen_behind():
            self._catalog.set_state(version.view, version.version, Event.FELL_BEHIND)
            logger.info("%s: fallen behind by %s records", version.who, running.behind().records)
        elif version.state is State.CAUGHT_UP:
            self._switching.follow(view, version, running)
        elif version.state is State.REPLAYING:
            if self._reports.may_ask(_key(version)):
                self._reports.reads(_key(version), running.reading())
            self._progress.tell(version.who, running.behind())

    def _stop(self, version: Version) -> None:
        at_work = self._at_work.get(_key(version))
        if at_work is not None:
            at_work.running.stop()
        self._catalog.set_state(version.view, version.version, Event.STOPPED)
        self._let_go(_key(version))
        logger.info("%s: stopped", version.who)

    def _drop(self, version: Version) -> None:
        """In steps that may each be done again: a process that dies in between leaves it ``dropping``."""
        key = _key(version)
        if version.state is not State.DROPPING:
            if key in self._at_work:
                self._at_work[key].running.stop()
            with self._around.database.begin() as connection:
                if version.state is State.SERVING:  # of a view that is dropped as a whole
                    self._catalog.set_state(*key, Event.STOPPED, connection=connection)
                self._catalog.set_state(*key, Event.DROPPED, connection=connection)
            self._let_go(key)
            self._retries.forget(key)
        if not self._retries.is_due(key):
            return
        try:
            self._make(self._around, version).drop()
            with self._around.database.begin() as connection:
                self._catalog.remove_version(connection, *key)
                if not self._catalog.versions(version.view, connection):
                    self._catalog.remove_view(connection, version.view)
        except Exception as error:  # noqa: BLE001  it is tried again, and the others go on
            self._retries.failed(key, Verdict.TRANSIENT)
            logger.warning("%s: not dropped yet: %s", version.who, summary_of(error))
            return
        self._around.metrics.forget(*key)
        logger.info("%s: dropped", version.who)

    # --------------------------------------------------------------------------------------------------- failures

    def _fail(self, version: Version, error: BaseException, running: RunningVersion | None) -> None:
        self._java.check(error)
        key, text, verdict = _key(version), summary_of(error), verdict_on(error)
        if running is not None:
            stop_quietly(running)
        at_work = self._at_work.get(key)
        ran_ms = 0 if at_work is None else self._clock.monotonic_ms() - at_work.since_ms
        has_moved = at_work is not None and self._commits(key) > at_work.commits
        wait_ms = self._retries.failed(key, verdict, ran_ms, has_moved=has_moved)
        if verdict is Verdict.EXHAUSTED:
            self._suspects.blame({key: (running.work.suspects() if running else ()) or (Work.START,)}, text)
            if self._suspects.why_set_aside(key) is not None:
                wait_ms, text = None, set_aside_text(version.view, text)
        due_ms = None if wait_ms is None else self._clock.wall_ms() + wait_ms
        self._let_go(key)  # first: if the database is away too, the next round finds nothing at work, and starts it
        self._catalog.set_state(version.view, version.version, Event.FAILED, error=text, due_ms=due_ms)
        if due_ms is not None:
            self._reports.meets(key, Obstacle.FAILED_TRY, f"failed at its last try: {text}")
        self._around.metrics.of(*key).failures += 1
        self._lines.failed(version, text, wait_ms, error)

    # ------------------------------------------------------------------------------------------- the Java process

    def _has_java(self) -> bool:
        if self._java.has_ended():
            self._java_died()
        return not self._java.is_missing or self._is_with(self._java.started_if_due())

    def _java_died(self) -> None:
        self._java.died(in_flight(self._at_work))
        self.close()

    def _is_with(self, spark: SparkSession | None) -> bool:
        """Whether there is a session to go on with, which then is that of all versions."""
        if spark is not None:
            self._around = replace(self._around, spark=spark)
        return spark is not None

    def _is_trial_over(self, version: Version | None) -> bool:
        if version is None or version.wanted is not Wanted.RUN or version.state is State.FAILED:
            return True
        at_work = self._at_work.get(_key(version))
        return at_work is not None and at_work.running.work.is_idle and at_work.running.behind().records == 0

    def _keep_aside(self, version: Version, said: str) -> None:
        if version.state is not State.FAILED:
            self._at_start(version)
            text = set_aside_text(version.view, said)
            self._catalog.set_state(version.view, version.version, Event.FAILED, error=text)
            self._around.metrics.of(*_key(version)).failures += 1
            self._lines.failed(version, text, None)

    def _try_again(self, key: Key) -> None:
        self._retries.forget(key)
        self._suspects.forgive(key)

    # ---------------------------------------------------------------------------------------------------- helpers

    def _commits(self, key: Key) -> int:
        counts = self._around.metrics.of(*key)
        return counts.micro_batches + counts.batches

    def _fresh(self, version: Version) -> Version:
        return self._catalog.version(version.view, version.version)

    def _let_go(self, key: Key) -> None:
        self._at_work.pop(key, None)
        self._desk.let_go(key)
        self._reports.let_go(key)

    def _forget_but(self, known: Collection[Key]) -> None:
        for key in [key for key in self._at_work if key not in known]:  # its rows were deleted by hand
            stop_quietly(self._at_work.pop(key).running)
        self._retries.forget_but(known)
        self._suspects.forget_but(known)
        self._reports.forget_but(known)

    def _count(self, view: View, version: Version) -> None:
        counts = self._around.metrics.of(version.view, version.version)
        counts.state, counts.serves = version.state, view.serving_version == version.version
        if counts.serves:  # a command may have switched to it
            self._reports.is_past(_key(version), Obstacle.NO_SWITCH)
        at_work = self._at_work.get(_key(version))
        if at_work is not None:
            behind = at_work.running.behind()
            counts.records_behind, counts.records_per_s = behind.records, behind.per_s
            self._reports.saw(_key(version), behind)
            if self._commits(_key(version)) > at_work.commits:
                self._reports.is_past(_key(version), Obstacle.FAILED_TRY)
        complete_ms = self._reports.complete_ms(_key(version))
        if complete_ms is not None:
            counts.age_seconds = max(0, self._clock.wall_ms() - complete_ms) / 1000


def _key(version: Version) -> Key:
    return version.view, version.version
