"""Measures the lag of a stream: how many records it has not read, and how fast it reads.

The tracker is told what was committed and where the log ends. It does no I/O and has no clock of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.pipeline.progress.offsets import is_before, offsets_between, updated
from headrace.pipeline.serving.catalog_tables.versions import Offsets

#: The rate is measured over this time, or over the last batch if that took longer.
_WINDOW_MS = 10_000
#: Observations of the log's ends that are kept until everything up to these ends is committed.
_MAX_OBSERVATIONS = 16


@dataclass(frozen=True)
class Lag:
    """How far a version is from the end of the log, as last observed.

    :param records: how many records the version has not read; None while that is unknown.
    :param total: how many records there are from the version's first offset on, read or not.
    :param per_s: how many records per second the version has read lately.
    :param complete_ms: the latest known time at which the answer contained every record that the log had then.
    """

    records: int | None = None
    total: int = 0
    per_s: float = 0.0
    complete_ms: int | None = None


class LagTracker:
    """Any thread may call its methods. All offsets are next offsets to read.

    :param starts: where the version began.
    :param done: what the serving database contains.
    :param ends: where the log ends, as last observed.
    """

    def __init__(self, starts: Offsets, done: Offsets, ends: Offsets, now_ms: int) -> None:
        self._starts, self._done, self._ends = starts, done, ends
        self._lock = threading.Lock()
        self._marks = deque([(now_ms, self._records_done())])
        self._observations: deque[tuple[int, Offsets]] = deque(maxlen=_MAX_OBSERVATIONS)
        self._complete_ms: int | None = None

    def committed(self, done: Offsets, now_ms: int) -> None:
        with self._lock:
            self._done = done
            self._marks.append((now_ms, self._records_done()))
            while len(self._marks) > 2 and self._marks[1][0] < now_ms - _WINDOW_MS:
                self._marks.popleft()
            self._find_complete()

    def observed(self, ends: Mapping[str, Mapping[int, int]], at_ms: int | None = None) -> None:
        """Records where the log ends. An end that is lower than a known end is old news and is ignored.

        :param at_ms: the time of day at which the log was asked.
        """
        with self._lock:
            if at_ms is not None and at_ms not in (observation[0] for observation in self._observations):
                self._observations.append((at_ms, {topic: dict(partitions) for topic, partitions in ends.items()}))
                self._find_complete()
            for topic, partitions in ends.items():
                known = self._ends.setdefault(topic, {})
                for partition, end in partitions.items():
                    known[partition] = max(end, known.get(partition, 0))

    def reached_the_end(self, at_ms: int | None = None) -> None:
        """Records that the log had nothing more to read after what is committed.

        :param at_ms: the time of day at which that was so.
        """
        with self._lock:
            if at_ms is not None:
                self._complete_ms = max(at_ms, self._complete_ms or 0)
            self._ends = {topic: dict(partitions) for topic, partitions in self._done.items()} or self._starts

    def lag(self, now_ms: int) -> Lag:
        with self._lock:
            records = offsets_between(updated(self._starts, self._done), self._ends)
            total = offsets_between(self._starts, self._ends)
            return Lag(records, total, self._rate(now_ms), self._complete_ms)

    def _find_complete(self) -> None:
        """The answer is complete as of the last observed ends of the log up to which everything is committed."""
        done = updated(self._starts, self._done)
        for at_ms, ends in list(self._observations):
            if is_before(ends, done):
                self._complete_ms = max(at_ms, self._complete_ms or 0)
                self._observations.remove((at_ms, ends))

    def _rate(self, now_ms: int) -> float:
        """Records per second between the first and the last mark. It falls to 0 if nothing was committed for long."""
        (first_ms, first), (last_ms, last) = self._marks[0], self._marks[-1]
        span_ms = max(last_ms - first_ms, now_ms - last_ms if now_ms - last_ms > _WINDOW_MS else 0)
        return (last - first) * 1000 / span_ms if span_ms > 0 else 0.0

    def _records_done(self) -> int:
        return offsets_between(self._starts, self._done)
