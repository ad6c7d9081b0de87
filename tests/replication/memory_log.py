"""A log of a replica in memory, for the replication harness."""

from bisect import bisect_right
from typing import Protocol

Record = tuple[int, str]  # its leader's epoch, and what it says


class ReplicaLog(Protocol):
    high_watermark: int
    log_start_offset: int

    @property
    def records(self) -> list[Record]: ...

    @property
    def epochs(self) -> list[tuple[int, int]]: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int: ...

    def begin_epoch(self, epoch: int, /) -> None: ...

    def append(self, records: list[Record], /) -> None: ...

    def truncate_to(self, offset: int, /) -> None: ...

    def end_offset_for_epoch(self, epoch: int, /) -> tuple[int, int]: ...


class MemoryLog:
    """The part of ``PartitionLog`` that replication uses, in a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epochs: list[tuple[int, int]] = []
        self.high_watermark = 0
        self.log_start_offset = 0

    @property
    def next_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def begin_epoch(self, epoch: int, offset: int | None = None) -> None:
        if epoch > self.latest_epoch:
            offset = self.next_offset if offset is None else offset
            self.epochs = [*(entry for entry in self.epochs if entry[1] < offset), (epoch, offset)]

    def append(self, records: list[Record]) -> None:
        for epoch, value in records:
            self.begin_epoch(epoch)
            self.records.append((epoch, value))

    def truncate_to(self, offset: int) -> None:
        del self.records[offset:]
        self.high_watermark = min(self.high_watermark, len(self.records))
        self.epochs = [entry for entry in self.epochs if entry[1] < len(self.records)]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch == self.latest_epoch:
            return epoch, self.next_offset
        at = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if at == len(self.epochs):
            return -1, -1
        return (epoch, self.epochs[0][1]) if at == 0 else (self.epochs[at - 1][0], self.epochs[at][1])
