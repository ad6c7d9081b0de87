"""``headrace views status --watch``: shows progress bars on a terminal, otherwise a line at every change.

The command exits when all versions have caught up, so that scripts can wait with it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.pipeline.management.opened import OpenProject, is_running
from headrace.pipeline.management.progress import LogEnds, VersionProgress, read_progress
from headrace.pipeline.progress.progress_log import time_left
from headrace.pipeline.serving.catalog import DesiredState, VersionState
from headrace.tools.shared.commands import FAILED, CommandError, Output

_LOOK_EVERY_S = 0.5
_RATE_OVER_S = 10.0
#: A user may start to watch a little before the runner has started.
PATIENCE_S = 10.0
#: States in which a version is catching up.
_ON_ITS_WAY = (VersionState.STARTING, VersionState.REPLAYING)


class Rates:
    """The read rate of versions, measured over the last ten seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, progress: VersionProgress, now_s: float) -> float | None:
        if progress.done is None:
            return None
        seen = self._seen.setdefault(progress.version.label, deque())
        seen.append((now_s, progress.done))
        while seen[-1][0] - seen[0][0] > _RATE_OVER_S:
            seen.popleft()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else None


def watch(here: OpenProject, log: LogEnds, view: str | None, out: Output) -> int | None:
    """Shows progress until all versions have caught up. The exit code says whether a version has failed."""
    rates = Rates()
    last_run_s = time.monotonic()
    with _screen(out) as show:
        while True:
            found = read_progress(here, log, view)
            now_s = time.monotonic()
            versions = [replace(each, per_s=rates.of(each, now_s)) for each in found]
            show(versions)
            if not any(_is_catching_up(each) for each in versions):
                break
            if is_running(here.project):
                last_run_s = now_s
            elif now_s - last_run_s > PATIENCE_S:
                raise CommandError("'headrace views run' is not running, so nothing will change; start it")
            time.sleep(_LOOK_EVERY_S)
    for each in versions:
        if each.trouble:
            out.note(f"{each.version.label} {each.trouble}")
    return FAILED if any(each.version.state is VersionState.FAILED for each in versions) else None


def _is_catching_up(progress: VersionProgress) -> bool:
    version = progress.version
    will_be = version.state in _ON_ITS_WAY or (version.state is VersionState.FAILED and version.due_ms is not None)
    return version.desired_state is DesiredState.RUN and will_be


@contextmanager
def _screen(out: Output) -> Iterator[Callable[[list[VersionProgress]], None]]:
    """Progress bars on a terminal, otherwise a line at every change."""
    if not out.is_terminal:
        yield _Lines(out)
        return
    with Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
        yield lambda versions: live.update(bars(versions), refresh=True)


class _Lines:
    def __init__(self, out: Output) -> None:
        self._out = out
        self._last: dict[str, str] = {}

    def __call__(self, versions: list[VersionProgress]) -> None:
        for progress in versions:
            line = _line(progress)
            if self._last.get(progress.version.label) != line:
                self._last[progress.version.label] = line
                self._out.show(progress.value(), line)
        sys.stdout.flush()


def _line(progress: VersionProgress) -> str:
    """``users v2 replaying: 1200 of 5000 records behind, 800 of them read by the current batch, 300/s, 4 s left``."""
    if progress.version.state is VersionState.FAILED:
        return f"{progress.version.label} {progress.trouble}"
    text = f"{progress.version.label} {progress.version.state}"
    if progress.behind is not None and _is_catching_up(progress):
        text += f": {progress.behind} of {progress.total} records behind"
        if progress.reading:
            text += f", {progress.reading} of them read by the current batch"
        if progress.per_s and progress.seconds_left is not None:
            text += f", {progress.per_s:,.0f}/s, {time_left(progress.seconds_left)} left"
    return f"{text}; it {progress.trouble}" if progress.trouble else text


def bars(versions: list[VersionProgress]) -> Table:
    drawn = Table.grid(padding=(0, 2))
    for progress in versions:
        total, behind = progress.total or 0, progress.behind
        done = max(1, total) if not behind else progress.done or 0
        bar = ProgressBar(total=max(1, total), completed=done, width=30)
        rate = "" if progress.per_s is None else f"{progress.per_s:,.0f}/s"
        left = "" if progress.seconds_left is None or not behind else f"{time_left(progress.seconds_left)} left"
        state = f"{progress.version.state}{' (serves)' if progress.serves else ''}"
        far = "" if behind is None else f"{behind:,} behind"
        if progress.reading:
            far += f" ({progress.reading:,} read)"
        words = (far, rate, left, progress.trouble or "")
        drawn.add_row(Text(progress.version.label), Text(state), bar, *map(Text, words))
    return drawn
