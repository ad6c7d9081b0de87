"""A partition with replicas on several brokers: its log here, and the role of this broker.

The role is a value without I/O: a :class:`~headrace.replication.leader.PartitionLeader` or a
:class:`~headrace.replication.follower.PartitionFollower`. There is no role while the partition has no leader, or
    after the controller stopped the replica. This class connects the role with the log: it carries out the role's
    decisions on the log, and tells the role what has happened to the log. The log's high watermark is always the
    role's, so consumers read only the log.

The class reports changes to :class:`PartitionEvents`, at once and in the same call. For example, an append wakes the
followers that wait for records, and a fetch that moves the high watermark wakes producers and consumers.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar, Protocol
from uuid import UUID

from headrace.coordination.znodes import PartitionState
from headrace.log.partition_log import Appended, Origin, PartitionLog
from headrace.protocol.errors import NotLeaderOrFollower, OffsetNotAvailable
from headrace.protocol.records import HEADER_BYTES, LENGTH_PREFIX_BYTES, Buffer, read_header, size_of_batch
from headrace.replication.epoch_ends import NO_EPOCH_END, UNKNOWN, EpochEnd
from headrace.replication.follower import (
    AdvanceOffsets,
    FetchResult,
    LogAction,
    PartitionFollower,
    TruncateFully,
    TruncateTo,
    Truncation,
)
from headrace.replication.leader import FollowerFetch, IsrChange, LeaderSettings, PartitionLeader
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

#: The leader's id if there is no leader.
NO_LEADER = -1


class PartitionEvents(Protocol):
    """Called when a partition has changed."""

    def high_watermark_moved(self, partition: "ReplicatedPartition") -> None: ...

    def isr_change_requested(self, partition: "ReplicatedPartition", change: IsrChange) -> None: ...

    def isr_changed(self, partition: "ReplicatedPartition", before: Collection[int]) -> None:
        """A requested change of the ISR was written."""
        ...

    def isr_change_rejected(self, partition: "ReplicatedPartition") -> None: ...

    def role_changed(self, partition: "ReplicatedPartition") -> None:
        """The broker leads, follows or stops now. Requests that wait because of the earlier role are checked again."""
        ...


class FollowerReader(Protocol):
    """One partition in a follower's fetch session."""

    def log_grew(self, end_offset: int) -> None:
        """Records were appended after that offset."""
        ...

    def leadership_changed(self) -> None:
        """This broker does not lead any more, or leads in another epoch."""
        ...

    def offsets_changed(self, *, at_once: bool) -> None:
        """The high watermark or the log start has moved. The next answer has the new offsets.

        :param at_once: answer a fetch that waits now.
        """
        ...


