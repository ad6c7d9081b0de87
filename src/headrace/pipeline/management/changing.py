"""Changes which versions of views serve, and drops versions: what commands and the console do without a runner.

A switch is one transaction and needs no runner: the catalog has the SQL view of each version. Views that read each
other are switched together. The runner drops versions.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from headrace.client.errors import HeadraceError
from headrace.pipeline.management.opened import OpenProject
from headrace.pipeline.project.views_on_views.switch_sets import SwitchSet, readers_of, switch_set
from headrace.pipeline.serving.catalog import Catalog, DesiredState, Version, VersionState, View

#: The runner keeps versions in these states up to date, so readers may be switched to them.
READY = (VersionState.CAUGHT_UP, VersionState.STANDBY)
_ADVICE = {
    VersionState.STARTING: "wait until it has caught up",
    VersionState.REPLAYING: "wait until it has caught up",
    VersionState.STOPPED: "start it with 'headrace views run'",
    VersionState.DROPPING: "apply its definition again",
}


class ChangeRefused(HeadraceError):
    """The versions of a view do not allow the change. Nothing was changed."""


@dataclass(frozen=True)
class PlannedSwitch:
    """A switch that was not made yet.

    :param back: whether views that are switched together prefer the version that served before.
    """

    version: Version
    before: int | None
    back: bool

    @property
    def serves_already(self) -> bool:
        return self.version.version == self.before


@dataclass(frozen=True)
class Move:
    """One view whose readers get another version.

    :param before: the version that served; None if none did.
    """

    view: str
    version: int
    before: int | None

    @property
    def text(self) -> str:
        return f"{self.view} v{self.version} serves"

    @property
    def earlier(self) -> str:
        return "" if self.before is None else f", v{self.before} before"


@dataclass(frozen=True)
class Switched:
    """
    :param moves: first that of the view itself.
    :param left_behind: the views that read a switched view, and have no version that fits.
    """

    moves: tuple[Move, ...]
    left_behind: tuple[str, ...]


def planned_switch(here: OpenProject, name: str, number: int | None = None) -> PlannedSwitch:
    """
    :param number: the version; None for the newest one that has caught up.
    :raises ChangeRefused: if there is no such version to switch to.
    """
    view = here.catalog.view(name)
    version = _newest_ready(here.catalog, view) if number is None else here.catalog.version(name, number)
    return PlannedSwitch(version, view.serving_version, back=False)


def planned_rollback(here: OpenProject, name: str) -> PlannedSwitch:
    """
    :raises ChangeRefused: if the view has no earlier version.
    """
    view = here.catalog.view(name)
    if view.previous_version is None:
        raise ChangeRefused(
            f"{view.name} has no earlier version: the view was never switched, or its earlier version was dropped"
        )
    return PlannedSwitch(here.catalog.version(name, view.previous_version), view.serving_version, back=True)


def foreseen(here: OpenProject, planned: PlannedSwitch) -> Switched:
    """The effects that a switch would have now. Nothing is changed.

    :raises ChangeRefused: if a version is not ready.
    """
    _check_ready(planned.version)
    with here.database.read() as connection:
        views = {each.name: each for each in here.catalog.views(connection)}
        versions = here.catalog.versions(None, connection)
    found = switch_set(planned.version, views.values(), versions, back=planned.back)
    for each in found.versions:
        _check_ready(each, planned.version)
    return _switched(planned, found, {name: view.serving_version for name, view in views.items()})


def switch_readers(here: OpenProject, planned: PlannedSwitch) -> Switched:
    """Switches to a version, and to the versions of other views that it is switched to with (``switch_sets``).

    :raises ChangeRefused: if a version is not ready, or readers were switched meanwhile.
    """
    _check_ready(planned.version)
    with here.database.begin() as connection:
        found = _set_of(here.catalog, planned, connection)
        before = {
            each.view: here.catalog.lock_view(connection, each.view).serving_version for each in found.versions
        }  # in alphabetical order, as all who lock several views do
        # In PostgreSQL a runner may have switched some of them while this transaction waited for its locks.
        now = _set_of(here.catalog, planned, connection)
        if [each.key for each in now.versions] != [each.key for each in found.versions]:
            raise ChangeRefused(
                f"readers of {planned.version.view}, or of a view that it belongs to, have just been switched to "
                "another version: nothing was changed, look at 'headrace views status' and run it again"
            )
        locked = [here.catalog.version(*each.key, connection) for each in found.versions]
        for each in locked:
            _check_ready(each, planned.version)
        here.catalog.switch_all(connection, {each.key: each.select_sql or "" for each in locked})
    return _switched(planned, found, before)


def drop_view(here: OpenProject, name: str) -> None:
    """Readers lose the view at once; the runner drops its versions.

    :raises ChangeRefused: if other views read it.
    """
    with here.database.begin() as connection:
        check_unread(name, {each.name: each for each in here.catalog.views(connection)},
                     here.catalog.versions(None, connection))  # fmt: skip
        here.catalog.retire_view(connection, name)


def drop_version(here: OpenProject, name: str, number: int) -> None:
    """The runner drops the version.

    :raises IllegalTransition: if the version serves.
    """
    here.catalog.set_desired_state(name, number, DesiredState.DROP)


def check_unread(name: str, views: dict[str, View], versions: list[Version]) -> None:
    """
    :raises ChangeRefused: if other views read the view.
    """
    readers = readers_of(name, views, versions)
    if readers:
        raise ChangeRefused(
            f"{name} is read by {', '.join(readers)}: drop these views first, or change their queries and apply them"
        )


def _set_of(catalog: Catalog, planned: PlannedSwitch, connection: Connection) -> SwitchSet:
    views, versions = catalog.views(connection), catalog.versions(None, connection)
    return switch_set(planned.version, views, versions, back=planned.back)


def _newest_ready(catalog: Catalog, view: View) -> Version:
    ready = [each for each in catalog.versions(view.name) if each.state in READY]
    newer = [each for each in ready if view.serving_version is None or each.version > view.serving_version]
    if not newer:
        raise ChangeRefused(
            f"no newer version of {view.name} has caught up: 'headrace views status {view.name}' shows them, "
            f"'headrace views rollback {view.name}' switches to an older one"
        )
    return newer[-1]


def _switched(planned: PlannedSwitch, found: SwitchSet, before: dict[str, int | None]) -> Switched:
    moves = [Move(each.view, each.version, before[each.view]) for each in found.versions]
    own = planned.version.view
    ordered = [*(move for move in moves if move.view == own), *(move for move in moves if move.view != own)]
    return Switched(tuple(ordered), found.left_behind)


def _check_ready(version: Version, first: Version | None = None) -> None:
    """
    :param first: the version that readers are switched to together with this one.
    """
    if version.state in READY and version.select_sql is not None:
        return
    failed = version.state is VersionState.FAILED
    advice = f"it says: {version.error}" if failed else _ADVICE.get(version.state, "wait a moment")
    together = "" if first is None or first.key == version.key else f"{first.label} needs {version.label}: "
    raise ChangeRefused(f"{together}{version.label} is {version.state}, so readers cannot be switched to it; {advice}")
