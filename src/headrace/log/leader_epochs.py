"""Holds at which offset each leader epoch of a partition began, in the file ``leader-epoch-checkpoint`` (KIP-101).

A follower that returns asks its leader where the follower's own last epoch ended, and cuts its log there. Epochs and
offsets both rise from line to line. The file is read at first use and rewritten once per leadership. After a crash it
may name an epoch whose first batch was not written; recovery drops that epoch. So an epoch without a batch need not be
in the file: a broker that becomes the leader of a thousand partitions writes no file.

If the log's start moves, the file is not written: a load of the file cuts its start again. Retention often moves
the start of busy logs, and to replace a file may take long (42 ms were seen), while the event loop waits for the disk.
"""

from bisect import bisect_right
from logging import getLogger

from headrace.log.checkpoints import read_lines, write_lines
from headrace.log.disk import Disk

logger = getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"
UNKNOWN = -1


class LeaderEpochs:
    __slots__ = ("_disk", "_is_start_unwritten", "_is_unwritten", "entries", "path")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self.path = f"{folder}/{FILE_NAME}"
        #: Whether the last entry is not in the file yet.
        self._is_unwritten = False
        #: Whether the file has epochs before the log's start.
        self._is_start_unwritten = False
        self.entries: list[tuple[int, int]] = []
        try:
            self.entries = [(int(epoch), int(offset)) for epoch, offset in read_lines(disk, self.path)]
        except ValueError:
            logger.warning("checkpoint %s is damaged and counts as empty", self.path)

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else UNKNOWN

    def begin(self, epoch: int, offset: int, *, has_batch: bool = True) -> None:
        """Notes that an epoch begins at an offset, unless the epoch is known. It is written once it has a batch."""
        if epoch < 0 or epoch <= self.latest:
            if has_batch and self._is_unwritten and epoch == self.latest:
                self._replace(self.entries)
            return
        entries = [*(entry for entry in self.entries if entry[1] < offset), (epoch, offset)]
        if has_batch:
            self._replace(entries)
        else:
            self.entries, self._is_unwritten = entries, True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to the given one, and the offset at which the epoch after it begins."""
        if epoch == UNKNOWN:
            return UNKNOWN, UNKNOWN
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if at == len(self.entries):
            return UNKNOWN, UNKNOWN
        if at == 0:
            return epoch, self.entries[0][1]
        return self.entries[at - 1][0], self.entries[at][1]

    def cut_end(self, end_offset: int) -> None:
        """Drops the epochs that began at or behind the log's new end."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def cut_start(self, start_offset: int) -> None:
        """Drops the epochs before the log's new start, in memory. The epoch at the new start now begins there."""
        at = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if at == 0 or (at == 1 and self.entries[0][1] == start_offset):
            return
        self.entries = [(self.entries[at - 1][0], start_offset), *self.entries[at:]]
        self._is_start_unwritten = True

    def write_out(self) -> None:
        """Writes the file if the log's start has moved. An epoch without a batch is left out."""
        if self._is_start_unwritten:
            self._write(self.entries[:-1] if self._is_unwritten else self.entries)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        self._write(entries)
        self.entries, self._is_unwritten = entries, False

    def _write(self, entries: list[tuple[int, int]]) -> None:
        write_lines(self._disk, self.path, [f"{epoch} {offset}" for epoch, offset in entries], sync=False)
        self._is_start_unwritten = False
