"""How far a stream is behind, from what was last seen of it and of the log. No I/O, no clock of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from headrace.pipeline.points import joined, offsets_between
from headrace.pipeline.running import Behind
from headrace.pipeline.serving.catalog import Offsets

#: Over how long the rate is taken; over the last batch, if that took longer.
_WINDOW_MS = 10_000


class Lag:
    """May be used by any thread. Offsets are the next ones to read.

    :param starts: where the version began.
    :param done: what is in the serving database.
    :param ends: of the log, as they were last seen.
    """

    def __init__(self, starts: Offsets, done: Offsets, ends: Offsets, now_ms: int) -> None:
        self._starts, self._done, self._ends = starts, done, ends
        self._lock = threading.Lock()
        self._marks = deque([(now_ms, self._records_done())])

    def committed(self, done: Offsets, now_ms: int) -> None:
        with self._lock:
            self._done = done
            self._marks.append((now_ms, self._records_done()))
            while len(self._marks) > 2 and self._marks[1][0] < now_ms - _WINDOW_MS:
                self._marks.popleft()

    def seen(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Where the log ends. It never ends earlier than it did: what we hear may be older than what we know."""
        with self._lock:
            for topic, partitions in ends.items():
                known = self._ends.setdefault(topic, {})
                for partition, end in partitions.items():
                    known[partition] = max(end, known.get(partition, 0))

    def reached_the_end(self) -> None:
        """There was nothing to read behind what is done."""
        with self._lock:
            self._ends = {topic: dict(partitions) for topic, partitions in self._done.items()} or self._starts

    def behind(self, now_ms: int) -> Behind:
        with self._lock:
            records = offsets_between(joined(self._starts, self._done), self._ends)
            return Behind(records, offsets_between(self._starts, self._ends), self._rate(now_ms))

    def _rate(self, now_ms: int) -> float:
        """Of what was committed between the marks; a stream that has long had nothing to do has none."""
        (first_ms, first), (last_ms, last) = self._marks[0], self._marks[-1]
        span_ms = max(last_ms - first_ms, now_ms - last_ms if now_ms - last_ms > _WINDOW_MS else 0)
        return (last - first) * 1000 / span_ms if span_ms > 0 else 0.0

    def _records_done(self) -> int:
        return offsets_between(self._starts, self._done)
