"""Reads the age and the lag of the versions of a project for a sample, from its catalog and the ends of its log."""

from __future__ import annotations

from headrace.console.history.sample import measure_of_version
from headrace.console.views.opened import Opened
from headrace.pipeline.management.progress import read_progress
from headrace.runtime.clock import SystemClock

_MOST_VERSIONS = 100


def sample_versions(opened: Opened) -> dict[str, float | None]:
    """The measures of at most 100 versions."""
    with opened.log_lock:
        progress = read_progress(opened.here, opened.log, None)
    now_ms = SystemClock().wall_ms()
    found: dict[str, float | None] = {}
    for each in progress[:_MOST_VERSIONS]:
        view, version = each.version.key
        found[measure_of_version(view, version, "age")] = each.age_ms(now_ms)
        found[measure_of_version(view, version, "behind")] = each.behind
    return found
