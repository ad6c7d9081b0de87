"""The transaction index of a segment (``.txnindex``): lists the aborted transactions whose abort marker is in the
segment.

::

    0   version             int16   0
    2   producer_id         int64
    10  first_offset        int64   of the transaction
    18  last_offset         int64   of its abort marker
    26  last_stable_offset  int64   the partition's, after this transaction had ended

A consumer with ``read_committed`` gets these entries with the records, and drops the aborted records itself. An entry
is written when its marker is appended; recovery rebuilds the entries from the markers. The file exists only if the
segment has an abort marker. An entry that a crash has cut is ignored.
"""

from struct import Struct
from typing import NamedTuple

from headrace.log.disk import Disk

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    """The entries are read at their first use. Most segments have none."""

    __slots__ = ("_disk", "_entries", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTxn] | None = None

    @property
    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            data = self._disk.read_file(self.path) or b""
            whole = data[: len(data) - len(data) % ENTRY_BYTES]
            self._entries = [AbortedTxn._make(fields[1:]) for fields in _ENTRY.iter_unpack(whole)]
        return self._entries

    def append(self, aborted: AbortedTxn) -> None:
        entries = self.entries
        self._disk.append_file(self.path, _ENTRY.pack(0, *aborted), len(entries) * ENTRY_BYTES)
        entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Removes the transactions whose marker is at or above an offset."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) != len(self.entries):
            with self._disk.opened(self.path) as fd:
                self._disk.truncate(fd, len(kept) * ENTRY_BYTES)
        self._entries = kept

    def reset(self) -> None:
        """Removes all entries, and the file."""
        data = self._disk.read_file(self.path)
        if data is not None:
            self._disk.unlink(self.path)
        self._entries = []
