"""The offset index of a segment (``.index``): gives the position of some batches in the segment's file.

::

    0  relative_offset  int32   last offset of the batch, less the segment's base offset
    4  position         int32   where that batch begins in the .log file

There is one entry per ``index.interval.bytes`` of log. So a lookup gives a position at or before the batch, and the
reader scans from there.

In memory an entry is one 64-bit number with the offset in the high half, so a lookup is a bisection in C. Entries are
written to the file in runs, and the rest when the segment is rolled or closed. A crash loses only entries of the active
segment, which recovery scans anyway, and whose index it rebuilds. A file that is read is checked: whole entries, both
halves rising, positions inside the segment. A file that fails the check is rebuilt from the log.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import lt
from struct import Struct

from headrace.log.disk import Disk

_ENTRY = Struct(">II")
ENTRY_BYTES = _ENTRY.size
_RUN_ENTRIES = 64
_HALF = 0xFFFFFFFF


class OffsetIndex:
    __slots__ = ("_disk", "_written", "entries", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.entries: array[int] = array("Q")
        self._written = 0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_written(self) -> bool:
        return self._written == len(self.entries)

    def load(self, segment_bytes: int) -> bool:
        """Reads the file; returns whether it exists and is valid for a segment of that size."""
        data = self._disk.read_file(self.path)
        if data is None or len(data) % ENTRY_BYTES:
            return False
        entries = _swapped(array("Q", data))
        if not _rises(entries, segment_bytes):
            return False
        self.entries = entries
        self._written = len(entries)
        return True

    def append(self, relative_offset: int, position: int) -> None:
        self.entries.append(relative_offset << 32 | position)
        if len(self.entries) - self._written >= _RUN_ENTRIES:
            self.write_out()

    def lookup(self, relative_offset: int) -> int:
        """The position of the last entry at or below an offset; 0 if there is none."""
        at = bisect_right(self.entries, relative_offset << 32 | _HALF)
        return self.entries[at - 1] & _HALF if at else 0

    def last_position_within(self, position: int) -> int:
        """The last indexed position at or before the given one; 0 if there is none."""
        at = bisect_right(self.entries, position, key=_position)
        return self.entries[at - 1] & _HALF if at else 0

    @property
    def last_position(self) -> int:
        return self.entries[-1] & _HALF if self.entries else 0

    def write_out(self) -> None:
        if self.is_written:
            return
        run = _swapped(self.entries[self._written :])
        self._disk.append_file(self.path, run.tobytes(), self._written * ENTRY_BYTES)
        self._written = len(self.entries)

    def truncate(self, relative_offset: int, position: int) -> None:
        """Removes the entries at or above an offset, and those at or behind a position."""
        keep = bisect_left(self.entries, relative_offset << 32) if relative_offset > 0 else 0
        keep = min(keep, bisect_right(self.entries, position - 1, key=_position))
        del self.entries[keep:]
        with self._disk.opened(self.path) as fd:
            self._disk.truncate(fd, keep * ENTRY_BYTES)
        self._written = min(self._written, keep)
        self.write_out()

    def reset(self) -> None:
        self.entries = array("Q")
        self._written = 0
        with self._disk.opened(self.path) as fd:
            self._disk.truncate(fd, 0)


def read_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """The relative offsets and positions in a file, without any check, for tools that show damaged files.

    Apache Kafka allocates the file in its full length, so the entries end at the first entry that is all zeros.
    """
    for relative_offset, position in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if relative_offset == position == 0:
            return
        yield relative_offset, position


def _position(entry: int) -> int:
    return entry & _HALF


def _swapped(entries: "array[int]") -> "array[int]":
    """Converts between the byte order of the file, big endian, and that of this machine. Changes the given array."""
    if sys.byteorder == "little":
        entries.byteswap()
    return entries


def _rises(entries: "array[int]", segment_bytes: int) -> bool:
    if not entries:
        return True
    last = entries[-1]
    return last >> 63 == 0 and last & _HALF < segment_bytes and all(map(lt, entries, islice(entries, 1, None)))
