"""Holds one partition of a consumer: its position, and the batches that were fetched ahead (``fetch_positions.py``)."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from headrace.client.consumer.fetched_batches import FetchedBatch
from headrace.client.offset_reset import OffsetReset


class HasOffset(Protocol):
    @property
    def offset(self) -> int: ...


class FetchedPartition:
    """The position and the buffer of one partition."""

    __slots__ = (
        "batches", "buffered_bytes", "decoded", "decoded_at", "high_watermark", "is_held", "is_paused",
        "last_stable_offset", "leader_epoch", "log_start_offset", "position", "preferred_node_id", "reset",
    )  # fmt: skip

    def __init__(self) -> None:
        self.position: int | None = None
        #: The leader epoch of the last record that was taken.
        self.leader_epoch = -1
        self.reset: OffsetReset | None = None
        self.is_paused = False
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.preferred_node_id = -1
        self.drop_buffer()

    def drop_buffer(self) -> None:
        self.batches: deque[FetchedBatch] = deque()
        self.buffered_bytes = 0
        #: The decoded records of the first batch, and how many of them are taken. None until they are needed.
        self.decoded: Sequence[HasOffset] | None = None
        self.decoded_at = 0
        #: Whether fetching met an error. The partition is fetched again when its buffer is empty, and the error is
        #: reported only if it occurs again then.
        self.is_held = False

    def move(self, offset: int | None, reset: OffsetReset | None = None, leader_epoch: int = -1) -> None:
        self.position, self.reset, self.leader_epoch = offset, reset, leader_epoch
        self.drop_buffer()

    @property
    def fetch_offset(self) -> int | None:
        return self.batches[-1].header.next_offset if self.batches else self.position

    def buffer(self, batches: Iterable[FetchedBatch]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self.buffered_bytes += batch.header.size_bytes
        self.skip_hidden()

    def skip_hidden(self) -> None:
        while self.batches and not self.batches[0].is_visible:
            self.finish_batch()

    def finish_batch(self) -> None:
        header = self.batches.popleft().header
        self.buffered_bytes -= header.size_bytes
        self.position, self.leader_epoch = header.next_offset, header.leader_epoch
        self.decoded, self.decoded_at = None, 0
        self.is_held = self.is_held and bool(self.batches)
