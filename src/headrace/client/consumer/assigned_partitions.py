"""The partitions that a consumer reads: their positions, and which of them are paused."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.consumer.fetch_positions import FetchPositions
from headrace.client.consumer.fetcher import Fetcher
from headrace.client.consumer.poll_buffer import PollBuffer
from headrace.client.errors import KafkaTimeout, NotAssigned
from headrace.client.notifier import Notifier
from headrace.client.offset_reset import OffsetReset
from headrace.client.retry import Deadline
from headrace.client.types import OffsetAndMetadata, TopicPartition

#: A wait for records or positions checks at least this often whether something is due.
CHECK_INTERVAL_MS = 1_000


class AssignedPartitions:
    """Moves and pauses the partitions that are assigned to a consumer."""

    def __init__(
        self, positions: FetchPositions, poll_buffer: PollBuffer, fetcher: Fetcher, notifier: Notifier
    ) -> None:
        self._positions = positions
        self._poll_buffer = poll_buffer
        self._fetcher = fetcher
        self._notifier = notifier

    def all(self) -> set[TopicPartition]:
        return self._positions.assignment()

    def check(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions as a list.

        :raises NotAssigned: if one of them is not assigned to this consumer.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        assigned = self._positions.assignment()
        for partition in wanted:
            if partition not in assigned:
                known = ", ".join(map(str, sorted(assigned))) or "no partition"
                raise NotAssigned(f"{partition} is not assigned to this consumer; it reads {known}")
        return wanted

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = self.check(partitions)
        self._poll_buffer.give_back(wanted)
        self._positions.pause(wanted)
        self._fetcher.positions_changed()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions.resume(self.check(partitions))
        self._fetcher.positions_changed()

    def paused(self) -> set[TopicPartition]:
        return self._positions.paused()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        (partition,) = self.check([partition])
        target = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        self._poll_buffer.drop({partition})
        self._positions.seek(partition, target.offset, target.leader_epoch)
        self._fetcher.positions_changed()

    def seek_by(self, reset: OffsetReset, partitions: Iterable[TopicPartition]) -> None:
        """Moves these partitions, or all, to the start or the end."""
        wanted = self.check(partitions) or list(self._positions.assignment())
        self._poll_buffer.drop(wanted)
        for partition in wanted:
            self._positions.seek_by(partition, reset)
        self._fetcher.positions_changed()

    async def position(self, partition: TopicPartition, deadline: Deadline) -> int:
        """Returns the offset of the next record. Waits until it is looked up.

        :raises KafkaTimeout: if the deadline passes first.
        """
        (partition,) = self.check([partition])
        self._fetcher.wake()
        while (position := self._poll_buffer.position(partition)) is None:
            self._fetcher.raise_error()
            if deadline.has_passed():
                raise KafkaTimeout(f"the position of {partition} was not found within {deadline.timeout_ms:.0f} ms")
            await self._notifier.wait(min(CHECK_INTERVAL_MS, deadline.left_ms()))
        return position

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the lag as of the last fetch; None before the first fetch."""
        (partition,) = self.check([partition])
        return self._poll_buffer.lag(partition)
