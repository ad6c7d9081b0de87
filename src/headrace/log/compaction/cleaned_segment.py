"""Writes the ``.cleaned`` files of one segment: the log, both indexes, and the aborted transactions if there are any.

The indexes have the entries that appends of the same batches would have made. :meth:`CleanedSegment.finish` syncs all
files (fsync): the segments that they replace are below the recovery point, where recovery after a crash does not look.
"""

import os

from headrace.log.compaction.plan import CleaningPlan, Pace
from headrace.log.disk import Disk
from headrace.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from headrace.log.offset_index import OffsetIndex
from headrace.log.segment import CLEANED, INDEX, LOG, TIMEINDEX, TXNINDEX, Segment
from headrace.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from headrace.log.time_index import TimeIndex
from headrace.log.txn_index import AbortedTxn, TxnIndex
from headrace.protocol.records import NO_TIMESTAMP, Buffer, read_header

_MAX_RELATIVE_OFFSET = 2**31 - 1


class CleanedSegment:
    def __init__(self, plan: CleaningPlan, first: Segment, pace: Pace) -> None:
        self._disk = disk = plan.disk
        self._pace = pace
        self._chunk_bytes = plan.chunk_bytes
        self._base_offset = first.base_offset
        self._interval_bytes = first.index_interval_bytes
        self._offsets = OffsetIndex(disk, first.path(INDEX) + CLEANED)
        self._times = TimeIndex(disk, first.path(TIMEINDEX) + CLEANED)
        self._offsets.reset()
        self._times.reset()
        self._aborted = TxnIndex(disk, first.path(TXNINDEX) + CLEANED)
        self._aborted.reset()
        self._parts: list[Buffer] = []
        self._parts_bytes = self._written_bytes = self._since_index_bytes = 0
        self._max_timestamp, self._max_timestamp_at = NO_TIMESTAMP, first.base_offset
        self._fd = disk.open(first.path(LOG) + CLEANED, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    @property
    def size_bytes(self) -> int:
        return self._written_bytes + self._parts_bytes

    def has_room(self, plan: CleaningPlan, segment: Segment, size_bytes: int) -> bool:
        """Whether all of a segment would fit behind the batches that are here."""
        config = plan.config
        indexes = ((self._offsets, INDEX, OFFSET_ENTRY_BYTES), (self._times, TIMEINDEX, TIME_ENTRY_BYTES))
        return (
            self.size_bytes + size_bytes <= config.segment_bytes
            and plan.offset_behind(segment) - 1 - self._base_offset <= _MAX_RELATIVE_OFFSET
            and all(
                len(index) * entry_bytes + _size_of(self._disk, segment.path(suffix)) <= config.segment_index_bytes
                for index, suffix, entry_bytes in indexes
            )
        )

    def append(self, batch: Buffer, aborted: AbortedTxn | None) -> None:
        header = read_header(batch)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_at = header.max_timestamp, header.last_offset
        if self._since_index_bytes > self._interval_bytes:
            self._offsets.append(header.last_offset - self._base_offset, self.size_bytes)
            self._times.append(self._max_timestamp, self._max_timestamp_at - self._base_offset)
            self._since_index_bytes = 0
        self._since_index_bytes += len(batch)
        self._parts.append(batch)
        self._parts_bytes += len(batch)
        if aborted is not None:
            self._aborted.append(aborted)
        if self._parts_bytes >= self._chunk_bytes:
            self._write()

    def _write(self) -> None:
        self._disk.write(self._fd, (b"".join(self._parts),), self._written_bytes, self._parts_bytes)
        self._pace(self._parts_bytes)
        self._written_bytes += self._parts_bytes
        self._parts, self._parts_bytes = [], 0

    def finish(self) -> None:
        """Completes, syncs and closes all files."""
        self._write()
        self._disk.fsync(self._fd)
        self._times.append(self._max_timestamp, self._max_timestamp_at - self._base_offset)
        self._offsets.write_out()
        self._times.write_out()
        paths = [self._offsets.path, self._times.path] + ([self._aborted.path] if self._aborted.entries else [])
        for path in paths:
            with self._disk.opened(path) as fd:
                self._disk.fsync(fd)
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)


def _size_of(disk: Disk, path: str) -> int:
    try:
        return disk.size_of(path)
    except FileNotFoundError:
        return 0
