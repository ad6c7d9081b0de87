"""``headrace views run``: makes what the catalog wants true, and writes what is.

Every 200 ms the runner reads the catalog and compares it with the versions that it has at work. ``decisions`` says what
follows; a command only ever changes what is wanted. So it does not matter who dies when: whoever starts next reads the
catalog and goes on.

**Failures.** A version that failed is tried again later (``retries``) if ``failures.verdict_on`` says that it may pass;
otherwise it stays failed until a command asks (request ``restart``) or a new runner begins. Its state says so
meanwhile, with the error. No other version is touched by it: one that failed while it served goes on being read as it
is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from logging import getLogger

from headrace.client.errors import HeadraceError
from headrace.pipeline.decisions import Decision, decide, may_switch
from headrace.pipeline.failures import Verdict, summary_of, verdict_on
from headrace.pipeline.progress_lines import ProgressLines
from headrace.pipeline.request_desk import RequestDesk
from headrace.pipeline.retries import Key, Retries
from headrace.pipeline.running import RunningVersion, Surroundings
from headrace.pipeline.serving.catalog import Event, State, Version, View, Wanted
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, IllegalTransition, ServingError

logger = getLogger("headrace.views")

TICK_S = 0.2
#: A switch that could not be done is not tried at every tick: in PostgreSQL it waits for readers.
_SWITCH_AGAIN_MS = 5_000

Make = Callable[[Surroundings, Version], RunningVersion]


def running_version(around: Surroundings, version: Version) -> RunningVersion:
    """Of the architecture that its definition names."""
    if version.definition["architecture"] == "lambda":
        from headrace.pipeline.lambda_view import LambdaView

        return LambdaView(around, version)
    from headrace.pipeline.versions import KappaView

    return KappaView(around, version)


@dataclass(frozen=True)
class _AtWork:
    """:param commits: how many there were when it started."""

    running: RunningVersion
    since_ms: int
    commits: int


class Runner:
    """One thread calls it; ``run`` is that thread's loop, ``tick`` is one round of it."""

    def __init__(self, around: Surroundings, make: Make = running_version) -> None:
        self._around, self._make = around, make
        self._catalog, self._clock = around.catalog, around.clock
        self._at_work: dict[Key, _AtWork] = {}
        self._retries = Retries(around.clock)
        self._switch_due_ms: dict[Key, int] = {}
        self._desk = RequestDesk(around.catalog, self._retries)
        self._progress = ProgressLines(self._clock)
        self._is_cut_off = False
        self._complaints: dict[str, str] = {}
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
        with self._around.database.read() as connection:
            views = {view.name: view for view in self._catalog.views(connection)}
            versions = self._catalog.versions(None, connection)
        for version in versions:
            if self._stop_asked.is_set():  # starting may take long when something is away
                return
            try:
                self._see_to(views[version.view], version)
            except (DatabaseUnreachable, DatabaseBusy):
                raise
            except IllegalTransition as error:  # a command was faster; the next round sees what it did
                logger.debug("%s", error)
            except Exception as error:  # noqa: BLE001  the others go on, and the next round tries it again
                self._complain(version, error)
            else:
                self._complaints.pop(version.who, None)
        self._forget_but({_key(version) for version in versions})
        self._desk.pass_on(
            {view: [version for version in versions if version.view == view] for view in views},
            {key: at_work.running for key, at_work in self._at_work.items()},
        )

    def run_once(self, stop: threading.Event | None = None) -> list[str]:
        """Brings every version that is wanted up to what the log has now, one after the other; what failed."""
        failed: list[str] = []
        for version in self._catalog.versions():
            if stop is not None and stop.is_set():
                break
            if version.wanted is Wanted.DROP or version.state is State.DROPPING:
                self._drop(version)
            elif version.wanted is Wanted.RUN and not self._ran_once(version):
                failed.append(version.who)
        return failed

    def _ran_once(self, version: Version) -> bool:
        running = None
        try:
            running = self._make(self._around, self._at_start(version))
            logger.info("%s: running once", version.who)
            running.run_once()
        except Exception as error:  # noqa: BLE001  whatever it is, it is this version's, and the others go on
            self._fail(version, error, running)
            return False
        self._catalog.set_state(version.view, version.version, Event.CAUGHT_UP)
        self._watch_switch(self._catalog.view(version.view), self._fresh(version), running)
        self._catalog.set_state(version.view, version.version, Event.STOPPED)
        logger.info("%s: done", version.who)
        return True

    def close(self) -> None:
        """Stops everything, all at the same time."""
        if not self._at_work:
            return
        with ThreadPoolExecutor(len(self._at_work)) as pool:
            list(pool.map(lambda each: _stop(each.running), self._at_work.values()))
        for key in list(self._at_work):
            try:
                self._catalog.set_state(*key, Event.STOPPED)
            except ServingError as error:  # it is said again when the next runner starts
                logger.debug("%s v%d: its state could not be written: %s", *key, error)
            del self._at_work[key]

    # ------------------------------------------------------------------------------------------------ one version

    def _see_to(self, view: View, version: Version) -> None:
        self._count(view, version)
        at_work = self._at_work.get(_key(version))
        decision = decide(version, is_at_work=at_work is not None)
        if decision is Decision.WATCH:
            assert at_work is not None
            self._watch(view, version, at_work)
        elif decision is Decision.START or (decision is Decision.RETRY and self._retries.is_due(_key(version))):
            self._start(version)
        elif decision is Decision.STOP:
            self._stop(version)
        elif decision is Decision.DROP:
            self._drop(version)

    def _start(self, version: Version) -> None:
        running = None
        try:
            running = self._make(self._around, self._at_start(version))
            running.start()
        except IllegalTransition:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is this version's, and the others go on
            self._fail(version, error, running)
            return
        self._at_work[_key(version)] = _AtWork(running, self._clock.monotonic_ms(), self._commits(_key(version)))
        logger.info("%s: started (%s)", version.who, running.definition.architecture)

    def _at_start(self, version: Version) -> Version:
        """In state ``starting``, whatever it was in."""
        with self._around.database.begin() as connection:
            state = self._catalog.version(version.view, version.version, connection).state
            events = {State.STARTING: (), State.STOPPED: (Event.RESTARTED,), State.FAILED: (Event.RESTARTED,)}
            for event in events.get(state, (Event.STOPPED, Event.RESTARTED)):
                self._catalog.set_state(version.view, version.version, event, connection=connection)
            return self._catalog.version(version.view, version.version, connection)

    def _watch(self, view: View, version: Version, at_work: _AtWork) -> None:
        running = at_work.running
        failure = running.failure()
        if failure is not None:
            self._fail(version, failure, running)
        elif _runs_otherwise(version, running.version):
            logger.info("%s: restarting, as its definition says something else now", version.who)
            self._stop(version)
        elif version.state is State.REPLAYING and running.has_caught_up():
            self._catalog.set_state(version.view, version.version, Event.CAUGHT_UP)
            logger.info("%s: caught up", version.who)
            self._watch_switch(view, self._fresh(version), running)
        elif version.state is State.CAUGHT_UP and running.has_fallen_behind():
            self._catalog.set_state(version.view, version.version, Event.FELL_BEHIND)
            logger.info("%s: fallen behind by %s records", version.who, running.behind().records)
        elif version.state is State.CAUGHT_UP:
            self._watch_switch(view, version, running)
        elif version.state is State.REPLAYING:
            self._progress.tell(version.who, running.behind())

    def _watch_switch(self, view: View, version: Version, running: RunningVersion) -> None:
        """Does what follows from having caught up."""
        if view.serving_version == version.version:  # it served before this process began
            self._catalog.set_state(version.view, version.version, Event.SWITCHED_TO)
            return
        if not may_switch(view, version) or self._clock.monotonic_ms() < self._switch_due_ms.get(_key(version), 0):
            return
        try:
            with self._around.database.begin() as connection:
                now = self._catalog.lock_view(connection, view.name)
                if not may_switch(now, self._catalog.version(version.view, version.version, connection)):
                    return  # a user was faster
                self._catalog.switch(connection, view.name, version.version, running.select_sql(connection))
        except HeadraceError as error:
            if isinstance(error, DatabaseUnreachable | IllegalTransition):
                raise
            self._switch_due_ms[_key(version)] = self._clock.monotonic_ms() + _SWITCH_AGAIN_MS
            logger.warning("%s: not switched to: %s", version.who, error)
            return
        before = f", v{now.serving_version} before" if now.serving_version is not None else ""
        logger.info("%s: serves from now on%s", version.who, before)

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
        key, text, verdict = _key(version), summary_of(error), verdict_on(error)
        if running is not None:
            _stop(running)
        at_work = self._at_work.get(key)
        ran_ms = 0 if at_work is None else self._clock.monotonic_ms() - at_work.since_ms
        has_moved = at_work is not None and self._commits(key) > at_work.commits
        wait_ms = self._retries.failed(key, verdict, ran_ms, has_moved=has_moved)
        due_ms = None if wait_ms is None else self._clock.wall_ms() + wait_ms
        self._let_go(key)  # first: if the database is away too, the next round finds nothing at work, and starts it
        self._catalog.set_state(version.view, version.version, Event.FAILED, error=text, due_ms=due_ms)
        self._around.metrics.of(*key).failures += 1
        self._log_failure(version, error, text, wait_ms, is_known=verdict is not Verdict.UNKNOWN)

    def _log_failure(
        self, version: Version, error: BaseException, text: str, wait_ms: int | None, *, is_known: bool
    ) -> None:
        trace = None if is_known else error
        if wait_ms:
            logger.warning("%s: failed, trying again in %.1f s: %s", version.who, wait_ms / 1000, text, exc_info=trace)
        else:
            how = f"mend it and run 'headrace views apply', or 'headrace views switch {version.view} --restart'"
            logger.error("%s: failed: %s; %s", version.who, text, how, exc_info=trace)

    def _complain(self, version: Version, error: Exception) -> None:
        """Of what went wrong with a version beside its work, such as stopping; but not at every round."""
        text = summary_of(error)
        if self._complaints.get(version.who) != text:
            self._complaints[version.who] = text
            logger.warning("%s: %s", version.who, text)

    # ---------------------------------------------------------------------------------------------------- helpers

    def _commits(self, key: Key) -> int:
        counts = self._around.metrics.of(*key)
        return counts.micro_batches + counts.batches

    def _fresh(self, version: Version) -> Version:
        return self._catalog.version(version.view, version.version)

    def _let_go(self, key: Key) -> None:
        self._at_work.pop(key, None)
        self._desk.let_go(key)

    def _forget_but(self, known: set[Key]) -> None:
        for key in [key for key in self._at_work if key not in known]:  # its rows were deleted by hand
            _stop(self._at_work.pop(key).running)
        self._retries.forget_but(known)

    def _count(self, view: View, version: Version) -> None:
        counts = self._around.metrics.of(version.view, version.version)
        counts.state, counts.serves = version.state, view.serving_version == version.version
        at_work = self._at_work.get(_key(version))
        if at_work is not None:
            behind = at_work.running.behind()
            counts.records_behind, counts.records_per_s = behind.records, behind.per_s


def _key(version: Version) -> Key:
    return version.view, version.version


def _runs_otherwise(wanted: Version, running: Version) -> bool:
    """Whether it has to start again to do what its definition says; when to switch is looked up when it matters."""
    return _but_switch(wanted.definition) != _but_switch(running.definition)


def _but_switch(definition: dict[str, object]) -> dict[str, object]:
    kappa = definition["kappa"]
    assert isinstance(kappa, dict)
    return definition | {"kappa": kappa | {"switch": ""}}


def _stop(running: RunningVersion) -> None:
    try:
        running.stop()
    except Exception as error:  # noqa: BLE001  it is over either way: all that counts is in transactions
        logger.warning("%s: did not stop cleanly: %s", running.who, summary_of(error))
