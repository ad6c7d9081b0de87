"""One segment of a partition: a ``.log`` file of record batches, one behind the other, and its indexes.

The file's name is the offset of its first record, in 20 digits. Only the last segment of a partition, the active one,
grows. A segment opens and reads nothing until it is used. :meth:`Segment.load` builds the state that appending and
searching need: it reads the indexes, and scans what lies behind the last index entry, usually 4 KiB.

The batch with an offset is found in one of these ways, the cheapest first: the last batches and the boundaries of
earlier reads are remembered (``batch_positions.py``); otherwise the offset index gives a place before the batch, and a
scan from there finds it.

A crash leaves a valid prefix of batches, and perhaps a torn batch behind it. Indexes may be short or missing.
"""

import os
from collections.abc import Iterator
from struct import Struct

from headrace.log.batch_positions import NO_POSITIONS, UNKNOWN_POSITION, BatchPositions
from headrace.log.config import LogConfig
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

_SCAN_BYTES = 8192
_UNKNOWN = -2
NO_TIMESTAMP = -1
_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_DELTA = Struct(">i")
_LAST_DELTA_AT = 23
_OFFSET_BYTES = 8
_MAX_RELATIVE_OFFSET = 2**31 - 1


class Segment:
    __slots__ = (
        "_file",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "cuts",
        "first_timestamp_ms",
        "folder",
        "has_reserved_space",
        "index_interval_bytes",
        "log_dir",
        "max_timestamp_ms",
        "offset_index",
        "offset_of_max_timestamp",
        "positions",
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
        #: How often the end was cut off. After a cut the same positions may hold other bytes than before.
        self.cuts = 0
        self.first_timestamp_ms = _UNKNOWN
        self.max_timestamp_ms = _UNKNOWN
        self.offset_of_max_timestamp = base_offset
        self.bytes_since_index = 0
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.txn_index: TxnIndex | None = None
        self.used = False
        #: Whether the file may have blocks behind its end (``preallocate``).
        self.has_reserved_space = False
        self.positions = NO_POSITIONS
        self._file: OpenFile | None = None

    @classmethod
    def create(cls, log_dir: LogDir, folder: str, base_offset: int, config: LogConfig) -> "Segment":
        """An empty segment, with its files."""
        segment = cls(log_dir, folder, base_offset, 0, config.index_interval_bytes)
        segment.created_ms = log_dir.clock.wall_ms()
        log_dir.disk.close(log_dir.disk.open(segment.path()))
        segment.begin_rebuild()
        if config.preallocate:
            segment.reserve_space(config.segment_bytes)
        return segment

    def reserve_space(self, size_bytes: int) -> None:
        """Reserves disk space behind the end of the file, which :meth:`finish` releases."""
        self.log_dir.disk.reserve(self.file().fd, size_bytes)
        self.has_reserved_space = True

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
        """Closes the file, unless a region of it is still being sent. The next use opens it again."""
        self._file = None

    def close_files(self) -> None:
        """Closes the file and drops the indexes. A region that is being sent keeps the file open."""
        self._file = None
        self.log_dir.files.discard(self)
        self.unload_indexes()

    def unload_indexes(self) -> None:
        if self.offset_index is not None:
            self.offset_index = self.time_index = None
        self.positions = NO_POSITIONS

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
        """Builds the state for searching and appending; returns the offset behind the last record.

        An index that is missing or damaged is rebuilt.
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
        self.positions = BatchPositions()
        next_offset = self.base_offset
        for at, header in self.headers(position):
            next_offset = self._note(header, at)
        return next_offset

    def _note(self, header: BatchHeader, position: int) -> int:
        last_offset = header.last_offset
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.offset_of_max_timestamp = last_offset
        self.positions.remember(header.base_offset, position, last_offset + 1)
        return last_offset + 1

    def rebuild(self) -> int:
        """Writes both indexes anew from the log; returns the offset behind the last record."""
        self.begin_rebuild()
        next_offset = self.base_offset
        for at, header in self.headers(0):
            next_offset = self.index_batch(header, at)
        self._write_out_indexes()
        return next_offset

    def begin_rebuild(self) -> None:
        """Empties both indexes, on disk too. Then comes :meth:`index_batch` for each batch, then :meth:`finish`."""
        disk = self.log_dir.disk
        offsets, times = OffsetIndex(disk, self.path(INDEX)), TimeIndex(disk, self.path(TIMEINDEX))
        offsets.reset()
        times.reset()
        self.offset_index, self.time_index = offsets, times
        self.positions = BatchPositions()
        self.bytes_since_index = 0
        self.first_timestamp_ms = _UNKNOWN
        self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset

    def index_batch(self, header: BatchHeader, position: int) -> int:
        """Adds the index entries that an append of this batch would have made; returns the offset behind the batch."""
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
        """The largest timestamp of the records; if no record has one, when the file was last changed."""
        if self.max_timestamp_ms == _UNKNOWN:
            self._load_for_reading()
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return self.log_dir.disk.modified_ms(self.path())

    def rolls_since_ms(self) -> int:
        """The timestamp from which ``segment.ms`` counts: that of the first batch, or -1 if it has none."""
        if self.first_timestamp_ms == _UNKNOWN and self.size_bytes:
            self.first_timestamp_ms = next(self.headers(0))[1].max_timestamp
        return self.first_timestamp_ms

    def jitter_ms(self, max_jitter_ms: int) -> int:
        """A part of ``segment.jitter.ms`` that differs between segments, so that not all of them roll at once."""
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
        """Whether the indexes can store an offset relative to this segment's base offset."""
        return 0 <= offset - self.base_offset <= _MAX_RELATIVE_OFFSET

    def write(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Writes bytes behind the last batch, all or none. They count only after the caller has raised
        ``size_bytes``."""
        disk = self.log_dir.disk
        file = self.file()
        try:
            disk.write(file.fd, buffers, self.size_bytes, size_bytes)
        except OSError:
            disk.truncate(file.fd, self.size_bytes)
            raise

    def add_index_entry(self, last_offset: int, position: int) -> None:
        assert self.offset_index is not None
        assert self.time_index is not None
        self.offset_index.append(last_offset - self.base_offset, position)
        self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
        self.bytes_since_index = 0

    def finish(self) -> None:
        """Completes the indexes, and releases the space that is reserved. No batch follows."""
        if self.has_reserved_space:
            self.log_dir.disk.truncate(self.file().fd, self.size_bytes)
            self.has_reserved_space = False
        self._write_out_indexes()

    def _write_out_indexes(self) -> None:
        """Writes the last entry of the time index, and the entries that are not in the index files yet."""
        if self.offset_index is None or self.time_index is None:
            return
        self.time_index.append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
        self.offset_index.write_out()
        self.time_index.write_out()

    # -- searching --------------------------------------------------------------------------------------------------

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The positions and headers of the whole batches, from a batch's position on."""
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
        """Returns the position of the first batch whose last offset is at or above an offset, or the file's size."""
        if self.offset_index is None:
            self._load_for_reading()
        position = self.positions.find(offset, self.size_bytes)
        return position if position != UNKNOWN_POSITION else self._scan_for(offset)

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
            end = self._boundary_within(start, end, max_bytes, at_least_one)
        if end <= start:
            return None
        return FileRegion(self.log_dir.disk, self.file(), start, end - start)

    def _boundary_within(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """A boundary of batches at most ``max_bytes`` behind another one, or the end of the first batch."""
        boundary = self.positions.boundary_within(start, end, max_bytes, at_least_one)
        if boundary != UNKNOWN_POSITION:
            return boundary
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
        """Remembers where the batch at a position begins: the reader will ask for its offset next."""
        file, positions = self.file(), self.positions
        head = self.log_dir.disk.pread(file.fd, _OFFSET_BYTES, position) if position < self.size_bytes else b""
        if len(head) == _OFFSET_BYTES and positions is not NO_POSITIONS:
            positions.hint(int.from_bytes(head, "big"), position)

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        file = self.file()
        return self.log_dir.disk.pread(file.fd, size_bytes, position)

    # -- truncating -------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        """Drops the batch that contains an offset, and all batches behind it; returns the offset behind the rest."""
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
