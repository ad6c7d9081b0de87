"""The time index of a segment (``.timeindex``): gives the largest timestamp of all records up to some offsets.

::

    0  timestamp        int64   the largest of the segment so far
    8  relative_offset  int32   last offset of the batch that has it, less the segment's base offset

No record before an entry's offset is newer than the entry's timestamp. So the first record at or after a time is behind
the last entry below that time. With each entry of the offset index comes an entry here, if the maximum has grown. The
last entry is added when the segment is rolled or closed. So the last entry of a finished segment has its largest
timestamp.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct

from headrace.log.disk import Disk

_ENTRY = Struct(">qi")
ENTRY_BYTES = _ENTRY.size
_RUN_ENTRIES = 64


class TimeIndex:
    __slots__ = ("_disk", "_written", "path", "relative_offsets", "timestamps")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.timestamps: array[int] = array("q")
        self.relative_offsets: array[int] = array("i")
        self._written = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def is_written(self) -> bool:
        return self._written == len(self.timestamps)

    def load(self) -> bool:
        """Reads the file; returns whether it exists and is valid."""
        data = self._disk.read_file(self.path)
        if data is None or len(data) % ENTRY_BYTES:
            return False
        timestamps, offsets = array("q"), array("i")
        for timestamp, relative_offset in _ENTRY.iter_unpack(data):
            if timestamps and (timestamp <= timestamps[-1] or relative_offset < offsets[-1]):
                return False
            if relative_offset < 0:
                return False
            timestamps.append(timestamp)
            offsets.append(relative_offset)
        self.timestamps, self.relative_offsets = timestamps, offsets
        self._written = len(timestamps)
        return True

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Adds an entry, if the timestamp is a new maximum."""
        if timestamp_ms < 0 or (self.timestamps and timestamp_ms <= self.timestamps[-1]):
            return
        self.timestamps.append(timestamp_ms)
        self.relative_offsets.append(relative_offset)
        if len(self.timestamps) - self._written >= _RUN_ENTRIES:
            self.write_out()

    def lookup(self, timestamp_ms: int) -> int:
        """A relative offset before which all records are older than a time; 0 if the index has none."""
        at = bisect_left(self.timestamps, timestamp_ms)
        return self.relative_offsets[at - 1] if at else 0

    def write_out(self) -> None:
        if self.is_written:
            return
        first = self._written
        pairs = zip(self.timestamps[first:], self.relative_offsets[first:], strict=True)
        self._disk.append_file(self.path, b"".join(_ENTRY.pack(*pair) for pair in pairs), first * ENTRY_BYTES)
        self._written = len(self.timestamps)

    def truncate(self, relative_offset: int) -> None:
        """Removes the entries at or above an offset."""
        keep = bisect_left(self.relative_offsets, relative_offset)
        del self.timestamps[keep:], self.relative_offsets[keep:]
        with self._disk.opened(self.path) as fd:
            self._disk.truncate(fd, keep * ENTRY_BYTES)
        self._written = min(self._written, keep)
        self.write_out()

    def reset(self) -> None:
        self.truncate(-1)


def read_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """The timestamps and relative offsets in a file, unchecked, as in
    :func:`headrace.log.offset_index.read_entries`."""
    for timestamp_ms, relative_offset in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
        if timestamp_ms == relative_offset == 0 and len(data) > ENTRY_BYTES:
            return
        yield timestamp_ms, relative_offset
