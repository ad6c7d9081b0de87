"""Collects what the runner sees of versions at work, and writes it to the catalog once a second.

Commands and readers find it there (``catalog_tables.Report``): as of when an answer is complete, how far the batch
under way is, and why a version does not get on. An obstacle is written in the same round in which it appears or goes.

A version has one obstacle at most. The error of a try that failed stays until the version commits something or has
caught up; a later try may take long, and until then nobody knows that it is better. The reason why a version is not
switched to stays until it is switched to.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto

from headrace.pipeline.progress.lag import Behind
from headrace.pipeline.runner.retries import Key
from headrace.pipeline.serving.catalog import Catalog, Report
from headrace.runtime.clock import Clock

EVERY_MS = 1_000


class Obstacle(Enum):
    FAILED_TRY = auto()
    NO_SWITCH = auto()


class Reports:
    """Used by the runner's thread only."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog, self._clock = catalog, clock
        self._reports: dict[Key, Report] = {}
        self._kinds: dict[Key, Obstacle] = {}
        self._changed: set[Key] = set()
        self._due_ms = 0
        self._read_due_ms: dict[Key, int] = {}

    def saw(self, key: Key, behind: Behind) -> None:
        self._change(key, complete_ms=behind.complete_ms or self.complete_ms(key))

    def may_ask(self, key: Key) -> bool:
        """Whether it is time to ask Spark how much the version's batch has read."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._read_due_ms.get(key, 0):
            return False
        self._read_due_ms[key] = now_ms + EVERY_MS
        return True

    def reads(self, key: Key, records: int) -> None:
        self._change(key, reading=records)

    def is_complete(self, key: Key, at_ms: int) -> None:
        self._change(key, complete_ms=at_ms)

    def complete_ms(self, key: Key) -> int | None:
        return self._of(key).complete_ms

    def meets(self, key: Key, kind: Obstacle, text: str) -> bool:
        """Whether this is news."""
        is_new = self._of(key).obstacle != text
        self._kinds[key] = kind
        self._change(key, obstacle=text)
        self._due_ms = 0
        return is_new

    def is_past(self, key: Key, kind: Obstacle) -> None:
        if self._kinds.get(key) is kind:
            del self._kinds[key]
            self._change(key, obstacle=None)
            self._due_ms = 0

    def let_go(self, key: Key) -> None:
        """The version is not at work any more."""
        if key in self._reports:
            self._change(key, reading=0)

    def forget_but(self, known: Collection[Key]) -> None:
        for held in (self._reports, self._kinds, self._read_due_ms):
            for key in held.keys() - set(known):
                held.pop(key)
        self._changed.intersection_update(known)

    def write(self, *, now: bool = False) -> None:
        """At the end of a round; nothing if the last time is less than a second ago, unless an obstacle changed."""
        now_ms = self._clock.monotonic_ms()
        if not self._changed or (not now and now_ms < self._due_ms):
            return
        self._catalog.set_reports(self._reports[key] for key in sorted(self._changed))
        self._changed.clear()
        self._due_ms = now_ms + EVERY_MS

    def _of(self, key: Key) -> Report:
        return self._reports.get(key, Report(*key))

    def _change(self, key: Key, **values: object) -> None:
        # The first report of a process is written whatever it says: another process may have left an obstacle.
        changed = replace(self._of(key), **values)  # type: ignore[arg-type]
        if changed != self._reports.get(key):
            self._reports[key] = changed
            self._changed.add(key)
