"""Holds the status of a project: its versions with their progress, as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.pipeline.changes.publishing_state import publishing_notes
from headrace.pipeline.export.export_state import export_notes
from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.management.opened import OpenProject, is_running, open_folder
from headrace.pipeline.management.progress import LogEnds, VersionProgress, open_log, read_progress
from headrace.pipeline.progress.progress_log import time_left
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import SystemClock
from headrace.views.answers import html_table

HEADINGS = ("VIEW", "VERSION", "STATE", "KEPT BY", "BEHIND", "EVENTS", "DEAD LETTERS", "DROPPED LATE", "AGE", "BUSY")


@dataclass(frozen=True)
class Status:
    """
    :param is_running: whether ``headrace views run`` is running.
    """

    versions: list[VersionProgress]
    is_running: bool

    def value(self) -> dict[str, object]:
        """The status as JSON values."""
        return {"running": self.is_running, "versions": [each.value() for each in self.versions]}

    def rows(self) -> list[tuple[object, ...]]:
        return [_row(each, self.is_running) for each in self.versions]

    def remarks(self) -> list[str]:
        """Sentences about the status that its rows do not show."""
        said = []
        for each in self.versions:
            if each.trouble:
                said.append(f"{each.version.label} {each.trouble}")
            if each.own_offsets:
                said.append(f"{each.version.label} has offsets of its own: {each.own_offsets}")
            said += [f"{each.version.label}: {change.text}" for change in each.schema_changes]
        return said if self.is_running else [*said, "'headrace views run' is not running"]

    def __repr__(self) -> str:
        lines = [f"{row[0]} {row[1]} {row[2]}, {row[4]} records behind" for row in self.rows()]
        return "\n".join([*lines, *self.remarks()])

    def _repr_html_(self) -> str:
        return html_table([each.lower() for each in HEADINGS], self.rows()) + "".join(
            f"<p>{html.escape(remark)}</p>" for remark in self.remarks()
        )


def delivery_notes(database: Database, versions: Iterable[Version]) -> list[str]:
    """Sentences about the topics and folders to which the newest definitions of views are published and exported.

    :param versions: in order, so that the newest one of each view comes last.
    """
    newest = {each.view: ViewDefinition.from_dict(each.definition) for each in versions}
    topics = {name: view.publish.topic for name, view in newest.items() if view.publish is not None}
    paths = {name: view.export.path for name, view in newest.items() if view.export is not None}
    return publishing_notes(database, topics) + export_notes(database, paths)


def read_status(here: OpenProject, log: LogEnds, view: str | None) -> Status:
    """The status of all versions, or of those of one view.

    :raises UnknownView: if there is no such view.
    """
    return Status(read_progress(here, log, view), is_running(here.project))


def project_status(folder: str | Path, view: str | None = None) -> Status:
    """As :func:`read_status`, of the project in a folder."""
    with open_folder(folder) as here, open_log(here.project) as log:
        return read_status(here, log, view)


def _row(progress: VersionProgress, is_at_work: bool) -> tuple[object, ...]:
    version, committed = progress.version, progress.committed
    state = str(version.state)
    if progress.serves and version.state is not VersionState.SERVING:
        state += " (serves)"
    if version.desired_state is DesiredState.DROP and version.state is not VersionState.DROPPING:
        state += " (to be dropped)"
    age_ms = progress.age_ms(SystemClock().wall_ms())
    age = None if age_ms is None else time_left(age_ms / 1000)
    counts = (None, None, None) if committed is None else (
        committed.events, committed.dead_letters, committed.dropped_late
    )  # fmt: skip
    way = stored_way(version.definition)
    busy = f"{progress.cost.busy:.0%}" if is_at_work and progress.cost is not None else None
    return version.view, f"v{version.version}", state, way, progress.behind, *counts, age, busy
