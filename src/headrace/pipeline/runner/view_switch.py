"""Switches readers to versions that have caught up, and reports the obstacle if that is not possible.

Versions of views that read each other are switched to together (``project.switch_sets``): none before all of them have
caught up, and all in one transaction.

An obstacle may last for long: a version of the set that fails, a reader whose transaction stays open, or a user's
object that depends on the SQL view. The version then stays ``caught_up``, its report has the reason, and the switch is
tried again: every second if another version is not ready, every five seconds if the database refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from logging import getLogger
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.views_on_views.switch_sets import NoSwitchSet, SwitchSet, has_neighbours, switch_set
from headrace.pipeline.runner.decisions import may_switch
from headrace.pipeline.runner.reports import Obstacle, Reports
from headrace.pipeline.serving.catalog import Version, VersionEvent, VersionKey, VersionState, View
from headrace.pipeline.serving.errors import DatabaseUnreachable, IllegalTransition
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import summary_of
from headrace.pipeline.version.running_version import RunningVersion

logger = getLogger("headrace.views")

#: Not in every round: in PostgreSQL a switch waits for readers.
_AGAIN_MS = 5_000
#: Not in every round: the whole catalog is read to find a set.
_SET_AGAIN_MS = 1_000
_READY = (VersionState.CAUGHT_UP, VersionState.STANDBY)


class Outcome(Enum):
    #: The version serves, or should not.
    DONE = auto()
    #: The version waits for other versions of its set.
    WAITS = auto()
    #: The version waits for a command of a user.
    WAITS_FOR_USER = auto()
    REFUSED = auto()


class _Held(NamedTuple):
    outcome: Outcome
    why: str


class ViewSwitch:
    """Used by the runner's thread only."""

    def __init__(self, context: RunContext, reports: Reports) -> None:
        self._database, self._catalog, self._clock = context.database, context.catalog, context.clock
        self._reports = reports
        self._due_ms: dict[VersionKey, int] = {}

    def switch_if_ready(self, view: View, version: Version, running: RunningVersion, *, now: bool = False) -> Outcome:
        """Switches to a version that has caught up, if it should serve, together with those of its set.

        :param now: also if it was tried a moment ago.
        """
        key = version.key
        if view.serving_version == version.version:  # it served before this process began
            self._catalog.set_state(*key, VersionEvent.SWITCHED_TO)
            return Outcome.DONE
        if not may_switch(view, version):
            self._reports.clear_obstacle(key, Obstacle.NO_SWITCH)
            return Outcome.DONE
        if not now and self._clock.monotonic_ms() < self._due_ms.get(key, 0):
            return Outcome.WAITS
        try:
            held = self._switch(version, running)
        except (DatabaseUnreachable, IllegalTransition):
            raise
        except (HeadraceError, SQLAlchemyError) as error:
            why = f"is not switched to, which is tried again every {_AGAIN_MS // 1000} s: {summary_of(error)}"
            self._hold(version, why, _AGAIN_MS)
            return Outcome.REFUSED
        if held is not None:
            self._hold(version, f"is not switched to: {held.why}", _SET_AGAIN_MS)
            return held.outcome
        self._reports.clear_obstacle(key, Obstacle.NO_SWITCH)
        return Outcome.DONE

    def _hold(self, version: Version, text: str, again_ms: int) -> None:
        self._due_ms[version.key] = self._clock.monotonic_ms() + again_ms
        if self._reports.set_obstacle(version.key, Obstacle.NO_SWITCH, text):
            logger.warning("%s %s", version.label, text)

    def _switch(self, version: Version, running: RunningVersion) -> _Held | None:
        """
        :return: why the version cannot be switched to yet; None if it serves now.
        """
        found = self._set_of(version)
        if isinstance(found, _Held):
            return found
        with self._database.begin() as connection:
            locked = {
                each.view: self._catalog.lock_view(connection, each.view)
                for each in sorted((*found.versions, version), key=lambda each: each.view)
            }
            if not may_switch(locked[version.view], self._catalog.version(*version.key, connection)):
                return None  # a command switched first
            found = self._set_of(version, connection)
            if isinstance(found, _Held):
                return found
            if any(each.view not in locked for each in found.versions):  # another 'apply' was faster: next time
                return _Held(Outcome.WAITS, "the versions of its views have just changed")
            selects = {each.key: each.select_sql or "" for each in found.versions}
            selects[version.key] = running.select_sql(connection)
            self._catalog.switch_all(connection, selects)
        for each in found.versions:
            self._reports.clear_obstacle(each.key, Obstacle.NO_SWITCH)
        self._log(found, locked)
        return None

    def _set_of(self, version: Version, connection: Connection | None = None) -> SwitchSet | _Held:
        """The set of a version, if all of it may be switched to."""
        versions = self._catalog.versions(None, connection)
        if not has_neighbours(version, versions):
            return SwitchSet((version,))
        views = {view.name: view for view in self._catalog.views(connection)}
        try:
            found = switch_set(version, views.values(), versions)
        except NoSwitchSet as error:
            return _Held(Outcome.WAITS, str(error))
        return _obstacle(views, found.others(version)) or found

    def _log(self, switched: SwitchSet, before: dict[str, View]) -> None:
        for each in switched.versions:
            serving = before[each.view].serving_version
            others = ", ".join(other.label for other in switched.others(each))
            text = "" if serving is None else f", v{serving} before"
            logger.info("%s: serves from now on%s%s", each.label, text, f"; together with {others}" if others else "")
        for name in switched.left_behind:
            logger.warning(
                "%s still has the earlier answer of a view that it reads: 'headrace views drop %s' removes it, or "
                "write its file again", name, name,
            )  # fmt: skip


def _obstacle(views: dict[str, View], others: Iterable[Version]) -> _Held | None:
    """Why the other versions of a set cannot be switched to without a command."""
    for each in others:
        if each.state not in _READY or each.select_sql is None:
            error = f": {each.error}" if each.state is VersionState.FAILED else ""
            return _Held(Outcome.WAITS, f"it waits for {each.label}, which is {each.state}{error}")
        if not may_switch(views[each.view], each):
            why = f'{each.view} has switch = "manual"'
            if each.served_ms is not None:
                why = f"readers were switched away from {each.label}"
            return _Held(
                Outcome.WAITS_FOR_USER,
                f"it waits for 'headrace views switch {each.view} {each.version}', because {why}",
            )
    return None
