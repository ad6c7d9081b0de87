"""Exports the views of a project beside the runner, on a thread of its own. No Spark.

A view is exported as its newest definition says, whichever version serves. The thread looks at the catalog every
second. After a snapshot the next one waits for ``every``, and for three times as long as the last one took: exporting
takes a quarter of one core at most, and a large view is exported less often. A failure is logged once, stored for
``headrace views status``, and tried again after ten seconds. The views go on.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from headrace.pipeline.changes.open_failures import AGAIN_S, OpenFailures
from headrace.pipeline.export.export_state import store_failure
from headrace.pipeline.export.exporter import Exporter
from headrace.pipeline.project.definition import Export, ViewDefinition
from headrace.pipeline.serving.catalog import Catalog, DesiredState
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import Clock

_LOOK_S = 1.0
_PAUSE_PER_EXPORT = 3


class ExportThread:
    """:param folder: of the project."""

    def __init__(self, database: Database, catalog: Catalog, clock: Clock, folder: Path) -> None:
        self._database, self._catalog, self._clock, self._folder = database, catalog, clock, folder
        self._exporters: dict[str, Exporter] = {}
        self._due_s: dict[str, float] = {}
        self._failures = OpenFailures()

    def run(self, stop: threading.Event) -> None:
        """Exports until ``stop`` is set."""
        while not stop.wait(_LOOK_S):
            try:
                self.export_all(stop)
            except Exception as error:  # noqa: BLE001  the views go on, and the next look tries again
                self._failures.add("exporting the views", error)
            else:
                self._failures.end("exporting the views")

    def run_once(self) -> list[str]:
        """Exports every view once.

        :return: what failed, such as ``exporting pages``.
        """
        self._due_s.clear()
        self.export_all(threading.Event())
        return self._failures.names()

    def export_all(self, stop: threading.Event) -> None:
        """Exports the views that are due."""
        wanted = self._wanted()
        for view in self._exporters.keys() - wanted.keys():
            del self._exporters[view]
        for view, export in wanted.items():
            known = self._exporters.get(view)
            if known is None or known.export != export:
                self._exporters[view] = Exporter(self._database, self._clock, self._folder, view, export)
                if known is not None:  # else the time is that of the next try after a failure
                    self._due_s.pop(view, None)
            if not stop.is_set() and time.monotonic() >= self._due_s.get(view, 0.0):
                self._export(view, self._exporters[view])

    def _wanted(self) -> dict[str, Export]:
        found = {}
        for version in self._catalog.versions():
            if version.desired_state is not DesiredState.DROP and version.definition:
                found[version.view] = ViewDefinition.from_dict(version.definition).export
        return {view: export for view, export in found.items() if export is not None}

    def _export(self, view: str, exporter: Exporter) -> None:
        began_s = time.monotonic()
        try:
            has_written = exporter.run()
        except Exception as error:  # noqa: BLE001  the other views go on; a new exporter asks the table what it has
            del self._exporters[view]
            self._due_s[view] = time.monotonic() + AGAIN_S
            self._failures.add(f"exporting {view}", error)
            store_failure(self._database, view, exporter.export.path, error, self._clock.wall_ms())
            return
        if has_written:
            took_s = time.monotonic() - began_s
            self._due_s[view] = began_s + max(exporter.export.every_ms / 1000, (1 + _PAUSE_PER_EXPORT) * took_s)
        self._failures.end(f"exporting {view}")
