"""Switches readers to a version that has caught up, and reports the obstacle if that is not possible.

An obstacle may last for long: a reader whose transaction stays open, or a user's object that depends on the SQL view.
The version then stays ``caught_up``, its report has the reason, and the switch is tried again every five seconds.
"""

from __future__ import annotations

from logging import getLogger

from headrace.client.errors import HeadraceError
from headrace.pipeline.runner.decisions import may_switch
from headrace.pipeline.runner.reports import Obstacle, Reports
from headrace.pipeline.serving.catalog import Version, VersionEvent, VersionKey, View
from headrace.pipeline.serving.errors import DatabaseUnreachable, IllegalTransition
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.running_version import RunningVersion

logger = getLogger("headrace.views")

#: Not in every round: in PostgreSQL a switch waits for readers.
_AGAIN_MS = 5_000


class ViewSwitch:
    """Used by the runner's thread only."""

    def __init__(self, context: RunContext, reports: Reports) -> None:
        self._database, self._catalog, self._clock = context.database, context.catalog, context.clock
        self._reports = reports
        self._due_ms: dict[VersionKey, int] = {}

    def switch_if_ready(self, view: View, version: Version, running: RunningVersion) -> bool:
        """Switches to a version that has caught up, if it should serve.

        :return: False if the version should serve and an obstacle prevents it.
        """
        key = version.key
        if view.serving_version == version.version:  # it served before this process began
            self._catalog.set_state(*key, VersionEvent.SWITCHED_TO)
            return True
        if not may_switch(view, version):
            self._reports.clear_obstacle(key, Obstacle.NO_SWITCH)
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
            if self._reports.set_obstacle(key, Obstacle.NO_SWITCH, text):
                logger.warning("%s %s", version.label, text)
            return False
        self._reports.clear_obstacle(key, Obstacle.NO_SWITCH)
        return True

    def _switch(self, version: Version, running: RunningVersion) -> None:
        with self._database.begin() as connection:
            now = self._catalog.lock_view(connection, version.view)
            if not may_switch(now, self._catalog.version(*version.key, connection)):
                return  # a command switched first
            self._catalog.switch(connection, *version.key, running.select_sql(connection))
        before = f", v{now.serving_version} before" if now.serving_version is not None else ""
        logger.info("%s: serves from now on%s", version.label, before)
