"""The log of one partition: segments in offset order, of which the last one grows.

Theory: a record is in the log as soon as its batch is written behind the others in the active segment. Everything else
(indexes, snapshots, checkpoints, epochs) can be rebuilt from the batches. So an append writes the batch first, in one
call. A crash leaves a valid prefix, perhaps with a torn batch behind it; recovery cuts that batch off.

One thread, that of the event loop, changes a log. Only :meth:`PartitionLog.flush` may run on another thread: it calls
fsync and then assigns ``recovery_point``. A thread may write bytes behind the log's end that do not count yet
(``early_write.py``).

After a clean stop nothing is read before its first use. Offsets come from file names. Indexes, producers and epochs are
loaded when they are needed. So 10,000 idle partitions start in a second.

The steps are in ``appending.py``, ``lookups.py``, ``retention.py``, ``truncation.py``, ``segment_swap.py`` and
``recovery.py``.
"""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from headrace.log import lookups, partition_metadata, retention, segment_swap, snapshots, truncation
from headrace.log.appending import Appended, append_client, append_trusted
from headrace.log.config import LogConfig
from headrace.log.disk_errors import takes_dir_offline
from headrace.log.early_write import EarlyWrite
from headrace.log.file_region import FileRegion
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.log_dir import LogDir
from headrace.log.lookups import BatchSearch, Search, TimestampAndOffset
from headrace.log.producer_state import ProducerStates
from headrace.log.segment import Segment
from headrace.log.txn_index import AbortedTxn
from headrace.log.validation import Origin
from headrace.protocol.errors import OffsetOutOfRange, StorageError
from headrace.protocol.records import Buffer

__all__ = ["AbortedTxn", "Appended", "LogRead", "Origin", "PartitionLog", "TimestampAndOffset"]

_NOT_LOADED = -2
_base_offset_of = attrgetter("base_offset")


class LogRead(NamedTuple):
    #: None if there is nothing to send.
    region: FileRegion | None
    aborted: list[AbortedTxn] | None = None


_NOTHING = LogRead(None)


