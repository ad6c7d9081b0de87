"""What a runner counts of each version, and how Prometheus sees it.

Versions count their own batches (``micro_batch``, ``batch``); the runner tells the states and how far behind they are.
Counters begin at 0 with the process, as Prometheus' counters do; totals since a version began are in the catalog.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class VersionCounts:
    """Of one version, since this process began."""

    events: int = 0
    dead_letters: int = 0
    dropped_late: int = 0
    micro_batches: int = 0
    micro_batch_seconds: float = 0.0
    last_micro_batch_seconds: float = 0.0
    batches: int = 0
    batch_seconds: float = 0.0
    last_batch_seconds: float = 0.0
    failures: int = 0
    records_behind: int | None = None
    records_per_s: float = 0.0
    state: str = ""
    serves: bool = False


@dataclass
class PipelineMetrics:
    """May be used by any thread."""

    versions: dict[tuple[str, int], VersionCounts] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, view: str, version: int) -> VersionCounts:
        with self._lock:
            return self.versions.setdefault((view, version), VersionCounts())

    def micro_batch(
        self, view: str, version: int, *, seconds: float, events: int, dead_letters: int = 0, dropped_late: int = 0
    ) -> None:
        """One that was committed; what it has read, and how long it took from its start to its commit."""
        counts = self.of(view, version)
        with self._lock:
            counts.micro_batches += 1
            counts.micro_batch_seconds += seconds
            counts.last_micro_batch_seconds = seconds
            counts.events += events
            counts.dead_letters += dead_letters
            counts.dropped_late += dropped_late

    def batch(self, view: str, version: int, *, seconds: float) -> None:
        """A batch of a Lambda view that has landed."""
        counts = self.of(view, version)
        with self._lock:
            counts.batches += 1
            counts.batch_seconds += seconds
            counts.last_batch_seconds = seconds

    def forget(self, view: str, version: int) -> None:
        with self._lock:
            self.versions.pop((view, version), None)

    def snapshot(self) -> dict[tuple[str, int], VersionCounts]:
        with self._lock:
            return dict(self.versions)
