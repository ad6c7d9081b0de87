"""Decides which log to clean next, and runs log compaction (``cleanup.policy=compact``, and ``compact,delete``).

A log is clean up to its first dirty offset, which ``cleaner-offset-checkpoint`` in its log dir stores. It is dirty from
there to the first uncleanable offset: the last stable offset, the active segment, or the first segment that is younger
than ``min.compaction.lag.ms``, whichever comes first. A log is due when its dirty part is more than
``min.cleanable.dirty.ratio`` of both parts, or when a dirty segment is older than ``max.compaction.lag.ms``. The log
with the highest ratio is cleaned next.

There are three steps, so that the thread that owns the logs never waits and is the only one that changes them:

1. :meth:`Cleaner.plan`, on that thread, decides what to clean, with which settings.
2. :meth:`Cleaner.build`, on any thread, reads closed segments, which nobody changes, and writes ``.cleaned`` files.
3. :meth:`Cleaner.commit`, on the owner's thread, puts them in place of the old ones, unless those changed meanwhile.

If step 2 fails, :meth:`Cleaner.abort` takes the place of step 3.

A crash in step 2 leaves ``.cleaned`` files, which loading removes. A crash in step 3 leaves each group of segments
either unchanged or replaced (``PartitionLog.replace_segments``). If the checkpoint was not written, the same part is
cleaned once more, with the same result.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from logging import getLogger

from headrace.log.checkpoints import Partition, read_offsets, write_lines
from headrace.log.compaction import cleaning
from headrace.log.compaction.plan import CleanedGroup, CleanedSegments, CleaningPlan, LastOfProducer
from headrace.log.disk import Disk
from headrace.log.io_throttle import IoThrottle
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.protocol.errors import KafkaError
from headrace.runtime.clock import Clock

logger = getLogger(__name__)

CLEANED_OFFSETS = "cleaner-offset-checkpoint"
#: The memory of an entry of the key map: the slot of the dict, a key object of 16 bytes, an int object.
_MAP_ENTRY_BYTES = 192
_MIN_CHUNK_BYTES = 1024


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """The broker's settings ``log.cleaner.*``, with Kafka's defaults."""

    threads: int = 1
    #: The memory of the key maps of all threads, and how full a map may become.
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    #: The memory for reading and writing, of all threads.
    io_buffer_bytes: int = 524_288
    #: The rate of all threads together.
    io_max_bytes_per_second: float = 1.7976931348623157e308

    @property
    def max_keys(self) -> int:
        """How many keys the map of one thread may have."""
        return max(1, int(self.dedupe_buffer_bytes // self.threads // _MAP_ENTRY_BYTES * self.load_factor))

    @property
    def chunk_bytes(self) -> int:
        """How many bytes one thread reads at once, and collects for one write. One batch is read as a whole."""
        return max(_MIN_CHUNK_BYTES, self.io_buffer_bytes // self.threads // 2)


class CleaningStopped(Exception):
    """The broker is stopping, or the log was deleted: the cleaned segments are not needed any more."""


@dataclass(frozen=True, slots=True)
class DirtyRange:
    """Which offsets of a log are dirty, and how many bytes of the log are clean and dirty."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


