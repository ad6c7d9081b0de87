"""``headrace views switch``, ``rollback``, ``drop`` and ``batch``: changes the existing versions of a view.

``pipeline.management.changing`` makes the changes. The runner drops versions and runs batches; the commands wait for it
if a runner is running.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable

from headrace.pipeline.management.changing import (
    PlannedSwitch,
    drop_version,
    drop_view,
    planned_rollback,
    planned_switch,
    switch_readers,
)
from headrace.pipeline.management.opened import OpenProject, is_running
from headrace.pipeline.project.loading import VIEWS_FOLDER
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog, View
from headrace.tools.shared.commands import CommandError, Output
from headrace.tools.views.command import open_project

_LOOK_EVERY_S = 0.2


def switch(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if options.restart:
            _restart(here, view, out)
            return
        _switch(here, planned_switch(here, view.name, options.version), out)


def rollback(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        _switch(here, planned_rollback(here, options.view), out)


def _switch(here: OpenProject, planned: PlannedSwitch, out: Output) -> None:
    view, version = planned.version.key
    if planned.serves_already:
        value = {"view": view, "version": version, "before": version, "together_with": []}
        out.show(value, f"{planned.version.label} serves already")
        return
    found = switch_readers(here, planned)
    own, *others = found.moves
    together = [{"view": each.view, "version": each.version, "before": each.before} for each in others]
    value = {"view": view, "version": version, "before": own.before, "together_with": together}
    out.show(value, [f"{each.text} from now on{each.earlier}" for each in found.moves])
    for name in found.left_behind:
        out.note(f"{name} still has the earlier answer of a view that it reads: no version of {name} fits")


def _restart(here: OpenProject, view: View, out: Output) -> None:
    here.catalog.add_request(view.name, "restart")
    out.show({"view": view.name, "restart": True}, f"the failed versions of {view.name} will be tried again")
    _note_if_not_run(here.project, out)


def drop(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        view = here.catalog.view(options.view)
        if options.version is None:
            drop_view(here, view.name)
        else:
            drop_version(here, view.name, options.version)
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
