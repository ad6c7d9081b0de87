"""Holds the position of a consumer in each partition, the batches that were fetched ahead, and what to fetch next.

No I/O: the fetcher asks for requests and passes in the answers. A partition goes through three steps:

1. ``awaiting_committed``: it has no position. The fetcher looks up the group's committed offset and passes it to
   ``committed_found``.
2. ``awaiting_reset``: nothing is committed, or the position is out of the log's range. The fetcher looks up an offset
   by ListOffsets (``offset_reset.py``) and passes it to ``reset_found``.
3. It has a position: ``requests`` asks for the records that follow, ``answered`` buffers batches, ``take`` returns
   records.

The position is the offset of the next record to return. The next Fetch asks for the offset behind the buffered batches.
While a partition has more than ``buffer_bytes`` buffered, it is not fetched (0 means: until the buffer is empty, as in
Java). A seek drops the buffer. The answer to a request from before the seek has another offset, and is dropped too. A
paused partition keeps its buffer and returns nothing. A partition that returned records goes behind the others, so that
no partition starves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from threading import RLock
from typing import NamedTuple, TypeVar
from uuid import UUID

from headrace.client.consumer.fetch_session import FetchSession, PartitionFetch, SessionRequest
from headrace.client.consumer.fetched_batches import FetchedBatch, read_batches
from headrace.client.consumer.fetched_partition import FetchedPartition, HasOffset
from headrace.client.offset_reset import LATEST, OffsetReset, ResetKind
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.consumer_fetch import PartitionAnswer

R = TypeVar("R", bound=HasOffset)


class PartitionLeader(NamedTuple):
    """The leader of a partition, as the metadata has it."""

    node_id: int
    leader_epoch: int = -1
    topic_id: UUID | None = None


class FetchOutcome(Enum):
    """The result of a Fetch for a partition."""

    BUFFERED = auto()
    NOTHING = auto()  # no new records, or the partition must be fetched again
    STALE = auto()  # the position has changed since the request
    REFRESH = auto()  # the metadata is out of date
    RESET = auto()  # the partition now awaits a reset
    FAILED = auto()  # the caller reports the error; without an error code, the first batch is incomplete


_OUTCOME_OF: dict[ErrorCode, FetchOutcome] = {
    ErrorCode.not_leader_or_follower: FetchOutcome.REFRESH,
    ErrorCode.replica_not_available: FetchOutcome.REFRESH,
    ErrorCode.kafka_storage_error: FetchOutcome.REFRESH,
    ErrorCode.fenced_leader_epoch: FetchOutcome.REFRESH,
    ErrorCode.unknown_leader_epoch: FetchOutcome.REFRESH,
    ErrorCode.offset_not_available: FetchOutcome.REFRESH,
    ErrorCode.unknown_topic_or_partition: FetchOutcome.REFRESH,
    ErrorCode.unknown_topic_id: FetchOutcome.REFRESH,
    ErrorCode.inconsistent_topic_id: FetchOutcome.REFRESH,
    ErrorCode.unknown_server_error: FetchOutcome.NOTHING,
    ErrorCode.offset_out_of_range: FetchOutcome.RESET,
}


class BatchToRead(NamedTuple):
    """A whole batch, for callers that decode records by themselves. They skip the records before ``from_offset``."""

    partition: TopicPartition
    batch: FetchedBatch
    from_offset: int


class FetchPositions:
    """The positions and buffers of all partitions that are assigned to a consumer."""

    def __init__(
        self,
        reset: OffsetReset = LATEST,
        *,
        read_committed: bool = False,
        buffer_bytes: int = 0,
        max_bytes: int = 1 << 20,
    ) -> None:
        """
        :param reset: ``auto.offset.reset``.
        :param buffer_bytes: how much of a partition may be buffered before it is fetched no more.
        :param max_bytes: ``max.partition.fetch.bytes``.
        """
        self._reset = reset
        self._read_committed = read_committed
        self._buffer_bytes = buffer_bytes
        self._max_bytes = max_bytes
        #: In the order in which they return records.
        self._partitions: dict[TopicPartition, FetchedPartition] = {}
        #: The partitions that were not fetched because their buffers were full.
        self._full: set[TopicPartition] = set()
        #: Callers on one thread hold the lock if another thread may call :meth:`take`.
        self.lock = RLock()
        self._sessions: dict[int, FetchSession] = {}
        #: Called with the topic, the number of records and the bytes of finished batches that were taken.
        self.on_taken: Callable[[str, int, int], object] = lambda *_: None

    # ------------------------------------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions. Those that were assigned before keep position, buffer and pause."""
        self._partitions = {one: self._partitions.get(one) or FetchedPartition() for one in partitions}

    def assignment(self) -> set[TopicPartition]:
        return set(self._partitions)

    def pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool = True) -> None:
        for state in [self._partitions[one] for one in partitions]:
            state.is_paused = is_paused

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.pause(partitions, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        return {one for one, state in self._partitions.items() if state.is_paused}

    # -------------------------------------------------------------------------------------------------- positions

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        if offset < 0:
            raise ValueError(f"cannot seek {partition} to {offset}: an offset must not be negative")
        self._partitions[partition].move(offset, leader_epoch=leader_epoch)

    def seek_by(self, partition: TopicPartition, reset: OffsetReset) -> None:
        """Moves a partition to the start, the end or a time, as soon as the offset is looked up."""
        self._partitions[partition].move(None, reset)

    def position(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the next record; None while it is being looked up."""
        return self._partitions[partition].position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit if all records that were taken are consumed."""
        return {
            one: OffsetAndMetadata(state.position, leader_epoch=state.leader_epoch)
            for one, state in self._partitions.items()
            if state.position is not None
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the distance from the position to the end of the visible records; None before the first answer."""
        state = self._partitions[partition]
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        return None if end < 0 or state.position is None else max(0, end - state.position)

    def awaiting_committed(self) -> set[TopicPartition]:
        return {
            one
            for one, state in self._partitions.items()
            if state.position is None and state.reset is None and not state.is_held
        }

    def committed_found(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> bool:
        """Sets the position to the committed offset. Does nothing if a seek came first.

        Returns False if nothing is committed and ``auto.offset.reset`` is none.
        """
        if partition not in self.awaiting_committed():
            return True
        if committed is not None:
            self._partitions[partition].move(committed.offset, leader_epoch=committed.leader_epoch)
        elif self._reset.kind is ResetKind.NONE:
            return False
        else:
            self._partitions[partition].move(None, self._reset)
        return True

    def awaiting_reset(self) -> dict[TopicPartition, OffsetReset]:
        return {
            one: state.reset for one, state in self._partitions.items() if state.reset is not None and not state.is_held
        }

    def reset_found(self, partition: TopicPartition, asked: OffsetReset, offset: int, leader_epoch: int = -1) -> None:
        """Sets the position to an offset that was looked up. A negative offset means that no record is recent enough:
        then the position is the end."""
        state = self._partitions.get(partition)
        if state is not None and state.reset == asked:
            if offset >= 0:
                state.move(offset, leader_epoch=leader_epoch)
            else:
                state.move(None, LATEST)

    # --------------------------------------------------------------------------------------------------- fetching

    def requests(
        self, leader_of: Callable[[TopicPartition], PartitionLeader | None], busy: Collection[int] = ()
    ) -> tuple[dict[int, SessionRequest], set[TopicPartition]]:
        """Returns a request for each broker that is not busy with an earlier request, and the partitions without a
        leader.

        A broker that has a partition with a full buffer gets no request; the comment below says why.
        """
        by_node: dict[int, dict[TopicPartition, PartitionFetch]] = {}
        leaderless: set[TopicPartition] = set()
        busy = set(busy)
        self._full = set()
        for partition, state in self._partitions.items():
            offset = state.fetch_offset
            if offset is None or state.is_paused or state.is_held:
                continue
            if (leader := leader_of(partition)) is None:
                leaderless.add(partition)
                continue
            node_id = state.preferred_node_id if state.preferred_node_id >= 0 else leader.node_id
            if state.buffered_bytes > self._buffer_bytes:
                # The broker could hold a request without this partition for a long time, while its buffer runs empty.
                busy.add(node_id)
                self._full.add(partition)
                continue
            fetch = PartitionFetch(leader.topic_id, offset, leader.leader_epoch, max_bytes=self._max_bytes)
            by_node.setdefault(node_id, {})[partition] = fetch
        sessions = self._sessions
        asked = {
            node_id: sessions.setdefault(node_id, FetchSession()).next_request(fetches)
            for node_id, fetches in by_node.items()
            if node_id not in busy
        }
        return asked, leaderless

    def has_room_again(self) -> bool:
        """Whether a partition whose buffer was full when requests were last made has room now."""
        return any(
            state.buffered_bytes <= self._buffer_bytes
            for one in self._full
            if (state := self._partitions.get(one)) is not None
        )

    def hold(self, partition: TopicPartition) -> None:
        """Stops fetching a partition until it is released or moved, or until its buffer is empty."""
        self._partitions[partition].is_held = True

    def is_held(self, partition: TopicPartition) -> bool:
        state = self._partitions.get(partition)
        return state is not None and state.is_held

    def release(self, partition: TopicPartition) -> None:
        self._partitions[partition].is_held = False

    def session_answered(self, node_id: int, session_id: int, error: ErrorCode = ErrorCode.none) -> bool:
        """Handles the head of an answer. Returns whether the partitions of the answer count."""
        return self._sessions[node_id].answered(session_id, error)

    def lost(self, node_id: int) -> None:
        """Handles a request without an answer. Partitions with a preferred replica go back to their leaders."""
        self._sessions[node_id].lost()
        for state in self._partitions.values():
            if state.preferred_node_id == node_id:
                state.preferred_node_id = -1

    def closing_requests(self) -> dict[int, SessionRequest]:
        closing = {node_id: session.closing_request() for node_id, session in self._sessions.items()}
        return {node_id: request for node_id, request in closing.items() if request is not None}

    def answered(self, partition: TopicPartition, asked: PartitionFetch, answer: PartitionAnswer) -> FetchOutcome:
        state = self._partitions.get(partition)
        if state is None or state.fetch_offset != asked.fetch_offset:
            return FetchOutcome.STALE
        if answer.error is not ErrorCode.none:
            return self._refused(state, answer.error)
        self._update_watermarks(state, answer)
        aborted = answer.aborted if self._read_committed else None
        batches = list(read_batches(answer.records, aborted, asked.fetch_offset))
        if not batches and len(answer.records):
            # There is no complete batch. Only a broker older than KIP-74 cuts the first batch.
            return FetchOutcome.FAILED
        state.buffer(batches)
        return FetchOutcome.BUFFERED if state.batches and batches else FetchOutcome.NOTHING

    @staticmethod
    def _update_watermarks(state: FetchedPartition, answer: PartitionAnswer) -> None:
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred_node_id = answer.preferred_read_replica

    def _refused(self, state: FetchedPartition, error: ErrorCode) -> FetchOutcome:
        was_follower, state.preferred_node_id = state.preferred_node_id >= 0, -1
        outcome = _OUTCOME_OF.get(error, FetchOutcome.FAILED)
        if state.batches:
            state.is_held = True
            return outcome if outcome is FetchOutcome.REFRESH else FetchOutcome.NOTHING
        if outcome is not FetchOutcome.RESET:
            return outcome
        if was_follower:
            # A follower may have another log start or end than the leader, so the leader is asked.
            return FetchOutcome.NOTHING
        if self._reset.kind is ResetKind.NONE:
            return FetchOutcome.FAILED
        state.move(None, self._reset)
        return FetchOutcome.RESET

    # -------------------------------------------------------------------------------------------------- taking

    def buffered_bytes(self) -> int:
        return sum(state.buffered_bytes for state in self._partitions.values())

    def take(
        self, max_records: int, decode: Callable[[TopicPartition, FetchedBatch], Sequence[R]]
    ) -> dict[TopicPartition, list[R]]:
        """Returns up to ``max_records`` records, and moves the positions behind them.

        If ``decode`` raises an error, this call raises it only if it has no records to return; otherwise the next call
        does. The position stays before that batch, so that the caller can seek past it.
        """
        taken: dict[TopicPartition, list[R]] = {}
        left = max_records
        for partition, state in self._in_turn():
            left_before, bytes_before = left, state.buffered_bytes
            while state.batches and left > 0:
                try:
                    records = self._take_from_batch(partition, state, left, decode)
                except Exception:
                    if not taken:
                        raise
                    return taken
                if records:
                    taken.setdefault(partition, []).extend(records)
                    left -= len(records)
            self.on_taken(partition.topic, left_before - left, bytes_before - state.buffered_bytes)
            if left == 0:
                break
        self._move_behind_others(taken)
        return taken

    def take_batches(self, max_bytes: int) -> list[BatchToRead]:
        """Returns whole visible batches, at least one if there is any, for callers that decode by themselves."""
        taken: list[BatchToRead] = []
        left_bytes = max_bytes
        for partition, state in self._in_turn():
            record_count, bytes_before = 0, state.buffered_bytes
            while state.batches and (not taken or state.batches[0].header.size_bytes <= left_bytes):
                assert state.position is not None
                taken.append(BatchToRead(partition, state.batches[0], state.position))
                left_bytes -= state.batches[0].header.size_bytes
                record_count += state.batches[0].header.record_count
                state.finish_batch()
                state.skip_hidden()
            if record_count:
                self.on_taken(partition.topic, record_count, bytes_before - state.buffered_bytes)
        self._move_behind_others({one.partition for one in taken})
        return taken

    @staticmethod
    def _take_from_batch(
        partition: TopicPartition,
        state: FetchedPartition,
        most: int,
        decode: Callable[[TopicPartition, FetchedBatch], Sequence[R]],
    ) -> Sequence[R]:
        position = state.position
        assert position is not None
        if state.decoded is None:
            records = decode(partition, state.batches[0])
            if state.batches[0].header.base_offset < position:
                records = [record for record in records if record.offset >= position]
            state.decoded = records
        end = state.decoded_at + most
        given: Sequence[R] = state.decoded[state.decoded_at : end]  # type: ignore[assignment]
        if end >= len(state.decoded):
            state.finish_batch()
            state.skip_hidden()
        else:
            state.decoded_at = end
            state.position, state.leader_epoch = given[-1].offset + 1, state.batches[0].header.leader_epoch
        return given

    def _in_turn(self) -> list[tuple[TopicPartition, FetchedPartition]]:
        return [(one, state) for one, state in self._partitions.items() if state.batches and not state.is_paused]

    def _move_behind_others(self, served: Collection[TopicPartition] | Mapping[TopicPartition, object]) -> None:
        for partition in served:
            self._partitions[partition] = self._partitions.pop(partition)
