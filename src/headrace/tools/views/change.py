"""``headrace views switch``, ``rollback``, ``drop`` and ``batch``: changes the existing versions of a view.

A switch is one transaction and needs no runner: the catalog has the SQL view of each version. Views that read each
other are switched together. The runner drops versions and runs batches; the commands wait for it if a runner is
running.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable

from headrace.pipeline.management.opened import OpenProject, is_running
from headrace.pipeline.project.loading import VIEWS_FOLDER
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.views_on_views.switch_sets import readers_of, switch_set
from headrace.pipeline.serving.catalog import Catalog, DesiredState, Version, VersionState, View
from headrace.tools.shared.commands import CommandError, Output
from headrace.tools.views.command import open_project

_LOOK_EVERY_S = 0.2
#: The runner keeps versions in these states up to date, so readers may be switched to them.
_READY = (VersionState.CAUGHT_UP, VersionState.STANDBY)


def switch(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if options.restart:
            _restart(here, view, out)
            return
        version = _wanted(here.catalog, view, options.version)
        _switch(here, view, version, out, back=False)


def rollback(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if view.previous_version is None:
            raise CommandError(
                f"{view.name} has no earlier version: the view was never switched, or its earlier version was dropped"
            )
        _switch(here, view, here.catalog.version(view.name, view.previous_version), out, back=True)


def _wanted(catalog: Catalog, view: View, number: int | None) -> Version:
    if number is not None:
        return catalog.version(view.name, number)
    ready = [each for each in catalog.versions(view.name) if each.state in _READY]
    newer = [each for each in ready if view.serving_version is None or each.version > view.serving_version]
    if not newer:
        raise CommandError(
            f"no newer version of {view.name} has caught up: 'headrace views status {view.name}' shows them, "
            f"'headrace views rollback {view.name}' switches to an older one"
        )
    return newer[-1]


def _switch(here: OpenProject, view: View, version: Version, out: Output, *, back: bool) -> None:
    """Switches to a version, and to the versions of other views that it is switched to with (``switch_sets``)."""
    if version.version == view.serving_version:
        out.show(_switched(view.name, version.version, view.serving_version, []), f"{version.label} serves already")
        return
    _check_ready(version)
    with here.database.begin() as connection:
        views = {each.name: each for each in here.catalog.views(connection)}
        found = switch_set(version, views.values(), here.catalog.versions(None, connection), back=back)
        before = {
            each.view: here.catalog.lock_view(connection, each.view).serving_version for each in found.versions
        }  # in alphabetical order, as all who lock several views do
        locked = [here.catalog.version(*each.key, connection) for each in found.versions]
        for each in locked:
            _check_ready(each, version)
        here.catalog.switch_all(connection, {each.key: each.select_sql or "" for each in locked})
    others = [(each.view, each.version, before[each.view]) for each in locked if each.view != view.name]
    lines = [
        _line(name, number, was) for name, number, was in [(view.name, version.version, before[view.name]), *others]
    ]
    out.show(_switched(view.name, version.version, before[view.name], others), lines)
    for name in found.left_behind:
        out.note(f"{name} still has the earlier answer of a view that it reads: no version of {name} fits")


def _line(view: str, version: int, before: int | None) -> str:
    return f"{view} v{version} serves from now on" + ("" if before is None else f", v{before} before")


def _check_ready(version: Version, first: Version | None = None) -> None:
    """
    :param first: the version that readers are switched to together with this one.
    """
    if version.state in _READY and version.select_sql is not None:
        return
    advice = {
        VersionState.STARTING: "wait until it has caught up",
        VersionState.REPLAYING: "wait until it has caught up",
        VersionState.STOPPED: "start it with 'headrace views run'",
        VersionState.FAILED: f"it says: {version.error}",
        VersionState.DROPPING: "apply its definition again",
    }.get(version.state, "wait a moment")
    together = "" if first is None or first.key == version.key else f"{first.label} needs {version.label}: "
    raise CommandError(f"{together}{version.label} is {version.state}, so readers cannot be switched to it; {advice}")


def _switched(
    view: str, version: int, before: int | None, others: list[tuple[str, int, int | None]]
) -> dict[str, object]:
    together = [{"view": name, "version": number, "before": was} for name, number, was in others]
    return {"view": view, "version": version, "before": before, "together_with": together}


def _restart(here: OpenProject, view: View, out: Output) -> None:
    here.catalog.add_request(view.name, "restart")
    out.show({"view": view.name, "restart": True}, f"the failed versions of {view.name} will be tried again")
    _note_if_not_run(here.project, out)


def drop(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if options.version is None:
            with here.database.begin() as connection:
                views = {each.name: each for each in here.catalog.views(connection)}
                readers = readers_of(view.name, views, here.catalog.versions(None, connection))
                if readers:
                    raise CommandError(
                        f"{view.name} is read by {', '.join(readers)}: drop these views first, or change their queries "
                        "and apply them"
                    )
                here.catalog.retire_view(connection, view.name)
        else:
            here.catalog.set_desired_state(view.name, options.version, DesiredState.DROP)
        what = view.name if options.version is None else f"{view.name} v{options.version}"
        if is_running(here.project):
            _wait(lambda: _is_gone(here.catalog, view.name, options.version), here.project, None)
            out.show({"view": view.name, "version": options.version, "dropped": True}, f"{what} is dropped")
        else:
            out.show({"view": view.name, "version": options.version, "dropped": False}, f"{what} will be dropped")
            _note_if_not_run(here.project, out)
        file = here.project.folder / VIEWS_FOLDER / f"{view.name}.toml"
        if options.version is None and file.exists():
            out.note(f"{file} still exists: the next 'headrace views apply' creates the view again")


def _is_gone(catalog: Catalog, view: str, version: int | None) -> bool:
    there = [each.version for each in catalog.versions(view)]
    return not there if version is None else version not in there


def batch(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if not is_running(here.project):
            raise CommandError("'headrace views run' is not running on this project; start it to run the batch")
        request_id = here.catalog.add_request(view.name, "batch", {"full": options.full})

        def is_done() -> bool:
            request = here.catalog.request(request_id)
            return request is None or request.done_ms is not None

        _wait(is_done, here.project, options.timeout)
        request = here.catalog.request(request_id)
        if request is not None and request.error:
            raise CommandError(request.error)
        seconds = ((request.done_ms or 0) - request.created_ms) / 1000 if request else 0.0
        value = {"view": view.name, "full": options.full, "seconds": seconds}
        out.show(value, f"a {'full ' if options.full else ''}batch of {view.name} is done, after {seconds:.1f} s")


def _wait(is_done: Callable[[], bool], project: Project, timeout_ms: int | None) -> None:
    until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    while not is_done():
        if until is not None and time.monotonic() > until:
            raise CommandError(f"not done after {timeout_ms} ms; it continues, follow it with 'headrace views status'")
        if not is_running(project) and not is_done():
            raise CommandError("'headrace views run' has ended; the work continues when you start it again")
        time.sleep(_LOOK_EVERY_S)


def _note_if_not_run(project: Project, out: Output) -> None:
    if not is_running(project):
        out.note("'headrace views run' is not running: it does this when it starts")
