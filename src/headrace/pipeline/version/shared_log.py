"""Reads the end of a log once for all versions of this process that read the same topics.

The speed layers of many views look at the same topics at the same moments (``lambda_.speed_layer`` aligns them). The
first one that asks gets an answer from the log, and the others get the same answer:

* where partitions end, if the answer is at most 50 ms old;
* which partitions there are, if the answer is at most a second old;
* the records of exactly the same ranges of offsets, if they are few.

A version that is behind the others reads with a consumer of its own. All callers that waited for the answer share its
failure; a later caller asks the log again.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.pipeline.spark.source.log_offsets import LogOffsets, Offsets
from headrace.pipeline.spark.source.range_reader import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from headrace.client.types import TopicPartition
    from headrace.pipeline.progress.ranges import OffsetRange
    from headrace.pipeline.spark.source.options import SourceOptions
    from headrace.runtime.clock import Clock

_ENDS_AGE_MS = 50
_PARTITIONS_AGE_MS = 1_000
#: Ranges with more offsets than this are not shared: their reader is behind the others.
_MAX_OFFSETS = 5_000
#: More bytes than this are not kept for others.
_MAX_KEPT_BYTES = 4 << 20
#: More bytes than this are not read here.
_MAX_BYTES = 64 << 20
#: For how many different ranges the records are kept.
_KEPT = 4
#: A version takes over the consumer from those that have not used it for this long.
_UNUSED_MS = 2_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Answer:
    """
    :param asked_ms: when the log was asked, on the monotonic clock; ``asked_wall_ms`` is the time of day.
    :param given_to: the callers that have this answer. If one of them asks again, it wants another answer.
    """

    asked_ms: int
    asked_wall_ms: int
    value: Any = None
    error: Exception | None = None
    given_to: set[object] = field(default_factory=set)

    def is_for(self, caller: object, entered_ms: int, max_age_ms: int) -> bool:
        """Whether a caller gets this answer. A failure is only for those that waited for it."""
        age_ms = 0 if self.error is not None else max_age_ms
        return caller not in self.given_to and self.asked_ms >= entered_ms - age_ms


class SharedLog:
    """The log as the versions see it that have the same options. Any thread may call its methods."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], clock: Clock) -> None:
        self._options, self._columns, self._clock = options, columns, clock
        self._log = LogOffsets(options)
        self._asking = threading.Lock()
        self._answers: dict[Hashable, _Answer] = {}
        self._reading = threading.Lock()
        self._reader: RangeReader | None = None
        #: Where the consumer goes on without a seek.
        self._next: Offsets = {}
        self._kept: OrderedDict[tuple[OffsetRange, ...], list[pa.RecordBatch]] = OrderedDict()
        self._failed: tuple[int, Exception] | None = None
        self._used_ms = 0

    def close(self) -> None:
        with self._asking:
            self._log.close()
        with self._reading:
            self._close_reader()

    # ---------------------------------------------------------------------------------------------------- questions

    def partitions(self, caller: object) -> list[TopicPartition]:
        """As ``LogOffsets.partitions``; at most a second old, and not what the caller got before."""
        found, _ = self._ask(caller, "partitions", self._log.partitions, _PARTITIONS_AGE_MS)
        return found

    def latest(self, caller: object, partitions: Sequence[TopicPartition]) -> tuple[Offsets, int]:
        """Returns the ends of the partitions, and the time of day at which the log was asked."""
        wanted = tuple(partitions)
        return self._ask(caller, ("latest", wanted), lambda: self._log.latest(wanted), _ENDS_AGE_MS)

    def earliest(self, partitions: Sequence[TopicPartition]) -> Offsets:
        with self._asking:
            return self._log.earliest(partitions)

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics as of the last call of ``partitions``; empty texts from brokers without ids."""
        return {topic: str(topic_id or "") for topic, topic_id in self._log.topic_ids.items()}

    def _ask(self, caller: object, what: Hashable, question: Callable[[], _T], max_age_ms: int) -> tuple[_T, int]:
        entered_ms = self._clock.monotonic_ms()
        with self._asking:  # a caller that waits here gets the answer of the caller before
            known = self._answers.get(what)
            if known is None or not known.is_for(caller, entered_ms, max_age_ms):
                known = self._answers[what] = self._answered(question, entered_ms)
            known.given_to.add(caller)
        if known.error is not None:
            raise known.error
        return cast("_T", known.value), known.asked_wall_ms

    def _answered(self, question: Callable[[], _T], entered_ms: int) -> _Answer:
        wall_ms = self._clock.wall_ms()
        try:
            return _Answer(self._clock.monotonic_ms(), wall_ms, question())
        except Exception as error:  # noqa: BLE001  raised by the caller, and by those that wait for the same answer
            return _Answer(max(entered_ms, self._clock.monotonic_ms()), wall_ms, error=error)

    # ------------------------------------------------------------------------------------------------------ records

    def records(self, ranges: Sequence[OffsetRange]) -> list[pa.RecordBatch] | None:
        """The records of these ranges; None if the caller should read them by itself."""
        wanted = tuple(ranges)
        if sum(one.size for one in wanted) > _MAX_OFFSETS:
            return None
        entered_ms = self._clock.monotonic_ms()
        with self._reading:
            if wanted in self._kept:
                return self._kept[wanted]
            if self._failed is not None and self._failed[0] >= entered_ms:
                raise self._failed[1]
            if not self._follows(wanted):
                return None
            self._used_ms = self._clock.monotonic_ms()
            try:
                return self._read(wanted)
            except Exception as error:
                self._failed = self._clock.monotonic_ms(), error
                self._close_reader()
                raise

    def _follows(self, ranges: Sequence[OffsetRange]) -> bool:
        if self._clock.monotonic_ms() - self._used_ms > _UNUSED_MS:
            self._next = {}
        return all(self._next.get(one.topic_partition, one.start) == one.start for one in ranges)

    def _read(self, ranges: tuple[OffsetRange, ...]) -> list[pa.RecordBatch] | None:
        if self._reader is None:
            self._reader = RangeReader(self._options, columns=self._columns)
        found, size_bytes = [], 0
        for batch in self._reader.read(ranges):
            found.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > _MAX_BYTES:
                self._close_reader()
                return None
        self._next |= {one.topic_partition: one.end for one in ranges}
        if size_bytes <= _MAX_KEPT_BYTES:
            self._kept[ranges] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def _close_reader(self) -> None:
        self._next = {}
        self._kept.clear()
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.close()


class SharedLogs:
    """The logs that versions of this process share. Any thread may call its methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Hashable, SharedLog] = {}
        self._users: Counter[SharedLog] = Counter()

    def open(self, options: SourceOptions, columns: tuple[str, ...], clock: Clock) -> SharedLog:
        """The log with these options. The caller closes it with ``close``."""
        which = tuple(sorted(options.client.items())), options.topics, options.pattern, columns
        with self._lock:
            log = self._open.get(which)
            if log is None:
                log = self._open[which] = SharedLog(options, columns, clock)
            self._users[log] += 1
            return log

    def close(self, log: SharedLog) -> None:
        """Closes the log if nobody else uses it."""
        with self._lock:
            self._users[log] -= 1
            if self._users[log] > 0:
                return
            del self._users[log]
        self.forget(log)
        log.close()

    def forget(self, log: SharedLog) -> None:
        """Replaces the log for later callers, because this log remembers topics that were deleted."""
        with self._lock:
            for which in [which for which, known in self._open.items() if known is log]:
                del self._open[which]
