"""How far a stream is behind, from what was last seen of it and of the log. No I/O, no clock of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.pipeline.progress.offsets import is_before, joined, offsets_between
from headrace.pipeline.serving.catalog_tables import Offsets

#: Over how long the rate is taken; over the last batch, if that took longer.
_WINDOW_MS = 10_000
#: Looks at the log's ends that are kept until everything up to these ends is committed.
_MAX_LOOKS = 16


@dataclass(frozen=True)
class Behind:
    """How far a version is from the log's end, as last seen.

    :param records: how many it has not read; None while that is not known.
    :param total: how many there are, read or not, from where it began.
    :param per_s: how many it reads a second, lately.
    :param complete_ms: the latest known time at which the answer had every record that the log had then.
    """

    records: int | None = None
    total: int = 0
    per_s: float = 0.0
    complete_ms: int | None = None


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
        self._looks: deque[tuple[int, Offsets]] = deque(maxlen=_MAX_LOOKS)
        self._complete_ms: int | None = None

    def committed(self, done: Offsets, now_ms: int) -> None:
        with self._lock:
            self._done = done
            self._marks.append((now_ms, self._records_done()))
            while len(self._marks) > 2 and self._marks[1][0] < now_ms - _WINDOW_MS:
                self._marks.popleft()
            self._find_complete()

    def seen(self, ends: Mapping[str, Mapping[int, int]], at_ms: int | None = None) -> None:
        """Where the log ends. It never ends earlier than it did: what we hear may be older than what we know.

        :param at_ms: the time of day when the log was asked.
        """
        with self._lock:
            if at_ms is not None and at_ms not in (look[0] for look in self._looks):
                self._looks.append((at_ms, {topic: dict(partitions) for topic, partitions in ends.items()}))
                self._find_complete()
            for topic, partitions in ends.items():
                known = self._ends.setdefault(topic, {})
                for partition, end in partitions.items():
                    known[partition] = max(end, known.get(partition, 0))

    def reached_the_end(self, at_ms: int | None = None) -> None:
        """There was nothing to read behind what is done.

        :param at_ms: the time of day when that was so.
        """
        with self._lock:
            if at_ms is not None:
                self._complete_ms = max(at_ms, self._complete_ms or 0)
            self._ends = {topic: dict(partitions) for topic, partitions in self._done.items()} or self._starts

    def behind(self, now_ms: int) -> Behind:
        with self._lock:
            records = offsets_between(joined(self._starts, self._done), self._ends)
            total = offsets_between(self._starts, self._ends)
            return Behind(records, total, self._rate(now_ms), self._complete_ms)

    def _find_complete(self) -> None:
        """The answer is complete as of the last look at the log's ends whose records are all committed."""
        done = joined(self._starts, self._done)
        for at_ms, ends in list(self._looks):
            if is_before(ends, done):
                self._complete_ms = max(at_ms, self._complete_ms or 0)
                self._looks.remove((at_ms, ends))

    def _rate(self, now_ms: int) -> float:
        """Of what was committed between the marks; a stream that has long had nothing to do has none."""
        (first_ms, first), (last_ms, last) = self._marks[0], self._marks[-1]
        span_ms = max(last_ms - first_ms, now_ms - last_ms if now_ms - last_ms > _WINDOW_MS else 0)
        return (last - first) * 1000 / span_ms if span_ms > 0 else 0.0

    def _records_done(self) -> int:
        return offsets_between(self._starts, self._done)
