"""What clients saw and what the brokers were, written down as it happens, for ``checker.py`` to judge."""

from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[str, int]


class Write(NamedTuple):
    """A record of a producer: its number is one more than that of the record before."""

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
    #: True: its commit was acknowledged; False: it was aborted; None: nobody knows.
    is_committed: bool | None = None


@dataclass
class History:
    #: Acknowledged, and at which offset.
    acknowledged: list[tuple[Partition, int, Write]] = field(default_factory=list)
    #: By consumer and partition, in the order in which it came: offset and write.
    consumed: dict[tuple[str, Partition], list[tuple[int, Write]]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    #: What was wrong at the moment when it was seen.
    faults: list[str] = field(default_factory=list)
    #: What was done to the cluster, and when: for the reader of a failure.
    events: list[tuple[float, str]] = field(default_factory=list)

    def note(self, when_s: float, what: str) -> None:
        self.events.append((when_s, what))
