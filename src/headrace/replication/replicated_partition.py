"""A partition that several brokers have: its log here, and the role that this broker plays for it.

The role is a value without I/O, a :class:`~headrace.replication.leader.PartitionLeader` or a
:class:`~headrace.replication.follower.PartitionFollower`; or none, while nobody leads or we were told to stop. Here the
role meets the log: what a role decides is done to the log, and what happens to the log is told to the role. The log's
high watermark is always the role's, so that readers look at the log alone.

Whoever is interested in a partition is told by :class:`PartitionEvents`, at once and on the same stack: an append wakes
the followers that wait for it, a fetch that moves the high watermark wakes producers and consumers.
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
    Deed,
    FetchAnswer,
    PartitionFollower,
    Proceed,
    TruncateFully,
    TruncateTo,
    Truncation,
)
from headrace.replication.leader import FollowerFetch, IsrChange, LeaderSettings, PartitionLeader
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

#: As the leader's id: there is none.
NO_LEADER = -1


class PartitionEvents(Protocol):
    def high_watermark_moved(self, partition: "ReplicatedPartition") -> None: ...

    def isr_change_wanted(self, partition: "ReplicatedPartition", change: IsrChange) -> None: ...

    def isr_changed(self, partition: "ReplicatedPartition", before: Collection[int]) -> None:
        """It was wanted, and is written."""
        ...

    def isr_change_refused(self, partition: "ReplicatedPartition") -> None: ...

    def role_changed(self, partition: "ReplicatedPartition") -> None:
        """Whoever waits for something of the role before is to look again."""
        ...


class FollowerReader(Protocol):
    """A follower's fetch session, as far as one partition goes."""

    def grows(self, end_offset: int) -> None:
        """There is more than up to that offset."""
        ...

    def changes(self) -> None:
        """We do not lead any more, or in another epoch."""
        ...

    def news(self, *, at_once: bool) -> None:
        """High watermark or log start have moved: the next answer says so."""
        ...


