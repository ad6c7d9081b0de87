"""The metrics of each version, and the table of their Prometheus families.

Versions count their own batches (``micro_batch``, ``batch``). The runner sets the states and the lag. Counters start at
0 with the process, as Prometheus expects; the catalog has the totals since a version began.

``FAMILIES`` is the table of all metrics: ``runner.metrics_server`` serves it, ``docs/metrics.md`` is generated from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class VersionCounts:
    """The counts of one version since this process began."""

    events: int = 0
    dead_letters: int = 0
    dropped_late: int = 0
    micro_batches: int = 0
    micro_batch_seconds: float = 0.0
    last_micro_batch_seconds: float = 0.0
    cpu_seconds: float = 0.0
    batches: int = 0
    batch_seconds: float = 0.0
    last_batch_seconds: float = 0.0
    failures: int = 0
    records_behind: int | None = None
    records_per_s: float = 0.0
    age_seconds: float | None = None
    missing_columns: int = 0
    state: str = ""
    serves: bool = False


@dataclass
class PipelineMetrics:
    """Any thread may call its methods."""

    versions: dict[tuple[str, int], VersionCounts] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, view: str, version: int) -> VersionCounts:
        with self._lock:
            return self.versions.setdefault((view, version), VersionCounts())

    def micro_batch(
        self,
        view: str,
        version: int,
        *,
        seconds: float,
        events: int,
        dead_letters: int = 0,
        dropped_late: int = 0,
    ) -> None:
        """Counts a micro-batch that was committed: what it has read, and the time from its start to its commit."""
        counts = self.of(view, version)
        with self._lock:
            counts.micro_batches += 1
            counts.micro_batch_seconds += seconds
            counts.last_micro_batch_seconds = seconds
            counts.events += events
            counts.dead_letters += dead_letters
            counts.dropped_late += dropped_late

    def cpu(self, view: str, version: int, seconds: float) -> None:
        """Counts CPU time of the thread that runs the micro-batches of a version."""
        counts = self.of(view, version)
        with self._lock:
            counts.cpu_seconds += seconds

    def batch(self, view: str, version: int, *, seconds: float) -> None:
        """Counts a batch of a Lambda view that was committed."""
        counts = self.of(view, version)
        with self._lock:
            counts.batches += 1
            counts.batch_seconds += seconds
            counts.last_batch_seconds = seconds

    def commits(self) -> int:
        """How many micro-batches and batches all versions have committed. Takes no lock, because it is asked often."""
        return sum(counts.micro_batches + counts.batches for counts in list(self.versions.values()))

    def forget(self, view: str, version: int) -> None:
        with self._lock:
            self.versions.pop((view, version), None)

    def snapshot(self) -> dict[tuple[str, int], VersionCounts]:
        with self._lock:
            return dict(self.versions)


class Family(NamedTuple):
    """:param value: the value of one version; None if the version has none."""

    name: str
    kind: str
    meaning: str
    value: Callable[[VersionCounts], float | None]


#: Each metric has the labels ``view`` and ``version``; the state also has ``state``.
LABELS = ("view", "version")
STATE = "headrace_view_state"
FAMILIES = (
    Family(STATE, "gauge", "1, with the state of the version as a label.", lambda counts: 1 if counts.state else None),
    Family("headrace_view_serving", "gauge", "1 if readers see this version.", lambda counts: float(counts.serves)),
    Family(
        "headrace_view_records_behind", "gauge", "Records of the log that the version has not read.",
        lambda counts: counts.records_behind,
    ),
    Family(
        "headrace_view_records_per_second", "gauge", "Records per second that the version has read lately.",
        lambda counts: counts.records_per_s,
    ),
    Family(
        "headrace_view_age_seconds", "gauge",
        "Time since the answer was last known to contain every record of the log.",
        lambda counts: counts.age_seconds,
    ),
    Family("headrace_view_events_total", "counter", "Records read and committed.", lambda counts: counts.events),
    Family(
        "headrace_view_dead_letters_total", "counter", "Records that did not decode.",
        lambda counts: counts.dead_letters,
    ),
    Family(
        "headrace_view_missing_columns", "gauge",
        "Columns of the sources' schemas that the newest records no longer have, or never had.",
        lambda counts: counts.missing_columns,
    ),
    Family(
        "headrace_view_dropped_late_total", "counter", "Events that arrived later than the watermark allows.",
        lambda counts: counts.dropped_late,
    ),
    Family(
        "headrace_view_micro_batches_total", "counter", "Micro-batches committed.", lambda counts: counts.micro_batches
    ),
    Family(
        "headrace_view_micro_batch_seconds_total", "counter", "Time of all micro-batches, from start to commit.",
        lambda counts: counts.micro_batch_seconds,
    ),
    Family(
        "headrace_view_last_micro_batch_seconds", "gauge", "Time of the last micro-batch.",
        lambda counts: counts.last_micro_batch_seconds if counts.micro_batches else None,
    ),
    Family(
        "headrace_view_cpu_seconds_total", "counter",
        "CPU time of micro-batches in the driver, in Python and Java. Spark jobs are not counted.",
        lambda counts: counts.cpu_seconds,
    ),
    Family(
        "headrace_view_batches_total", "counter", "Lambda: batches committed.", lambda counts: counts.batches
    ),
    Family(
        "headrace_view_batch_seconds_total", "counter", "Lambda: time of all batches.",
        lambda counts: counts.batch_seconds,
    ),
    Family(
        "headrace_view_last_batch_seconds", "gauge", "Lambda: time of the last batch.",
        lambda counts: counts.last_batch_seconds if counts.batches else None,
    ),
    Family(
        "headrace_view_failures_total", "counter", "How often the version ended with an error.",
        lambda counts: counts.failures,
    ),
)  # fmt: skip