class ReplicatedPartition(Partition):
    """A partition with a role."""

    __slots__ = (
        "_broker_id", "_clock", "_events", "adding", "follower", "follower_readers", "leader", "removing", "replicas",
        "settings", "topic_id",
    )  # fmt: skip

    is_replicated = True
    #: Tests set the other value to demonstrate its faults, see ``follower.py``.
    truncation: ClassVar[Truncation] = Truncation.BY_EPOCH

    def __init__(
        self,
        log: PartitionLog,
        broker_id: int,
        clock: Clock,
        events: PartitionEvents,
        *,
        topic_id: UUID | None = None,
        settings: LeaderSettings = LeaderSettings(),  # noqa: B008  a tuple
    ) -> None:
        """The partition has no role yet. The log has the high watermark that was on disk."""
        self.log = log
        self.leader_epoch = UNKNOWN
        self.is_leader = False
        self.topic_id = topic_id
        self.replicas: tuple[int, ...] = ()
        #: The replicas that a reassignment adds, and those that it removes.
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.settings = settings
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        #: The fetch sessions of followers that have this partition.
        self.follower_readers: list[FollowerReader] = []
        self._broker_id = broker_id
        self._clock = clock
        self._events = events

    def __repr__(self) -> str:
        role = "leader" if self.leader else f"follower of {self.leader_id}"
        return f"<{self.log.topic}-{self.log.partition}, {role} in epoch {self.leader_epoch}>"

    @property
    def key(self) -> tuple[str, int]:
        return self.log.topic, self.log.partition

    @property
    def leader_id(self) -> int:
        if self.leader is not None:
            return self._broker_id
        return NO_LEADER if self.follower is None else self.follower.leader_id

    # For metrics; may be called on any thread

    @property
    def in_sync_count(self) -> int:
        return 0 if (leader := self.leader) is None else len(leader.isr)

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a reassignment adds do not count as missing while they copy (KIP-455)."""
        leader = self.leader
        return leader is not None and len(leader.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_under_min_isr(self) -> bool:
        return (leader := self.leader) is not None and leader.is_under_min_isr

    @property
    def is_reassigning(self) -> bool:
        return self.leader is not None and bool(self.adding or self.removing)

    # Roles

    def become_leader(
        self, state: PartitionState, version: int, replicas: Iterable[int], ineligible: Collection[int]
    ) -> None:
        """Leads the partition in a new epoch, as a new leader or as the leader of the epoch before.

        :raises StorageError: if the log cannot be used. Then nothing has changed.
        """
        log, now_ms = self.log, self._clock.monotonic_ms()
        log.announce_epoch(state.leader_epoch)
        self.replicas = tuple(replicas)
        self.follower = None
        if self.leader is None:
            self.leader = PartitionLeader(
                self._broker_id,
                state,
                version,
                self.replicas,
                next_offset=log.next_offset,
                high_watermark=log.high_watermark,
                log_start_offset=log.log_start_offset,
                now_ms=now_ms,
                settings=self.settings,
            )
        else:
            self.leader.begin_next_epoch(state, version, self.replicas, now_ms)
        self.leader.ineligible = ineligible
        log.high_watermark = self.leader.high_watermark
        self._role_changed(state.leader_epoch, is_leader=True)

    def become_follower(self, leader_id: int, leader_epoch: int, replicas: Iterable[int]) -> None:
        """Follows another leader, or no leader (``NO_LEADER``)."""
        self.replicas = tuple(replicas)
        self.leader = None
        self.follower = None
        if leader_id != NO_LEADER:
            self.follower = PartitionFollower(leader_id, leader_epoch, self.log, self.truncation)
        self._role_changed(leader_epoch, is_leader=False)

    def stop(self) -> None:
        """Gives up the role, because the controller stopped the replica."""
        self.leader = self.follower = None
        self._role_changed(self.leader_epoch, is_leader=False)

    def _role_changed(self, leader_epoch: int, *, is_leader: bool) -> None:
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        for reader in list(self.follower_readers):
            reader.leadership_changed()
        self._events.role_changed(self)

    def configure(self, settings: LeaderSettings) -> None:
        self.settings = settings
        if self.leader is not None:
            self.leader.settings = settings
            # With a lower ``min.insync.replicas`` more records may be committed.
            self.update_high_watermark()

    def replace_log(self, log: PartitionLog) -> None:
        super().replace_log(log)
        if self.follower is not None:
            self.follower.log = log

    # As a leader

    def require_leader(self) -> PartitionLeader:
        """The leader's role.

        :raises NotLeaderOrFollower: if this broker does not lead the partition.
        """
        if self.leader is None:
            raise NotLeaderOrFollower(f"this broker does not lead {self.log.topic}-{self.log.partition}")
        return self.leader

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT, *, checked: Buffer | None = None) -> Appended:
        leader = self.require_leader()
        log = self.log
        end_offset = log.next_offset
        appended = log.append(records, leader_epoch=self.leader_epoch, origin=origin, checked=checked)
        if not appended.is_duplicate:
            for reader in self.follower_readers:
                reader.log_grew(end_offset)
            if leader.appended(log.next_offset, self._clock.monotonic_ms()):
                self._publish_high_watermark(leader)
        return appended

    def check_enough_replicas(self) -> None:
        self.require_leader().check_enough_replicas()

    def is_acknowledged(self, end_offset: int) -> bool:
        return self.require_leader().is_acknowledged(end_offset)

    def check_high_watermark_known(self) -> None:
        if not self.require_leader().knows_high_watermark:
            raise OffsetNotAvailable(
                f"the new leader of {self.log.topic}-{self.log.partition} has not determined the high watermark yet; "
                "try again"
            )

    @property
    def low_watermark(self) -> int:
        """
        :raises NotLeaderOrFollower: if this broker does not lead the partition.
        """
        leader = self.require_leader()
        leader.log_start_offset = self.log.log_start_offset
        return leader.low_watermark

    def advance_log_start(self, offset: int) -> None:
        super().advance_log_start(offset)
        for reader in self.follower_readers:
            reader.offsets_changed(at_once=True)

    def fetched(self, replica_id: int, fetch: FollowerFetch) -> EpochEnd | None:
        """Notes a follower's fetch. Returns where its log diverges from this leader's, if it does.

        :raises KafkaError: if the fetch is rejected.
        """
        leader = self.require_leader()
        leader.log_start_offset = self.log.log_start_offset
        last_epoch = fetch.last_epoch
        epoch_end = NO_EPOCH_END if last_epoch == UNKNOWN else EpochEnd(*self.end_offset_for_epoch(last_epoch))
        outcome = leader.fetched(replica_id, fetch, epoch_end, self._clock.monotonic_ms())
        if outcome.has_high_watermark_moved:
            self._publish_high_watermark(leader)
        if outcome.isr_change is not None:
            self._events.isr_change_requested(self, outcome.isr_change)
        return outcome.diverging

    def shrink_isr(self) -> None:
        """Removes followers from the ISR that were not caught up for too long. Called every half of the lag time."""
        leader, now_ms = self.leader, self._clock.monotonic_ms()
        if leader is None:
            return
        change = leader.shrink_isr(now_ms)
        if change is not None:
            self._events.isr_change_requested(self, change)
        self.update_high_watermark()

    def update_high_watermark(self) -> None:
        """Advances the high watermark if it has not to wait any more.

        Time has passed, or a broker has died, so a follower that was about to join the ISR does not join. Or fewer
        replicas have to be in sync.
        """
        leader = self.leader
        if leader is not None and leader.appended(leader.next_offset, self._clock.monotonic_ms()):
            self._publish_high_watermark(leader)

    def isr_written(self, change: IsrChange, version: int) -> None:
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        has_moved = leader.isr_written(change, version, self._clock.monotonic_ms())
        if leader.isr != before:
            self._events.isr_changed(self, before)
        if has_moved:
            self._publish_high_watermark(leader)
        else:
            # A producer that waits may get the error that too few replicas are in sync.
            self._events.high_watermark_moved(self)

    def isr_rejected(self, change: IsrChange) -> None:
        if self.leader is not None:
            self.leader.isr_rejected(change)
            self._events.isr_change_rejected(self)

    def _publish_high_watermark(self, leader: PartitionLeader) -> None:
        self.log.high_watermark = leader.high_watermark
        self._events.high_watermark_moved(self)

    # As a follower

    def apply(self, action: LogAction) -> None:
        """Carries out an action of the follower on the log, except appending records.

        :raises StorageError: if the log cannot be changed.
        """
        if isinstance(action, TruncateTo):
            self.log.truncate_to(action.offset)
        elif isinstance(action, TruncateFully):
            self.log.truncate_fully(action.offset)
        elif action is not None:
            self._advance_offsets(action)

    def apply_fetch(self, request: FollowerFetch, result: FetchResult, records: memoryview) -> bool:
        """Applies the leader's answer to a fetch. Returns whether the log has to be flushed by ``flush.messages``.

        :raises KafkaError: if the records cannot be appended. Then none is appended.
        """
        follower = self.follower
        if follower is None:
            return False
        action = follower.on_fetched(request, result)
        if not isinstance(action, AdvanceOffsets):
            self.apply(action)
            return False
        must_flush = bool(records) and self._append_replicated(records).must_flush
        self._advance_offsets(action)
        return must_flush

    def _append_replicated(self, records: memoryview) -> Appended:
        log = self.log
        start_offset = log.log_start_offset
        if log.next_offset == start_offset and (base_offset := read_header(records).base_offset) < start_offset:
            # An empty log begins within a batch, as the leader's does. The leader has the whole batch, so this log
            # gets it.
            log.truncate_fully(base_offset)
            appended = log.append(records, leader_epoch=self.leader_epoch, origin=Origin.REPLICATION)
            log.high_watermark = min(max(log.high_watermark, start_offset), log.next_offset)
            log.advance_log_start(log.high_watermark)
            return appended
        return log.append(records, leader_epoch=self.leader_epoch, origin=Origin.REPLICATION)

    def _advance_offsets(self, action: AdvanceOffsets) -> None:
        log = self.log
        if action.high_watermark > log.high_watermark:
            log.high_watermark = action.high_watermark
            self._events.high_watermark_moved(self)
        if action.log_start_offset > log.log_start_offset:
            log.advance_log_start(action.log_start_offset)


def end_offset_of(records: memoryview) -> int | None:
    """The offset after the last complete batch. None if there is no complete batch."""
    position, end, end_offset = 0, len(records), None
    while end - position > LENGTH_PREFIX_BYTES:
        size_bytes = size_of_batch(records, position)
        if size_bytes < HEADER_BYTES or position + size_bytes > end:
            break
        base_offset = int.from_bytes(records[position : position + 8], "big")
        end_offset = base_offset + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size_bytes
    return end_offset
