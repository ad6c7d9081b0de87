"""Collects what the runner observes about running versions, and writes it to the catalog once per second.

Commands and readers find there (``catalog_tables.Report``) as of when an answer is complete, how much the batch in
progress has read, and why a version does not advance. An obstacle is written in the round in which it appears or goes.

A version has one obstacle at most. The error of a failed try stays until the version commits something or has caught
up: until then nothing shows that the next try is better. The reason why a version is not switched to stays until it is
switched to.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto

from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.serving.catalog import Catalog, Report, VersionKey
from headrace.runtime.clock import Clock

EVERY_MS = 1_000


class Obstacle(Enum):
    FAILED_TRY = auto()
    NO_SWITCH = auto()


class Reports:
    """Used by the runner's thread only."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog, self._clock = catalog, clock
        self._reports: dict[VersionKey, Report] = {}
        self._kinds: dict[VersionKey, Obstacle] = {}
        self._changed: set[VersionKey] = set()
        self._due_ms = 0
        self._read_due_ms: dict[VersionKey, int] = {}

    def set_lag(self, key: VersionKey, lag: Lag) -> None:
        self._change(key, complete_ms=lag.complete_ms or self.complete_ms(key))

    def is_reading_due(self, key: VersionKey) -> bool:
        """Whether it is time to ask Spark how much the version's batch has read. True once per second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._read_due_ms.get(key, 0):
            return False
        self._read_due_ms[key] = now_ms + EVERY_MS
        return True

    def set_reading(self, key: VersionKey, records: int) -> None:
        self._change(key, reading=records)

    def set_complete(self, key: VersionKey, at_ms: int) -> None:
        self._change(key, complete_ms=at_ms)

    def complete_ms(self, key: VersionKey) -> int | None:
        return self._of(key).complete_ms

    def set_obstacle(self, key: VersionKey, kind: Obstacle, text: str) -> bool:
        """
        :return: whether the text is new.
        """
        is_new = self._of(key).obstacle != text
        self._kinds[key] = kind
        self._change(key, obstacle=text)
        self._due_ms = 0
        return is_new

    def clear_obstacle(self, key: VersionKey, kind: Obstacle) -> None:
        if self._kinds.get(key) is kind:
            del self._kinds[key]
            self._change(key, obstacle=None)
            self._due_ms = 0

    def version_stopped(self, key: VersionKey) -> None:
        if key in self._reports:
            self._change(key, reading=0)

    def keep_only(self, known: Collection[VersionKey]) -> None:
        for held in (self._reports, self._kinds, self._read_due_ms):
            for key in held.keys() - set(known):
                held.pop(key)
        self._changed.intersection_update(known)

    def write(self, *, now: bool = False) -> None:
        """Writes the reports that changed. Called at the end of each round.

        Does nothing if the last write is less than a second ago, unless an obstacle changed.
        """
        now_ms = self._clock.monotonic_ms()
        if not self._changed or (not now and now_ms < self._due_ms):
            return
        self._catalog.set_reports(self._reports[key] for key in sorted(self._changed))
        self._changed.clear()
        self._due_ms = now_ms + EVERY_MS

    def _of(self, key: VersionKey) -> Report:
        return self._reports.get(key, Report(*key))

    def _change(self, key: VersionKey, **values: object) -> None:
        # The first report of a process is always written: another process may have left an obstacle.
        changed = replace(self._of(key), **values)  # type: ignore[arg-type]
        if changed != self._reports.get(key):
            self._reports[key] = changed
            self._changed.add(key)
