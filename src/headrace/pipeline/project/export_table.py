"""Reads the table [export] of a view's file: the folder that gets the view as a Delta table.

::

    [export]
    path = "exports/pages"        # a folder of this machine, relative to the project
    every = "1 minute"            # the time between two snapshots, at least
    keep = "1 hour"               # for how long the files of a replaced snapshot stay, in whole hours
"""

from __future__ import annotations

from headrace.pipeline.project.definition import Export
from headrace.pipeline.project.field_reader import FieldReader

_HOUR_MS = 3_600_000


def read_export(fields: FieldReader) -> Export | None:
    file = fields.file
    section = file.section("export")
    if "export" not in file.content:
        return None
    path = fields.required(section, "path")
    if "://" in path:
        section.report(
            "path", f"{path!r} is not a folder of this machine, and views are exported to such a folder only"
        )
    every, keep = section.text("every", "1 minute"), section.text("keep", "1 hour")
    every_ms, keep_ms = fields.duration(section, "every", every), fields.duration(section, "keep", keep)
    if "export" not in file.invalid_fields:
        if every_ms < 1000:
            section.report("every", "export.every must be at least 1 second")
        if keep_ms < _HOUR_MS or keep_ms % _HOUR_MS:
            section.report("keep", "export.keep must be whole hours, and at least 1 hour")
    section.finish()
    return None if "export" in file.invalid_fields else Export(path, every_ms, keep_ms // _HOUR_MS)
