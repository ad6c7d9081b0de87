"""``headrace views run``: makes the versions of a project do what the catalog says, and writes their state to it.

Every 200 ms the runner reads the catalog and compares it with the versions that run in this process. ``decisions`` says
what to do with each version, and ``lifecycle`` does it; ``starts`` has the threads that start versions. A command only
ever changes the desired state. So a runner may die at any moment: the next runner reads the catalog and continues.

**Failures.** A version that failed is tried again later (``retries``) if its failure may pass (``version.failures``).
Otherwise it stays failed until a command asks (request ``restart``) or a new runner starts. The catalog shows the state
and the error meanwhile. Other versions are not affected. If the serving version fails, readers still see its rows.

**The Java process** is shared by all versions. If it dies, the runner stops all versions, starts another process, and
starts the versions again from what is committed. ``quarantine`` finds the version that caused it and sets it aside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, TypeVar

from headrace.pipeline.maintenance.versions import create_version
from headrace.pipeline.runner.active_versions import VersionFactory
from headrace.pipeline.runner.java_supervisor import JavaSupervisor
from headrace.pipeline.runner.lifecycle import Lifecycle
from headrace.pipeline.runner.quarantine import Quarantine
from headrace.pipeline.runner.requests import RequestRouter
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState
from headrace.pipeline.serving.catalog_tables.java_crashes import JavaCrashes
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, IllegalTransition
from headrace.pipeline.spark.java_process import ExternalJava, JavaControl, JavaGone
from headrace.pipeline.version.context import RunContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")

TICK_S = 0.2
#: How many versions start side by side, and for how long the runner waits for them.
_STARTS_AT_A_TIME = 4
START_WAIT_S = 20.0
_T = TypeVar("_T")


class Runner:
    """One thread calls its methods: ``run`` is the loop of that thread, ``tick`` is one round of the loop."""

    def __init__(
        self, context: RunContext, create: VersionFactory = create_version, java: JavaControl | None = None
    ) -> None:
        self._database, self._catalog = context.database, context.catalog
        self._quarantine = Quarantine(JavaCrashes(context.database), context.clock)
        self._java = JavaSupervisor(java or ExternalJava(), self._quarantine, context.clock)
        self._lifecycle = Lifecycle(context, create, self._java, self._quarantine)
        self._requests = RequestRouter(context.catalog, self._lifecycle.try_again)
        self._is_database_away = False
        self._stop_asked = threading.Event()

    # ------------------------------------------------------------------------------------------------------ the loop

    def run(self, stop: threading.Event, check: Callable[[], None] = lambda: None) -> None:
        """Runs until ``stop`` is set, then stops all versions and sets their state in the catalog.

        :param check: called in every round. If it raises, the runner ends, unless the database is unavailable.
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
        """Waits if the database is unavailable. Versions notice that themselves."""
        try:
            check()
            self.tick()
        except (DatabaseUnreachable, DatabaseBusy) as error:
            if not self._is_database_away:
                logger.warning("waiting for the serving database: %s", error)
            self._is_database_away = True
        else:
            if self._is_database_away:
                logger.info("the serving database is available again")
            self._is_database_away = False

    def tick(self) -> None:
        if not self._has_java():
            return
        try:
            self._handle_versions()
        except JavaGone as error:
            logger.debug("the Java process is gone", exc_info=error)
            self._java_died()

    def _handle_versions(self) -> None:
        with self._database.read() as connection:
            views = {view.name: view for view in self._catalog.views(connection)}
            versions = self._catalog.versions(None, connection)
        self._note_starts()
        to_start = []
        for version in versions:
            if self._stop_asked.is_set():  # starting takes long if the log or the database is unavailable
                return
            if self._guarded(version, partial(self._lifecycle.handle, views[version.view], version)):
                to_start.append(version)
        for version in to_start:
            self._guarded(version, partial(self._lifecycle.expect, version))
        for first in range(0, len(to_start), _STARTS_AT_A_TIME):
            if self._stop_asked.is_set():
                return
            self._start(to_start[first : first + _STARTS_AT_A_TIME])
        known = {version.key: version for version in versions}
        self._lifecycle.keep_only(known.keys())
        unfinished = {key: each.work.unfinished() for key, each in self._lifecycle.running.items()}
        self._quarantine.update_trials(lambda key: self._lifecycle.has_nothing_to_do(known.get(key)), unfinished.get)
        self._lifecycle.reports.write()
        self._lifecycle.costs.write(self._lifecycle.running.keys())
        by_view = {view: [version for version in versions if version.view == view] for view in views}
        self._requests.route(by_view, self._lifecycle.running)

    def _start(self, versions: Sequence[Version]) -> None:
        """Starts versions side by side, and waits for them for a while."""
        for version in versions:
            self._guarded(version, partial(self._lifecycle.begin, version))
        self._lifecycle.starts.wait([each.key for each in versions if each.key in self._lifecycle.starts], START_WAIT_S)
        self._note_starts()

    def _note_starts(self) -> None:
        """Notes the starts that have ended."""
        away: Exception | None = None
        for running, error in self._lifecycle.starts.ended():
            try:
                self._guarded(running.version, partial(self._lifecycle.started, running, error))
            except (DatabaseUnreachable, DatabaseBusy) as raised:  # the results of the others count too
                away = raised
        if away is not None:
            raise away

    def _guarded(self, version: Version, work: Callable[[], _T]) -> _T | None:
        """Does work on one version. Its failure does not affect other versions, and the next round tries again."""
        try:
            result = work()
        except (DatabaseUnreachable, DatabaseBusy, JavaGone):
            raise
        except IllegalTransition as error:  # a command changed the state first; the next round sees it
            logger.debug("%s", error)
        except Exception as error:  # noqa: BLE001  the other versions go on, and the next round tries again
            self._java.check(error)
            self._lifecycle.failures.warn_once(version, error)
        else:
            self._lifecycle.failures.clear_warning(version)
            return result
        return None

    def close(self) -> None:
        """Stops all versions at the same time, and sets their state in the catalog."""
        self._lifecycle.stop_all()

    # ------------------------------------------------------------------------------------------------------ run once

    def run_once(self, stop: threading.Event | None = None) -> list[str]:
        """Brings every version that should run up to the end of the log, one after the other.

        :return: the versions that did not get there.
        """
        failed: list[str] = []
        self._requests.finish_restarts(self._catalog.versions())
        for version in self._catalog.versions():
            is_stopped = stop is not None and stop.is_set()
            if version.desired_state is DesiredState.DROP or version.state is VersionState.DROPPING:
                if not is_stopped:
                    self._lifecycle.drop(version)
            elif version.desired_state is DesiredState.RUN and (is_stopped or not self._run_version_once(version)):
                failed.append(version.label)
        return failed + self._lifecycle.end_waiting()

    def _run_version_once(self, version: Version) -> bool:
        """Tries again after a death of the Java process. The second death quarantines the version."""
        while (reason := self._quarantine.reason_for(version.key)) is None:
            try:
                return self._lifecycle.run_once(version)
            except JavaGone as error:
                logger.debug("the Java process is gone", exc_info=error)
                self._java_died()
                while not self._has_session(self._java.restart()):
                    pass
        self._lifecycle.keep_quarantined(self._catalog.version(*version.key), reason)
        return False

    # ---------------------------------------------------------------------------------------------- the Java process

    def _has_java(self) -> bool:
        if self._java.has_ended():
            self._java_died()
        return not self._java.is_missing or self._has_session(self._java.restart_if_due())

    def _java_died(self) -> None:
        self._java.died(self._lifecycle.unfinished_work())
        self.close()

    def _has_session(self, spark: SparkSession | None) -> bool:
        """Gives a new session to all versions that start from now on. False if there is none."""
        if spark is not None:
            self._lifecycle.use_session(spark)
        return spark is not None
