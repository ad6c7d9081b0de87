"""Records what clients wrote and read and what was done to the cluster; ``checker.py`` compares it with the logs."""

from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]


class Write(NamedTuple):
    """The value of a record: its producer, and a number that grows by one with each record of the producer."""

    producer: str
    number: int

    def to_bytes(self) -> bytes:
        return f"{self.producer}:{self.number}".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Write":
        producer, _, number = data.decode().rpartition(":")
        return cls(producer, int(number))


@dataclass
class Transaction:
    writes: list[tuple[Partition, Write]] = field(default_factory=list)
    #: True: the commit was acknowledged. False: the transaction was aborted. None: the outcome is not known.
    is_committed: bool | None = None


@dataclass
class History:
    #: Acknowledged writes, with the offset that the broker answered.
    acknowledged: list[tuple[Partition, int, Write]] = field(default_factory=list)
    #: By consumer and partition: the offsets and writes, in the order in which the consumer received them.
    consumed: dict[tuple[str, Partition], list[tuple[int, Write]]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    #: Violations that the monitor has seen.
    faults: list[str] = field(default_factory=list)
    #: What was done to the cluster, with the simulated time in seconds; printed when a seed fails.
    events: list[tuple[float, str]] = field(default_factory=list)

    def note(self, when_s: float, what: str) -> None:
        self.events.append((when_s, what))
