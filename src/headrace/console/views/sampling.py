"""Reads the age and the lag of the versions of a project for a sample, from its catalog and the ends of its log."""

from __future__ import annotations

from headrace.console.views.opened import Opened
from headrace.pipeline.management.progress import read_progress
from headrace.runtime.clock import SystemClock

_MOST_VERSIONS = 100


def sample_versions(opened: Opened) -> list[tuple[str, int, int | None, int | None]]:
    """View, version, age in milliseconds and records behind, of at most 100 versions."""
    with opened.log_lock:
        progress = read_progress(opened.here, opened.log, None)
    now_ms = SystemClock().wall_ms()
    return [(*each.version.key, each.age_ms(now_ms), each.behind) for each in progress[:_MOST_VERSIONS]]
