"""One segment of a partition: a ``.log`` file of record batches, one behind the other, and its indexes.

The file's name is the offset of its first record, 20 digits. Only the last segment of a partition, the active one,
grows. An object of this class opens and reads nothing until it is used; the state that appending and searching need
is built by :meth:`load` from the indexes and a scan of what lies behind the last index entry, 4 KiB as a rule.

Finding the batch that contains an offset, cheapest first: the places where earlier reads ended (``_hints``: where a
consumer goes on), the last batches appended (``_recent_*``: dense, so the tail is never scanned), the offset index
and a scan from there.

A crash leaves a valid prefix of batches and perhaps a torn one behind it; indexes may be short or missing.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct

from headrace.log.file_region import FileRegion, OpenFile
from headrace.log.loaded_indexes import LoadedIndexes
from headrace.log.log_dir import LogDir
from headrace.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from headrace.log.offset_index import OffsetIndex
from headrace.log.segment_files import CLEANED, DELETED, INDEX, LOG, SWAP, TIMEINDEX, TXNINDEX, segment_name
from headrace.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from headrace.log.time_index import TimeIndex
from headrace.log.txn_index import TxnIndex
from headrace.protocol.records import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, Buffer, read_header

__all__ = ["CLEANED", "DELETED", "INDEX", "LOG", "SWAP", "TIMEINDEX", "TXNINDEX", "Segment", "segment_name"]

#: How many of the last batches have their places remembered, at least and at most.
_RECENT_KEPT, _RECENT_MAX = 64, 128
_HINTS_MAX = 16
_SCAN_BYTES = 8192
_UNKNOWN = -2
NO_TIMESTAMP = -1
_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_MAX_RELATIVE_OFFSET = 2**31 - 1


class Segment:
    __slots__ = (
        "_file",
        "_hints",
        "_recent_end",
        "_recent_offsets",
        "_recent_positions",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "cuts",
        "first_timestamp_ms",
        "folder",
        "index_interval_bytes",
        "log_dir",
        "max_timestamp_ms",
        "offset_index",
        "offset_of_max_timestamp",
        "size_bytes",
        "time_index",
        "txn_index",
        "used",
    )

    def __init__(
        self, log_dir: LogDir, folder: str, base_offset: int, size_bytes: int, index_interval_bytes: int
    ) -> None:
        self.log_dir = log_dir
        self.folder = folder
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = _UNKNOWN
        #: How often its end was cut off; what was copied before may be others' bytes by now.
        self.cuts = 0
        self.first_timestamp_ms = _UNKNOWN
        self.max_timestamp_ms = _UNKNOWN
        self.offset_of_max_timestamp = base_offset
        self.bytes_since_index = 0
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.txn_index: TxnIndex | None = None
        self.used = False
        self._file: OpenFile | None = None
        self._hints: dict[int, int] | None = None
        self._recent_offsets: list[int] = _NO_PLACES
        self._recent_positions: list[int] = _NO_PLACES
        self._recent_end = -1

    def path(self, suffix: str = LOG) -> str:
        return f"{self.folder}/{segment_name(self.base_offset)}{suffix}"

    def __repr__(self) -> str:
        return f"<Segment {self.path()} {self.size_bytes} bytes>"

    # -- files ------------------------------------------------------------------------------------------------------

    def file(self) -> OpenFile:
        self.used = True
        file = self._file
        if file is None:
            file = self._file = OpenFile(self.log_dir.disk, self.path())
            self.log_dir.files.add(self)
        return file

    def evict(self) -> None:
        self._file = None

    def release(self) -> None:
        """Let go of file and indexes; a region that is being sent keeps its own hold."""
        self._file = None
        self.log_dir.files.discard(self)
        self.drop_indexes()

    def drop_indexes(self) -> None:
        if self.offset_index is not None:
            self.offset_index = self.time_index = None
        self._recent_offsets = self._recent_positions = _NO_PLACES
        self._recent_end = -1
        self._hints = None

    def fsync(self) -> None:
        file = self.file()
        self.log_dir.disk.fsync(file.fd)

    def fsync_indexes(self) -> None:
        disk = self.log_dir.disk
        for suffix in (INDEX, TIMEINDEX):
            with disk.opened(self.path(suffix), os.O_RDWR) as fd:
                disk.fsync(fd)

    def aborted(self) -> TxnIndex:
        index = self.txn_index
        if index is None:
            index = self.txn_index = TxnIndex(self.log_dir.disk, self.path(TXNINDEX))
        return index

    # -- state that is built at first use ---------------------------------------------------------------------------

    def load(self) -> int:
        """Build the state for searching and appending; the offset behind the last record.

        An index that is missing or makes no sense is written anew.
        """
        disk = self.log_dir.disk
        offsets, times = OffsetIndex(disk, self.path(INDEX)), TimeIndex(disk, self.path(TIMEINDEX))
        self.offset_index, self.time_index = offsets, times
        if not self.size_bytes or not (offsets.load(self.size_bytes) and times.load()):
            return self.rebuild()
        self.bytes_since_index = self.size_bytes - offsets.last_position
        self.max_timestamp_ms = times.timestamps[-1] if times.timestamps else NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset + (times.relative_offsets[-1] if times.timestamps else 0)
        return self._scan_tail(offsets.last_position)

    def _scan_tail(self, position: int) -> int:
        self._recent_offsets, self._recent_positions, self._recent_end, self._hints = [], [], -1, {}
        next_offset = self.base_offset
        for at, header in self.headers(position):
            next_offset = self._note(header, at)
        return next_offset

    def _note(self, header: BatchHeader, position: int) -> int:
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.offset_of_max_timestamp = last_offset
        self.remember(header.base_offset, position, last_offset + 1)
        return last_offset + 1

    def rebuild(self) -> int:
        """Write both indexes anew from the log; the offset behind the last record."""
        self.begin_rebuild()
        next_offset = self.base_offset
        for at, header in self.headers(0):
            next_offset = self.index_batch(header, at)
        self.finish()
        return next_offset

    def begin_rebuild(self) -> None:
        """Both indexes empty, on disk too; :meth:`index_batch` for each batch, then :meth:`finish`."""
        disk = self.log_dir.disk
        offsets, times = OffsetIndex(disk, self.path(INDEX)), TimeIndex(disk, self.path(TIMEINDEX))
        offsets.reset()
        times.reset()
        self.offset_index, self.time_index = offsets, times
        self._recent_offsets, self._recent_positions, self._recent_end, self._hints = [], [], -1, {}
        self.bytes_since_index = 0
        self.first_timestamp_ms = _UNKNOWN
        self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset

    def index_batch(self, header: BatchHeader, position: int) -> int:
        """What an append of this batch would have left in the indexes; the offset behind it."""
        next_offset = self._note(header, position)
        if self.bytes_since_index > self.index_interval_bytes:
            self.add_index_entry(next_offset - 1, position)
        self.bytes_since_index += header.size_bytes
        return next_offset

    def loaded(self) -> OffsetIndex:
        index = self.offset_index
        if index is None:
            self._load_for_reading()
            index = self.offset_index
            assert index is not None
        return index

    def times(self) -> TimeIndex:
        self.loaded()
        assert self.time_index is not None
        return self.time_index

    def largest_timestamp_ms(self) -> int:
        """Of its records; for a segment with none that has one, when the file last changed."""
        if self.max_timestamp_ms == _UNKNOWN:
            self._load_for_reading()
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return self.log_dir.disk.modified_ms(self.path())

    def rolls_since_ms(self) -> int:
        """The timestamp from which ``segment.ms`` counts: the first batch's, or -1 where it has none."""
        if self.first_timestamp_ms == _UNKNOWN and self.size_bytes:
            self.first_timestamp_ms = next(self.headers(0))[1].max_timestamp
        return self.first_timestamp_ms

    def jitter_ms(self, max_jitter_ms: int) -> int:
        """A part of ``segment.jitter.ms`` that differs from segment to segment, so that not all roll at once."""
        return hash((self.folder, self.base_offset)) % max_jitter_ms if max_jitter_ms > 0 else 0

    # -- appending --------------------------------------------------------------------------------------------------

    def is_index_full(self, segment_index_bytes: int) -> bool:
        offsets, times = self.offset_index, self.time_index
        if offsets is None or times is None:
            return False
        return (
            len(offsets.entries) >= segment_index_bytes // OFFSET_ENTRY_BYTES
            or len(times.timestamps) >= segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    def can_hold(self, offset: int) -> bool:
        """Whether an offset can be written relative to this segment's base."""
        return 0 <= offset - self.base_offset <= _MAX_RELATIVE_OFFSET

    def write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Bytes behind the last batch, all or none. They count only once ``size_bytes`` is raised by them."""
        disk = self.log_dir.disk
        file = self.file()
        try:
            disk.write(file.fd, buffers, self.size_bytes, size_bytes)
        except OSError:
            disk.truncate(file.fd, self.size_bytes)
            raise

    def remember(self, base_offset: int, position: int, next_offset: int) -> None:
        """Where a batch was appended. The offsets of remembered batches have no gaps between them."""
        offsets = self._recent_offsets
        if base_offset != self._recent_end:
            offsets = self._recent_offsets = []
            self._recent_positions = []
        elif len(offsets) >= _RECENT_MAX:
            del offsets[:-_RECENT_KEPT]
            del self._recent_positions[:-_RECENT_KEPT]
        offsets.append(base_offset)
        self._recent_positions.append(position)
        self._recent_end = next_offset

    def add_index_entry(self, last_offset: int, position: int) -> None:
        assert self.offset_index is not None
        assert self.time_index is not None
        self.offset_index.append(last_offset - self.base_offset, position)
        self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
        self.bytes_since_index = 0

    def finish(self) -> None:
        """Nothing more comes: the last time entry, and whatever of the indexes is not in their files."""
        if self.offset_index is None or self.time_index is None:
            return
        self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
        self.offset_index.write_out()
        self.time_index.write_out()

    # -- searching --------------------------------------------------------------------------------------------------

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the whole batches from a batch's position on."""
        pread = self.log_dir.disk.pread
        file = self.file()
        end = self.size_bytes if end is None else end
        chunk, chunk_at = b"", position
        while end - position >= HEADER_BYTES:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = pread(file.fd, min(_SCAN_BYTES, end - position), position), position
                if len(chunk) < HEADER_BYTES:
                    return
            header = read_header(chunk, position - chunk_at)
            if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES or position + header.size_bytes > end:
                return
            yield position, header
            position += header.size_bytes

    def position_of(self, offset: int) -> int:
        """Where the first batch begins whose last offset is at or above the given one; the size if there is none."""
        if self.offset_index is None:
            self._load_for_reading()
        recent = self._recent_offsets
        if recent and offset >= recent[0]:
            if offset >= self._recent_end:
                return self.size_bytes
            return self._recent_positions[bisect_right(recent, offset) - 1]
        if self._hints and offset in self._hints:
            return self._hints[offset]
        return self._scan_for(offset)

    def _load_for_reading(self) -> None:
        self.load()
        self.log_dir.indexes.add(LoadedIndexes(self))

    def _scan_for(self, offset: int) -> int:
        position = self.loaded().lookup(offset - self.base_offset)
        pread, file, end = self.log_dir.disk.pread, self.file(), self.size_bytes
        chunk, chunk_at = b"", position
        while end - position >= HEADER_BYTES:
            at = position - chunk_at
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_at, at = pread(file.fd, _SCAN_BYTES, position), position, 0
            base_offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at)
            if base_offset + _LAST_DELTA.unpack_from(chunk, at + _LAST_DELTA_AT)[0] >= offset:
                return position
            position += length + LENGTH_PREFIX_BYTES
        return end

    def region(self, offset: int, max_bytes: int, until_offset: int | None, at_least_one: bool) -> FileRegion | None:
        """Whole batches from the one with the offset on, within the bytes and below ``until_offset`` (None: all)."""
        start = self.position_of(offset)
        end = self.size_bytes if until_offset is None else self.position_of(until_offset)
        if end - start > max_bytes:
            end = self._cut(start, end, max_bytes, at_least_one)
        if end <= start:
            return None
        return FileRegion(self.log_dir.disk, self.file(), start, end - start)

    def _cut(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """A batch boundary at most ``max_bytes`` behind another, or the end of the first batch."""
        recent = self._recent_positions
        if recent and start >= recent[0]:
            at = bisect_right(recent, start + max_bytes) - 1
            if recent[at] > start:
                return recent[at]
            if not at_least_one:
                return start
            return recent[at + 1] if at + 1 < len(recent) else end
        boundary = self.loaded().last_position_within(start + max_bytes)
        if boundary <= start:
            boundary = self._walk(start, end, max_bytes, at_least_one)
        self._hint(boundary)
        return boundary

    def _walk(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        boundary = start
        for at, header in self.headers(start, end):
            behind = at + header.size_bytes
            if behind - start > max_bytes:
                return behind if at == start and at_least_one else boundary
            boundary = behind
        return boundary

    def _hint(self, position: int) -> None:
        """Remember where the batch at a position begins, as its offset is what the reader will ask for next."""
        hints, file = self._hints, self.file()
        head = self.log_dir.disk.pread(file.fd, 8, position) if position < self.size_bytes else b""
        if hints is None or len(head) < 8:
            return
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[int.from_bytes(head, "big")] = position

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        file = self.file()
        return self.log_dir.disk.pread(file.fd, size_bytes, position)

    # -- cutting ----------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        """Drop the batch that contains an offset and all behind it; the offset behind what is left."""
        position = self.position_of(offset)
        self.cut_file(position)
        offsets, times = self.loaded(), self.times()
        offsets.truncate(offset - self.base_offset, position)
        times.truncate(max(0, offset - self.base_offset))
        self.aborted().truncate(offset)
        return self.load()

    def cut_file(self, position: int) -> None:
        file = self.file()
        self.log_dir.disk.truncate(file.fd, position)
        self.size_bytes = position
        self.cuts += 1


#: Shared by all segments that remember no places, so that an idle one costs no lists.
_NO_PLACES: list[int] = []