class ReplicatedPartition(Partition):
    __slots__ = (
        "_broker_id", "_clock", "_events", "adding", "follower", "leader", "readers", "removing", "replicas",
        "settings", "topic_id",
    )  # fmt: skip

    is_replicated = True
    #: For showing what the other way does, see ``follower.py``.
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
        """Has no role yet. The log's high watermark is what was on disk."""
        self.log = log
        self.leader_epoch = UNKNOWN
        self.is_leader = False
        self.topic_id = topic_id
        self.replicas: tuple[int, ...] = ()
        #: Of those, the ones that are new, and the ones that go, while the partition is being reassigned.
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.settings = settings
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        #: The fetch sessions of followers that have this partition.
        self.readers: list[FollowerReader] = []
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

    # For metrics; may be asked on any thread

    @property
    def in_sync_count(self) -> int:
        return 0 if (leader := self.leader) is None else len(leader.isr)

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a reassignment adds are not missing while they copy (KIP-455)."""
        leader = self.leader
        return leader is not None and len(leader.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_under_min_isr(self) -> bool:
        return (leader := self.leader) is not None and leader.is_under_min_isr

    @property
    def is_reassigning(self) -> bool:
        return self.leader is not None and bool(self.adding or self.removing)

    # Roles

    def lead(self, state: PartitionState, version: int, replicas: Iterable[int], ineligible: Collection[int]) -> None:
        """We lead, from now on or still, in a new epoch.

        :raises StorageError: if the log cannot be used. Nothing has changed then.
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
            self.leader.renew(state, version, self.replicas, now_ms)
        self.leader.ineligible = ineligible
        log.high_watermark = self.leader.high_watermark
        self._enter(state.leader_epoch, is_leader=True)

    def follow(self, leader_id: int, leader_epoch: int, replicas: Iterable[int]) -> None:
        """Somebody else leads, or (``NO_LEADER``) nobody."""
        self.replicas = tuple(replicas)
        self.leader = None
        self.follower = None
        if leader_id != NO_LEADER:
            self.follower = PartitionFollower(leader_id, leader_epoch, self.log, self.truncation)
        self._enter(leader_epoch, is_leader=False)

    def stop(self) -> None:
        """We have no part in it any more, or are told to rest."""
        self.leader = self.follower = None
        self._enter(self.leader_epoch, is_leader=False)

    def _enter(self, leader_epoch: int, *, is_leader: bool) -> None:
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        for reader in list(self.readers):
            reader.changes()
        self._events.role_changed(self)

    def configure(self, settings: LeaderSettings) -> None:
        self.settings = settings
        if self.leader is not None:
            self.leader.settings = settings
            # With a lower ``min.insync.replicas`` more may be committed.
            self.look_again()

    def replace_log(self, log: PartitionLog) -> None:
        super().replace_log(log)
        if self.follower is not None:
            self.follower.log = log

    # As a leader

    def leading(self) -> PartitionLeader:
        """:raises NotLeaderOrFollower:"""
        if self.leader is None:
            raise NotLeaderOrFollower(f"this broker does not lead {self.log.topic}-{self.log.partition}")
        return self.leader

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT) -> Appended:
        leader = self.leading()
        log = self.log
        end_offset = log.next_offset
        appended = log.append(records, leader_epoch=self.leader_epoch, origin=origin)
        if not appended.is_duplicate:
            for reader in self.readers:
                reader.grows(end_offset)
            if leader.appended(log.next_offset, self._clock.monotonic_ms()):
                self._commit(leader)
        return appended

    def check_enough_replicas(self) -> None:
        self.leading().check_enough_replicas()

    def is_acknowledged(self, end_offset: int) -> bool:
        return self.leading().is_acknowledged(end_offset)

    def check_committed_is_known(self) -> None:
        if not self.leading().knows_high_watermark:
            raise OffsetNotAvailable("the new leader does not know yet how far its log is committed")

    @property
    def low_watermark(self) -> int:
        """:raises NotLeaderOrFollower: only a leader knows."""
        leader = self.leading()
        leader.log_start_offset = self.log.log_start_offset
        return leader.low_watermark

    def advance_log_start(self, offset: int) -> None:
        super().advance_log_start(offset)
        for reader in self.readers:
            reader.news(at_once=True)

    def fetched(self, replica_id: int, fetch: FollowerFetch) -> EpochEnd | None:
        """A follower fetches. Where its log parts from ours, if it does.

        :raises KafkaError: if it is not to be answered.
        """
        leader = self.leading()
        leader.log_start_offset = self.log.log_start_offset
        last_epoch = fetch.last_epoch
        epoch_end = NO_EPOCH_END if last_epoch == UNKNOWN else EpochEnd(*self.end_offset_for_epoch(last_epoch))
        done = leader.fetched(replica_id, fetch, epoch_end, self._clock.monotonic_ms())
        if done.has_high_watermark_moved:
            self._commit(leader)
        if done.isr_change is not None:
            self._events.isr_change_wanted(self, done.isr_change)
        return done.diverging

    def shrink(self) -> None:
        """To be asked every half of the lag time."""
        leader, now_ms = self.leader, self._clock.monotonic_ms()
        if leader is None:
            return
        change = leader.shrink(now_ms)
        if change is not None:
            self._events.isr_change_wanted(self, change)
        self.look_again()

    def look_again(self) -> None:
        """What holds the high watermark down may be over. Time has passed, or a broker has gone: a follower that was
        about to be let in does not come. Or fewer have to be in sync."""
        leader = self.leader
        if leader is not None and leader.appended(leader.next_offset, self._clock.monotonic_ms()):
            self._commit(leader)

    def isr_written(self, change: IsrChange, version: int) -> None:
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        has_moved = leader.isr_written(change, version, self._clock.monotonic_ms())
        if leader.isr != before:
            self._events.isr_changed(self, before)
        if has_moved:
            self._commit(leader)
        else:
            # A producer may have to hear that too few are left.
            self._events.high_watermark_moved(self)

    def isr_refused(self, change: IsrChange) -> None:
        if self.leader is not None:
            self.leader.isr_refused(change)
            self._events.isr_change_refused(self)

    def _commit(self, leader: PartitionLeader) -> None:
        self.log.high_watermark = leader.high_watermark
        self._events.high_watermark_moved(self)

    # As a follower

    def do(self, deed: Deed) -> None:
        """What the follower wants done to the log, but for records.

        :raises StorageError:
        """
        if isinstance(deed, TruncateTo):
            self.log.truncate_to(deed.offset)
        elif isinstance(deed, TruncateFully):
            self.log.truncate_fully(deed.offset)
        elif deed is not None:
            self._proceed(deed)

    def take(self, ask: FollowerFetch, answer: FetchAnswer, records: memoryview) -> bool:
        """An answer of the leader. Whether ``flush.messages`` wants the log flushed.

        :raises KafkaError: if the records cannot be appended. They are left out then.
        """
        follower = self.follower
        if follower is None:
            return False
        deed = follower.on_fetched(ask, answer)
        if not isinstance(deed, Proceed):
            self.do(deed)
            return False
        must_flush = bool(records) and self._append_replicated(records).must_flush
        self._proceed(deed)
        return must_flush

    def _append_replicated(self, records: memoryview) -> Appended:
        log = self.log
        start_offset = log.log_start_offset
        if log.next_offset == start_offset and (base_offset := read_header(records).base_offset) < start_offset:
            # An empty log begins within a batch, as the leader's does: it has the whole batch, and so do we.
            log.truncate_fully(base_offset)
            appended = log.append(records, leader_epoch=self.leader_epoch, origin=Origin.REPLICATION)
            log.high_watermark = min(max(log.high_watermark, start_offset), log.next_offset)
            log.advance_log_start(log.high_watermark)
            return appended
        return log.append(records, leader_epoch=self.leader_epoch, origin=Origin.REPLICATION)

    def _proceed(self, deed: Proceed) -> None:
        log = self.log
        if deed.high_watermark > log.high_watermark:
            log.high_watermark = deed.high_watermark
            self._events.high_watermark_moved(self)
        if deed.log_start_offset > log.log_start_offset:
            log.advance_log_start(deed.log_start_offset)


def end_of(records: memoryview) -> int | None:
    """The offset behind the last whole batch; None if there is none."""
    position, end, end_offset = 0, len(records), None
    while end - position > LENGTH_PREFIX_BYTES:
        size_bytes = size_of_batch(records, position)
        if size_bytes < HEADER_BYTES or position + size_bytes > end:
            break
        base_offset = int.from_bytes(records[position : position + 8], "big")
        end_offset = base_offset + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size_bytes
    return end_offset
