"""Where a consumer stands in each of its partitions, what to fetch next and from whom, and what was fetched ahead.

A partition has no position at first. Then, each step told from outside, as nothing here does I/O:

1. ``awaiting_committed``: what the group has committed is to be looked up, and told with ``committed_found``;
2. ``awaiting_reset``: nothing was, or it is out of the log's range; ListOffsets is to be asked (``offset_reset.py``);
3. it has a position: ``requests`` asks for what follows, ``answered`` buffers batches, ``take`` hands records out.

The position is that of the next record to hand out. What is asked for next lies behind what is buffered; while a
partition has more than ``buffer_bytes`` buffered nothing is asked for it (0: only once all is handed out, as in Java).
A seek drops the buffer; an answer to what was asked before the seek is seen by its offset, and dropped too. Pausing
keeps the buffer and hands nothing out. A partition that gave records goes behind the others, so none starves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from threading import RLock
from typing import NamedTuple, TypeVar
from uuid import UUID

from headrace.client.consumer.fetch_session import FetchSession, SessionRequest, Wanted
from headrace.client.consumer.fetched_batches import FetchedBatch, read_batches
from headrace.client.consumer.fetched_partition import FetchedPartition, HasOffset
from headrace.client.offset_reset import LATEST, OffsetReset, ResetKind
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.consumer_fetch import PartitionAnswer

R = TypeVar("R", bound=HasOffset)


class Leader(NamedTuple):
    node_id: int
    leader_epoch: int = -1
    topic_id: UUID | None = None


class Effect(Enum):
    """What an answer came to."""

    BUFFERED = auto()
    NOTHING = auto()  # no new records, or to be asked again
    STALE = auto()  # nobody waits for it any more
    REFRESH = auto()  # metadata are out of date
    RESET = auto()  # the partition now awaits a reset
    FAILED = auto()  # the error is the caller's; with none, the first batch came cut


_EFFECT_OF: dict[ErrorCode, Effect] = {
    ErrorCode.not_leader_or_follower: Effect.REFRESH,
    ErrorCode.replica_not_available: Effect.REFRESH,
    ErrorCode.kafka_storage_error: Effect.REFRESH,
    ErrorCode.fenced_leader_epoch: Effect.REFRESH,
    ErrorCode.unknown_leader_epoch: Effect.REFRESH,
    ErrorCode.offset_not_available: Effect.REFRESH,
    ErrorCode.unknown_topic_or_partition: Effect.REFRESH,
    ErrorCode.unknown_topic_id: Effect.REFRESH,
    ErrorCode.inconsistent_topic_id: Effect.REFRESH,
    ErrorCode.unknown_server_error: Effect.NOTHING,
    ErrorCode.offset_out_of_range: Effect.RESET,
}


class BatchToRead(NamedTuple):
    """A whole batch for those who decode by themselves; records before the offset are not asked for."""

    partition: TopicPartition
    batch: FetchedBatch
    from_offset: int


class FetchPositions:
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
        :param max_bytes: ``max.partition.fetch.bytes``.
        """
        self._reset = reset
        self._read_committed = read_committed
        self._buffer_bytes = buffer_bytes
        self._max_bytes = max_bytes
        #: In the order in which they hand out.
        self._partitions: dict[TopicPartition, FetchedPartition] = {}
        #: Those that were not asked for because their buffers were full.
        self._full: set[TopicPartition] = set()
        #: Held by whoever uses this on one thread while another thread may :meth:`take`.
        self.lock = RLock()
        self._sessions: dict[int, FetchSession] = {}

    # ------------------------------------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """These and no others; those that were there before keep position, buffer and pause."""
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
            raise ValueError(f"cannot seek to {offset}: offsets begin at 0")
        self._partitions[partition].move(offset, leader_epoch=leader_epoch)

    def seek_by(self, partition: TopicPartition, reset: OffsetReset) -> None:
        """To the start, the end or a time, as soon as that was looked up."""
        self._partitions[partition].move(None, reset)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to hand out; none while it is being looked up."""
        return self._partitions[partition].position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything handed out says."""
        return {
            one: OffsetAndMetadata(state.position, leader_epoch=state.leader_epoch)
            for one, state in self._partitions.items()
            if state.position is not None
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and what a reader of this isolation may see; none before the first answer."""
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
        """False if nothing is committed and ``auto.offset.reset`` is none. Ignored if a seek came first."""
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
        """An offset below zero says that no record is so young: then the end is where to read on."""
        state = self._partitions.get(partition)
        if state is not None and state.reset == asked:
            if offset >= 0:
                state.move(offset, leader_epoch=leader_epoch)
            else:
                state.move(None, LATEST)

    # --------------------------------------------------------------------------------------------------- fetching

    def requests(
        self, leader_of: Callable[[TopicPartition], Leader | None], busy: Collection[int] = ()
    ) -> tuple[dict[int, SessionRequest], set[TopicPartition]]:
        """What to ask each node that is not busy with an earlier request; and the partitions without a leader.

        A node of a partition with a full buffer is asked for nothing: see below.
        """
        by_node: dict[int, dict[TopicPartition, Wanted]] = {}
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
                # A request without it could be held by the broker for long after its buffer is empty.
                busy.add(node_id)
                self._full.add(partition)
                continue
            wanted = Wanted(leader.topic_id, offset, leader.leader_epoch, max_bytes=self._max_bytes)
            by_node.setdefault(node_id, {})[partition] = wanted
        sessions = self._sessions
        asked = {
            node_id: sessions.setdefault(node_id, FetchSession()).next_request(wanted)
            for node_id, wanted in by_node.items()
            if node_id not in busy
        }
        return asked, leaderless

    def has_room_again(self) -> bool:
        """Whether a partition that had too much buffered when requests were last made has not any more."""
        return any(
            state.buffered_bytes <= self._buffer_bytes
            for one in self._full
            if (state := self._partitions.get(one)) is not None
        )

    def hold(self, partition: TopicPartition) -> None:
        """Asks for no more of it until it is released, moved, or its buffer is handed out."""
        self._partitions[partition].is_held = True

    def is_held(self, partition: TopicPartition) -> bool:
        state = self._partitions.get(partition)
        return state is not None and state.is_held

    def release(self, partition: TopicPartition) -> None:
        self._partitions[partition].is_held = False

    def session_answered(self, node_id: int, session_id: int, error: ErrorCode = ErrorCode.none) -> bool:
        """Whether the answer's partitions count; to be told before them."""
        return self._sessions[node_id].answered(session_id, error)

    def lost(self, node_id: int) -> None:
        """A request got no answer. The preferred replica may be what is gone: back to the leader."""
        self._sessions[node_id].lost()
        for state in self._partitions.values():
            if state.preferred_node_id == node_id:
                state.preferred_node_id = -1

    def closing_requests(self) -> dict[int, SessionRequest]:
        closing = {node_id: session.closing_request() for node_id, session in self._sessions.items()}
        return {node_id: request for node_id, request in closing.items() if request is not None}

    def answered(self, partition: TopicPartition, asked: Wanted, answer: PartitionAnswer) -> Effect:
        state = self._partitions.get(partition)
        if state is None or state.fetch_offset != asked.fetch_offset:
            return Effect.STALE
        if answer.error is not ErrorCode.none:
            return self._refused(state, answer.error)
        self._take_note(state, answer)
        aborted = answer.aborted if self._read_committed else None
        batches = list(read_batches(answer.records, aborted, asked.fetch_offset))
        if not batches and len(answer.records):
            # Not one whole batch: only a broker older than KIP-74 cuts the first.
            return Effect.FAILED
        state.buffer(batches)
        return Effect.BUFFERED if state.batches and batches else Effect.NOTHING

    @staticmethod
    def _take_note(state: FetchedPartition, answer: PartitionAnswer) -> None:
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred_node_id = answer.preferred_read_replica

    def _refused(self, state: FetchedPartition, error: ErrorCode) -> Effect:
        was_follower, state.preferred_node_id = state.preferred_node_id >= 0, -1
        effect = _EFFECT_OF.get(error, Effect.FAILED)
        if state.batches:
            state.is_held = True
            return effect if effect is Effect.REFRESH else Effect.NOTHING
        if effect is not Effect.RESET:
            return effect
        if was_follower:
            # A follower may be behind or ahead in what it has deleted: the leader knows.
            return Effect.NOTHING
        if self._reset.kind is ResetKind.NONE:
            return Effect.FAILED
        state.move(None, self._reset)
        return Effect.RESET

    # ------------------------------------------------------------------------------------------------ handing out

    def buffered_bytes(self) -> int:
        return sum(state.buffered_bytes for state in self._partitions.values())

    def take(
        self, max_records: int, decode: Callable[[TopicPartition, FetchedBatch], Sequence[R]]
    ) -> dict[TopicPartition, list[R]]:
        """Up to so many records (``max.poll.records``), and the positions behind them.

        What ``decode`` raises is raised if there was nothing before it to hand out, else by the next call; the
        position stays before that batch, so that the caller may seek past it.
        """
        taken: dict[TopicPartition, list[R]] = {}
        left = max_records
        for partition, state in self._in_turn():
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
            if left == 0:
                break
        self._give_others_their_turn(taken)
        return taken

    def take_batches(self, max_bytes: int) -> list[BatchToRead]:
        """Whole visible batches, one at least if there is any, for who decodes them without an object a record."""
        taken: list[BatchToRead] = []
        left_bytes = max_bytes
        for partition, state in self._in_turn():
            while state.batches and (not taken or state.batches[0].header.size_bytes <= left_bytes):
                assert state.position is not None
                taken.append(BatchToRead(partition, state.batches[0], state.position))
                left_bytes -= state.batches[0].header.size_bytes
                state.finish_batch()
                state.skip_hidden()
        self._give_others_their_turn({one.partition for one in taken})
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

    def _give_others_their_turn(self, served: Collection[TopicPartition] | Mapping[TopicPartition, object]) -> None:
        for partition in served:
            self._partitions[partition] = self._partitions.pop(partition)
