"""The ``.cleaned`` files of one segment, written front to back: log, both indexes, and aborted transactions if any.

They carry the entries that appending the same batches would have left. All are on disk (fsync) when they are finished,
since what they replace is below the recovery point and is not looked at again after a crash.
"""

from headrace.log.cleaning_plan import Pace
from headrace.log.disk import Disk
from headrace.log.offset_index import OffsetIndex
from headrace.log.segment import CLEANED, INDEX, TIMEINDEX, TXNINDEX, Segment
from headrace.log.time_index import TimeIndex
from headrace.log.txn_index import TxnIndex
from headrace.protocol.records import NO_TIMESTAMP, Buffer, read_header

_WRITE_BYTES = 512 * 1024


class CleanedSegment:
    def __init__(self, disk: Disk, fd: int, first: Segment, pace: Pace) -> None:
        self._disk, self._fd, self._pace = disk, fd, pace
        self._base_offset = first.base_offset
        self._interval_bytes = first.index_interval_bytes
        self._offsets = OffsetIndex(disk, first.path(INDEX) + CLEANED)
        self._times = TimeIndex(disk, first.path(TIMEINDEX) + CLEANED)
        self._offsets.reset()
        self._times.reset()
        self.aborted = TxnIndex(disk, first.path(TXNINDEX) + CLEANED)
        self.aborted.reset()
        self._parts: list[Buffer] = []
        self._parts_bytes = self._written_bytes = self._since_index_bytes = 0
        self._max_timestamp, self._max_timestamp_at = NO_TIMESTAMP, first.base_offset

    def append(self, batch: Buffer) -> None:
        header = read_header(batch)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_at = header.max_timestamp, header.last_offset
        if self._since_index_bytes > self._interval_bytes:
            self._offsets.append(header.last_offset - self._base_offset, self._written_bytes + self._parts_bytes)
            self._times.append(self._max_timestamp, self._max_timestamp_at - self._base_offset)
            self._since_index_bytes = 0
        self._since_index_bytes += len(batch)
        self._parts.append(batch)
        self._parts_bytes += len(batch)
        if self._parts_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._disk.write(self._fd, (b"".join(self._parts),), self._written_bytes, self._parts_bytes)
        self._pace(self._parts_bytes)
        self._written_bytes += self._parts_bytes
        self._parts, self._parts_bytes = [], 0

    def finish(self) -> int:
        """All files complete and on disk; how long the log is."""
        self._write()
        self._disk.fsync(self._fd)
        self._times.append(self._max_timestamp, self._max_timestamp_at - self._base_offset)
        self._offsets.write_out()
        self._times.write_out()
        paths = [self._offsets.path, self._times.path] + ([self.aborted.path] if self.aborted.entries else [])
        for path in paths:
            with self._disk.opened(path) as fd:
                self._disk.fsync(fd)
        return self._written_bytes
