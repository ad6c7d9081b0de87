"""``.index``: where in a segment a batch lies, for some batches.

::

    0  relative_offset  int32   last offset of the batch, less the segment's base offset
    4  position         int32   where that batch begins in the .log file

An entry is made after every ``index.interval.bytes`` of log, so a lookup gives a place at or before the batch that is
sought, and the reader scans from there.

In memory an entry is one 64-bit number (offset in the high half), so that finding one is a bisection in C. Entries
are written to the file in runs, and the rest when the segment is rolled or closed. A crash loses at most entries of
the active segment, which recovery scans anyway and whose index it rebuilds. What is read back is checked (whole
entries, both halves rising, inside the segment); an insane file is reported as None and rebuilt from the log.
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
        """Whether the file was there and makes sense for a segment of that size."""
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
        """The last indexed position that is not beyond the given one; 0 if there is none."""
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
        """Forget entries at or above an offset, or at or beyond a position."""
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
    """Relative offsets and positions as a file has them, right or wrong, for those who look at damaged ones.

    Apache Kafka gives the file its full length at once, so the first entry of nothing but zeros is where it ends.
    """
    for relative_offset, position in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if relative_offset == position == 0:
            return
        yield relative_offset, position


def _position(entry: int) -> int:
    return entry & _HALF


def _swapped(entries: "array[int]") -> "array[int]":
    """Between the file's byte order, big endian, and this machine's. Changes the array that it is given."""
    if sys.byteorder == "little":
        entries.byteswap()
    return entries


def _rises(entries: "array[int]", segment_bytes: int) -> bool:
    if not entries:
        return True
    last = entries[-1]
    return last >> 63 == 0 and last & _HALF < segment_bytes and all(map(lt, entries, islice(entries, 1, None)))