class PartitionLog:
    __slots__ = (
        "_epochs", "_producers", "_replay_until", "_topic_id", "active", "config", "early_write", "flushed_ms",
        "folder", "high_watermark", "is_closed", "log_dir", "log_start_offset", "next_offset", "noted_epoch",
        "partition", "recovery_point", "segments", "size_bytes", "snapshot_offset", "topic",
    )  # fmt: skip

    def __init__(
        self,
        log_dir: LogDir,
        folder: str,
        topic: str,
        partition: int,
        config: LogConfig,
        segments: list[Segment],
        *,
        next_offset: int,
        log_start_offset: int,
        recovery_point: int,
        topic_id: UUID | int | None = _NOT_LOADED,
    ) -> None:
        self.log_dir = log_dir
        self.folder = folder
        self.topic = topic
        self.partition = partition
        self.config = config
        self.segments = segments
        self.active = segments[-1]
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        self.next_offset = next_offset
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.flushed_ms = _NOT_LOADED
        #: The offset of the newest producer snapshot; -1 if that is not known.
        self.snapshot_offset = -1
        self.is_closed = False
        #: A large batch that a thread writes behind the log's end; it is appended later.
        self.early_write: EarlyWrite | None = None
        self._topic_id = topic_id
        #: The leader epoch of the last append. An append with the same epoch has nothing to note.
        self.noted_epoch = _NOT_LOADED
        self._epochs: LeaderEpochs | None = None
        self._producers: ProducerStates | None = None
        self._replay_until = next_offset  # no later batch has a producer until the states are loaded: it loads them

    def __repr__(self) -> str:
        return f"<PartitionLog {self.folder} [{self.log_start_offset}, {self.next_offset})>"

    @property
    def topic_id(self) -> UUID | None:
        if isinstance(self._topic_id, int):
            self._topic_id = partition_metadata.read(self.log_dir.disk, self.folder)
        return self._topic_id

    def unusable(self) -> StorageError:
        """The error for uses of a log that is closed, or whose dir is offline."""
        return StorageError(f"{self.folder} is closed") if self.log_dir.error is None else self.log_dir.offline_error()

    # -- append -----------------------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, *, leader_epoch: int, origin: Origin = Origin.CLIENT, checked: Buffer | None = None
    ) -> Appended:
        """Writes batches behind the last one. After an error nothing has changed.

        A client writes one batch, which gets its offset here. A coordinator may write several batches, and control
        batches. Replicated batches keep their offsets and epochs.

        :param checked: what :func:`checked_batch` has returned for a client's batch, if it was called before.
        """
        if self.is_closed or self.log_dir.error is not None:
            raise self.unusable()
        try:
            if self.early_write is not None and self.early_write.batch is not records:
                self.early_write.end()
            if origin is not Origin.CLIENT:
                return append_trusted(self, records, leader_epoch, origin)
            return append_client(self, records, leader_epoch, checked=checked)
        except OSError as error:
            raise self.log_dir.take_offline(error) from error

    def end_early_write(self) -> None:
        """Gives up the early write, if there is one: something else happens to the end of the log."""
        if self.early_write is not None:
            self.early_write.end()

    # -- roll -------------------------------------------------------------------------------------------------------

    def roll(self, base_offset: int | None = None) -> Segment:
        """Finishes the active segment and starts another one, at the log's end or behind it."""
        self.end_early_write()
        base_offset = self.next_offset if base_offset is None else max(base_offset, self.next_offset)
        old = self.active
        if not old.size_bytes and old.base_offset == base_offset:
            return old
        old.finish()
        if not old.size_bytes:
            # The segment is empty, and its base offset is too far from the next offset.
            self.segments.pop()
            retention.discard(self, [old])
        self.take_snapshot(base_offset)
        segment = Segment.create(self.log_dir, self.folder, base_offset, self.config)
        self.segments.append(segment)
        self.active = segment
        return segment

    def take_snapshot(self, offset: int | None = None) -> None:
        """Writes a producer snapshot for an offset, by default the log's end, unless there is one."""
        offset = self.next_offset if offset is None else offset
        if self.snapshot_offset != offset:
            snapshots.write_snapshot(self.log_dir.disk, self.folder, offset, self.producers)
            self.snapshot_offset = offset

    # -- read -------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, until_offset: int, at_least_one: bool = True) -> LogRead:
        """Whole batches of one segment, from the batch that contains the offset on.

        :raises OffsetOutOfRange: if the offset is below the log's start or above its end.
        """
        if self.is_closed or self.log_dir.error is not None:
            raise self.unusable()
        next_offset = self.next_offset
        if offset < self.log_start_offset or offset > next_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{self.log_start_offset}, {next_offset}]")
        if offset >= until_offset or offset == next_offset:
            return _NOTHING
        try:
            segment = self.active
            if offset >= segment.base_offset:
                until = None if until_offset >= next_offset else until_offset
                return LogRead(segment.region(offset, max_bytes, until, at_least_one))
            return LogRead(self._read_older(offset, max_bytes, until_offset, at_least_one))
        except OSError as error:
            raise self.log_dir.take_offline(error) from error

    def _read_older(self, offset: int, max_bytes: int, until_offset: int, at_least_one: bool) -> FileRegion | None:
        at = self.segment_at(offset)
        for following in range(at, len(self.segments)):
            segment = self.segments[following]
            if segment.base_offset >= until_offset:
                break
            is_last = following + 1 == len(self.segments)
            end_offset = self.next_offset if is_last else self.segments[following + 1].base_offset
            if segment.position_of(offset) < segment.size_bytes:
                until = None if until_offset >= end_offset else until_offset
                return segment.region(offset, max_bytes, until, at_least_one)
        return None

    def segment_at(self, offset: int) -> int:
        """The index, in ``segments``, of the segment in which an offset lies or would lie."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset_of) - 1)

    def search_time(self, timestamp_ms: int, *, until_offset: int) -> Search:
        """Searches the first record at or after a time, if its offset is below ``until_offset``.

        The search has steps: the caller decides on which thread it searches in a batch.
        """
        return lookups.search_time(self, timestamp_ms, until_offset)

    def search_max_timestamp(self) -> Search:
        """Searches the record with the largest timestamp (KIP-734)."""
        return lookups.search_max_timestamp(self)

    @takes_dir_offline
    def continue_search(self, search: Search, found: TimestampAndOffset | None) -> BatchSearch:
        """Returns the next batch to search in. ``found`` is what the search in the batch before has found.

        :raises StopIteration: at the end. Its value is what the search has found.
        """
        return search.send(found)

    @takes_dir_offline
    def aborted_transactions(self, from_offset: int, until_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap a range of offsets."""
        return lookups.aborted_transactions(self, from_offset, until_offset)

    # -- producers and epochs ---------------------------------------------------------------------------------------

    @property
    def producers(self) -> ProducerStates:
        if self._producers is None:
            self._producers = self._load_producers()
        return self._producers

    @takes_dir_offline
    def _load_producers(self) -> ProducerStates:
        states = ProducerStates()
        self.snapshot_offset = snapshots.load_newest(self.log_dir.disk, self.folder, self.next_offset, states)
        lookups.replay_producers(self, states, max(self.snapshot_offset, self.log_start_offset), self._replay_until)
        states.expire(self.log_dir.clock.wall_ms(), self.config.producer_id_expiration_ms)
        return states

    def take_over(self, other: "PartitionLog") -> None:
        """Takes the in-memory state of a log with the same records, in another folder, that this log replaces."""
        self.high_watermark = other.high_watermark
        self._producers = other._producers
        self._replay_until = other._replay_until

    def unload_producers(self) -> None:
        """Drops the producers' states because the log's end has moved back. The next use loads them again."""
        self._producers = None
        self._replay_until = self.next_offset
        self.snapshot_offset = -1

    def expire_producers(self) -> None:
        if self._producers is not None:
            self._producers.expire(self.log_dir.clock.wall_ms(), self.config.producer_id_expiration_ms)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or whose end is at or above the high watermark."""
        return self.producers.first_unstable_offset(self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = self._load_epochs()
        return self._epochs

    @takes_dir_offline
    def _load_epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs(self.log_dir.disk, self.folder)
        epochs.cut_start(self.log_start_offset)
        return epochs

    def cut_epochs(self, end_offset: int) -> None:
        self.epochs.cut_end(end_offset)
        self.noted_epoch = _NOT_LOADED

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    @takes_dir_offline
    def begin_epoch(self, leader_epoch: int, offset: int | None = None) -> None:
        """Notes where an epoch begins, by default at the log's end, unless the epoch is known already."""
        self.epochs.begin(leader_epoch, self.next_offset if offset is None else offset)
        self.noted_epoch = leader_epoch

    @takes_dir_offline
    def announce_epoch(self, leader_epoch: int) -> None:
        """Notes, in memory only, that a new epoch begins at the log's end. Its first batch writes it to the file."""
        self.epochs.begin(leader_epoch, self.next_offset, has_batch=False)
        self.noted_epoch = _NOT_LOADED

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ended (KIP-101); (-1, -1) if unknown."""
        return self.epochs.end_offset(leader_epoch, self.next_offset)

    # -- shorten ----------------------------------------------------------------------------------------------------

    @takes_dir_offline
    def advance_log_start(self, offset: int) -> None:
        """Removes the records below an offset, and the segments that have no other records.

        :raises OffsetOutOfRange: if the offset is above the high watermark.
        """
        retention.advance_log_start(self, offset)

    @takes_dir_offline
    def enforce_retention(self) -> int:
        """Drops whole segments that are too old or too many; returns how many. If it was any, there may be more."""
        return retention.enforce(self)

    @takes_dir_offline
    def truncate_to(self, offset: int) -> None:
        """Drops all batches from the one that contains an offset on."""
        truncation.truncate_to(self, offset)

    @takes_dir_offline
    def truncate_fully(self, offset: int) -> None:
        """Drops everything. The log goes on at an offset."""
        truncation.truncate_fully(self, offset)

    @takes_dir_offline
    def replace_segments(self, cleaned: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Puts segments that the cleaner wrote (``.cleaned`` files) in place of neighbouring ones."""
        segment_swap.replace_segments(self, cleaned, old)

    # -- flush and close --------------------------------------------------------------------------------------------

    @takes_dir_offline
    def flush(self) -> None:
        """Calls fsync for all that is written now, then assigns ``recovery_point``. May run on another thread."""
        end_offset = self.next_offset
        recovery_point = self.recovery_point
        if end_offset > recovery_point and not self.is_closed:
            for segment in self.segments[self.segment_at(recovery_point) :]:
                self._fsync(segment, is_finished=segment is not self.active)
            if recovery_point <= self.active.base_offset:
                # Files were created since the last flush: their names must be on disk too.
                self.log_dir.disk.fsync_directory(self.folder)
            self.recovery_point = min(end_offset, self.next_offset)
        self.flushed_ms = self.log_dir.clock.wall_ms()

    def _fsync(self, segment: Segment, *, is_finished: bool) -> None:
        try:
            segment.fsync()
            if is_finished:
                segment.fsync_indexes()
        except FileNotFoundError:
            # The thread that owns the log dropped the segment meanwhile: there is nothing left to sync.
            if segment in self.segments and not self.is_closed:
                raise

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether to flush: by ``flush.ms``, or because a finished segment is not on disk yet."""
        recovery_point = self.recovery_point
        if recovery_point >= self.next_offset:
            return False
        if recovery_point < self.active.base_offset:
            return True
        if self.flushed_ms < 0:
            self.flushed_ms = now_ms
        return now_ms - self.flushed_ms >= self.config.flush_ms

    @takes_dir_offline
    def close(self) -> None:
        """Writes indexes and producers to disk and closes the files. The log cannot be used any more."""
        if self.is_closed:
            return
        self.end_early_write()
        self.active.finish()
        if self.next_offset > self.active.base_offset:
            self.take_snapshot()
        if self.next_offset > self.recovery_point:
            self.active.fsync_indexes()
        if self._epochs is not None:
            self._epochs.write_out()
        self.flush()
        self.close_files()

    def close_files(self) -> None:
        """Closes all files without writing anything. The log cannot be used any more."""
        self.is_closed = True
        if self.early_write is not None:
            self.early_write.end(cuts_file=False)
        for segment in self.segments:
            segment.close_files()