class Cleaner:
    def __init__(
        self,
        clock: Clock,
        config: CleanerConfig | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config = config or CleanerConfig()
        self._clock = clock
        #: Shared by all threads. A change of the rate counts at once.
        self._throttle = IoThrottle(lambda: max(1.0, self.config.io_max_bytes_per_second), clock, sleep)
        #: By log dir: the first dirty offset of each log. The file of a dir is read at its first use.
        self._first_dirty: dict[str, dict[Partition, int]] = {}
        self._being_cleaned: set[PartitionLog] = set()
        #: Logs that hold something that cannot be read. They are not cleaned before the next start, as in Kafka.
        self._uncleanable: set[PartitionLog] = set()
        #: When the logs were last checked, and the highest dirty ratio at that time.
        self.last_check_ms = clock.monotonic_ms()
        self.max_dirty_ratio = 0.0

    @property
    def uncleanable(self) -> frozenset[PartitionLog]:
        """Logs that are not cleaned, because they hold something that cannot be read."""
        return frozenset(self._uncleanable)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def next_to_clean(self, logs: Iterable[PartitionLog]) -> PartitionLog | None:
        """Of the logs that are due, the one with the highest dirty ratio."""
        dirtiest: tuple[float, PartitionLog] | None = None
        max_dirty_ratio = 0.0
        for log in logs:
            if not log.config.is_compacted or log in self._being_cleaned or log in self._uncleanable:
                continue
            if log.is_closed or log.log_dir.error is not None:
                continue
            dirty = self.dirty_range(log)
            max_dirty_ratio = max(max_dirty_ratio, dirty.ratio)
            if _is_due(log, dirty) and (dirtiest is None or dirty.ratio > dirtiest[0]):
                dirtiest = dirty.ratio, log
        self.last_check_ms, self.max_dirty_ratio = self._clock.monotonic_ms(), max_dirty_ratio
        return dirtiest[1] if dirtiest else None

    def dirty_range(self, log: PartitionLog) -> DirtyRange:
        segments = list(log.segments)
        first_dirty = self._first_dirty_of(log)
        if first_dirty >= segments[-1].base_offset:
            # Only the active segment is dirty. This keeps idle logs from being loaded.
            return DirtyRange(first_dirty, first_dirty, sum(segment.size_bytes for segment in segments[:-1]), 0, False)
        first_uncleanable = max(first_dirty, self._first_uncleanable(log, segments, first_dirty))
        clean_bytes = dirty_bytes = 0
        overdue_before_ms = self._clock.wall_ms() - log.config.max_compaction_lag_ms
        is_overdue = False
        for segment, behind in pairwise(segments):
            if behind.base_offset <= first_dirty:
                clean_bytes += segment.size_bytes
                continue
            if overdue_before_ms > 0 and 0 < segment.rolls_since_ms() < overdue_before_ms:
                is_overdue = True
            if segment.base_offset < first_uncleanable:
                dirty_bytes += segment.size_bytes
        return DirtyRange(first_dirty, first_uncleanable, clean_bytes, dirty_bytes, is_overdue and dirty_bytes > 0)

    def _first_uncleanable(self, log: PartitionLog, segments: list[Segment], first_dirty: int) -> int:
        bound = min(log.last_stable_offset, segments[-1].base_offset)
        lag_ms = log.config.min_compaction_lag_ms
        if lag_ms > 0:
            young_from_ms = self._clock.wall_ms() - lag_ms
            for segment, behind in pairwise(segments):
                if behind.base_offset > first_dirty and segment.largest_timestamp_ms() > young_from_ms:
                    return min(bound, segment.base_offset)
        return bound

    def _first_dirty_of(self, log: PartitionLog) -> int:
        offset = self._offsets_of_dir(log).get((log.topic, log.partition), log.log_start_offset)
        # An offset beyond the end: the log was truncated since, and its present records were never cleaned.
        return max(offset, log.log_start_offset) if offset <= log.next_offset else log.log_start_offset

    def _offsets_of_dir(self, log: PartitionLog) -> dict[Partition, int]:
        log_dir = log.log_dir
        if log_dir.path not in self._first_dirty:
            self._first_dirty[log_dir.path] = read_offsets(log_dir.disk, f"{log_dir.path}/{CLEANED_OFFSETS}")
        return self._first_dirty[log_dir.path]

    # -- the three steps --------------------------------------------------------------------------------------------

    def plan(self, log: PartitionLog) -> CleaningPlan | None:
        """Returns the next cleaning, or None if nothing is dirty. From now on the log is being cleaned."""
        dirty = self.dirty_range(log)
        if not dirty.dirty_bytes or log in self._being_cleaned:
            return None
        segments = tuple(segment for segment in log.segments if segment.base_offset < dirty.first_uncleanable_offset)
        self._being_cleaned.add(log)
        return CleaningPlan(
            name=f"{log.topic}-{log.partition}",
            segments=segments,
            sizes_bytes=tuple(segment.size_bytes for segment in segments),
            first_dirty_offset=dirty.first_dirty_offset,
            first_uncleanable_offset=dirty.first_uncleanable_offset,
            config=log.config,
            aborted=tuple(log.aborted_transactions(segments[0].base_offset, dirty.first_uncleanable_offset)),
            last_of_producers={
                producer_id: LastOfProducer(
                    producer.batches[-1].last_offset if producer.batches else None, producer.epoch
                )
                for producer_id, producer in log.producers.producers.items()
            },
            now_ms=self._clock.wall_ms(),
            disk=log.log_dir.disk,
            max_keys=self.config.max_keys,
            chunk_bytes=self.config.chunk_bytes,
        )

    def build(self, plan: CleaningPlan, should_stop: Callable[[], bool] = lambda: False) -> CleanedSegments:
        """Writes the cleaned segments. Slow; may run on any thread.

        :raises CleaningStopped: if ``should_stop`` says so, or if a segment was removed meanwhile.
        """

        def pace(size_bytes: int) -> None:
            self._throttle.spend(size_bytes, should_stop)
            if should_stop():
                raise CleaningStopped(f"the cleaning of {plan.name} was stopped")

        try:
            return cleaning.build(plan, pace)
        except FileNotFoundError as error:
            raise CleaningStopped(f"a segment of {plan.name} was removed during its cleaning") from error

    def commit(self, log: PartitionLog, cleaned: CleanedSegments) -> int:
        """Puts cleaned segments in place; returns how many groups of segments were replaced.

        A group of which a segment was removed or cut meanwhile is not replaced, nor are those of a closed log.
        """
        self._being_cleaned.discard(log)
        if log.is_closed:
            cleaning.remove_files(cleaned.plan.disk, cleaned.groups)
            return 0
        replaced = 0
        for group in cleaned.groups:
            if log.config.is_compacted and _is_unchanged(log, group):
                first = group.old[0]
                segment = Segment(
                    log.log_dir, log.folder, first.base_offset, group.size_bytes, first.index_interval_bytes
                )
                log.replace_segments([segment], group.old)
                replaced += 1
            else:
                cleaning.remove_files(cleaned.plan.disk, [group])
        if cleaned.end_offset <= log.next_offset:
            self._remember(log, cleaned.end_offset)
        logger.info(
            "cleaned %s up to offset %d: %d keys, %d of %d bytes remain",
            cleaned.plan.name, cleaned.end_offset, cleaned.key_count, cleaned.written_bytes, cleaned.read_bytes,
        )  # fmt: skip
        return replaced

    def abort(self, log: PartitionLog, error: Exception) -> None:
        """Ends a cleaning that failed. A log that cannot be read is not tried again; a failed disk goes offline."""
        self._being_cleaned.discard(log)
        if isinstance(error, OSError):
            log.log_dir.take_offline(error)
        if isinstance(error, KafkaError):
            self._uncleanable.add(log)
            logger.error(
                "log %s-%d cannot be cleaned, and is not tried again before the next start: %s",
                log.topic,
                log.partition,
                error,
            )

    def forget(self, log: PartitionLog) -> None:
        """Removes what is known of a deleted log. A new log of the same name is dirty from its start."""
        self._being_cleaned.discard(log)
        self._uncleanable.discard(log)
        offsets = self._offsets_of_dir(log)
        if offsets.pop((log.topic, log.partition), None) is not None:
            _write(log.log_dir.disk, log.log_dir.path, offsets)

    def _remember(self, log: PartitionLog, first_dirty_offset: int) -> None:
        offsets = self._offsets_of_dir(log)
        offsets[log.topic, log.partition] = first_dirty_offset
        _write(log.log_dir.disk, log.log_dir.path, offsets)


def _is_due(log: PartitionLog, dirty: DirtyRange) -> bool:
    return dirty.is_overdue or dirty.ratio > log.config.min_cleanable_dirty_ratio


def _is_unchanged(log: PartitionLog, group: CleanedGroup) -> bool:
    there = {id(segment) for segment in log.segments}
    return all(
        id(segment) in there and segment.size_bytes == size_bytes
        for segment, size_bytes in zip(group.old, group.old_sizes_bytes, strict=True)
    )


def _write(disk: Disk, folder: str, offsets: dict[Partition, int]) -> None:
    """Writes the file without fsync, because the owner's thread must not wait. A lost write costs only one cleaning."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    write_lines(disk, f"{folder}/{CLEANED_OFFSETS}", lines, sync=False)
