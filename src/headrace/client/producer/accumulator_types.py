"""What the accumulator is told and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.protocol.records import Codec

LeaderOf = Callable[[str, int], int | None]


@dataclass(slots=True)
class Ready:
    nodes: set[int] = field(default_factory=set)
    #: How long until something may become ready that is not now; None: nothing waits for time alone.
    next_check_delay_ms: int | None = None
    unknown_leader_topics: set[str] = field(default_factory=set)

    def check_within(self, delay_ms: int) -> None:
        if self.next_check_delay_ms is None or delay_ms < self.next_check_delay_ms:
            self.next_check_delay_ms = max(0, delay_ms)


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    batch_size_bytes: int = 16384
    #: How large a batch may grow while it has to wait for others to be answered; 0: not at all.
    most_batch_bytes: int = 0
    max_in_flight: int = 5
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    codec: Codec = Codec.none
    compression_level: int | None = None
    is_idempotent: bool = False
    is_transactional: bool = False
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
