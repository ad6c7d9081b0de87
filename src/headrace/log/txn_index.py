"""``.txnindex``: the aborted transactions whose abort marker lies in a segment.

::

    0   version             int16   0
    2   producer_id         int64
    10  first_offset        int64   of the transaction
    18  last_offset         int64   of its abort marker
    26  last_stable_offset  int64   what it was once this transaction had ended

A reader of committed data gets these with what it reads, and drops the records of those producers itself. Entries are
written when the marker is appended; recovery writes them anew from the markers. The file exists only where there was
an abort. An entry cut by a crash is ignored.
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
    """Read at its first use; most segments never have one."""

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
        """Forget transactions whose marker is at or above an offset."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) != len(self.entries):
            with self._disk.opened(self.path) as fd:
                self._disk.truncate(fd, len(kept) * ENTRY_BYTES)
        self._entries = kept

    def reset(self) -> None:
        """No entries, whatever the file held."""
        data = self._disk.read_file(self.path)
        if data is not None:
            self._disk.unlink(self.path)
        self._entries = []
