"""Switches readers to a version that has caught up, and says what is in the way if that cannot be done.

Something may be in the way for long: a reader whose transaction stays open, or an object of a user's that depends on
the SQL view. The version then stays ``caught_up``, its report has the reason, and the switch is tried again.
"""

from __future__ import annotations

from logging import getLogger

from headrace.client.errors import HeadraceError
from headrace.pipeline.runner.decisions import may_switch
from headrace.pipeline.runner.reports import Obstacle, Reports
from headrace.pipeline.runner.retries import Key
from headrace.pipeline.serving.catalog import Event, Version, View
from headrace.pipeline.serving.errors import DatabaseUnreachable, IllegalTransition
from headrace.pipeline.version.context import Surroundings
from headrace.pipeline.version.running_version import RunningVersion

logger = getLogger("headrace.views")

#: A switch that could not be done is not tried at every tick: in PostgreSQL it waits for readers.
_AGAIN_MS = 5_000


class Switching:
    """Used by the runner's thread only."""

    def __init__(self, around: Surroundings, reports: Reports) -> None:
        self._database, self._catalog, self._clock = around.database, around.catalog, around.clock
        self._reports = reports
        self._due_ms: dict[Key, int] = {}

    def follow(self, view: View, version: Version, running: RunningVersion) -> bool:
        """Does what follows from having caught up; False if something kept the version from serving."""
        key = version.view, version.version
        if view.serving_version == version.version:  # it served before this process began
            self._catalog.set_state(*key, Event.SWITCHED_TO)
            return True
        if not may_switch(view, version):
            self._reports.is_past(key, Obstacle.NO_SWITCH)
            return True
        if self._clock.monotonic_ms() < self._due_ms.get(key, 0):
            return False
        try:
            self._switch(version, running)
        except (DatabaseUnreachable, IllegalTransition):
            raise
        except HeadraceError as error:
            self._due_ms[key] = self._clock.monotonic_ms() + _AGAIN_MS
            text = f"is not switched to, which is tried again every {_AGAIN_MS // 1000} s: {error}"
            if self._reports.meets(key, Obstacle.NO_SWITCH, text):
                logger.warning("%s %s", version.who, text)
            return False
        self._reports.is_past(key, Obstacle.NO_SWITCH)
        return True

    def _switch(self, version: Version, running: RunningVersion) -> None:
        with self._database.begin() as connection:
            now = self._catalog.lock_view(connection, version.view)
            if not may_switch(now, self._catalog.version(version.view, version.version, connection)):
                return  # a user was faster
            self._catalog.switch(connection, version.view, version.version, running.select_sql(connection))
        before = f", v{now.serving_version} before" if now.serving_version is not None else ""
        logger.info("%s: serves from now on%s", version.who, before)
