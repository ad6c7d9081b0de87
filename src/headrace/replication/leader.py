"""The leader's side of replication: the ISR, the high watermark, and the checks of fetches. No I/O, no clock.

Followers fetch. The offset at which a follower fetches is the end of its log (LEO): it has all records below. A
record that all in-sync replicas (the ISR) have is committed. The high watermark (HW) is the lowest LEO of the ISR.
The HW never goes back.

The ISR is in ZooKeeper, because the controller chooses the next leader from it. So a change of the ISR is a write of
``/brokers/topics/T/partitions/P/state`` that succeeds only if no other broker has changed the znode
(:class:`IsrChange`). Between the write and its response, this leader does not know from which of the two sets a next
leader would be chosen. In this time the HW waits for all replicas that are in one of the two sets: the maximal ISR.
The HW also waits for a follower that is caught up and about to join the ISR; otherwise the follower could never catch
up with a busy partition.

A follower leaves the ISR when it was not caught up for ``replica.lag.time.max.ms``. It leaves at once if it fetches
below the HW: it had these records, and its host has lost them. A follower joins the ISR again when it has all
committed records, and all records that were in this leader's log when this leader was elected (KAFKA-7128: a new
leader learns only from the other replicas which of these records are committed).

If fewer replicas are in sync than ``min.insync.replicas``, requests with acks=all are rejected and the HW does not
advance (KIP-966).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.coordination.znodes import PartitionState
from headrace.protocol.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from headrace.replication.epoch_ends import NO_EPOCH_END, UNKNOWN, EpochEnd, is_diverging
from headrace.replication.remote_replica import RemoteReplica


class LeaderSettings(NamedTuple):
    """The settings of a topic and its broker that a leader uses."""

    min_insync_replicas: int = 1
    lag_time_max_ms: int = 30_000


class IsrChange(NamedTuple):
    """A write of the partition's state to ZooKeeper, if the znode still has this version."""

    state: PartitionState
    expected_version: int


class FollowerFetch(NamedTuple):
    """The fields of a follower's fetch of one partition."""

    leader_epoch: int
    offset: int
    #: The epoch of the follower's last record. -1 if the follower does not send it; then nothing is checked.
    last_epoch: int
    log_start_offset: int


class FetchOutcome(NamedTuple):
    """The changes that a follower's fetch has caused."""

    #: Not None if the follower has records that the leader does not have. Then nothing was changed, and the leader
    #: answers with this instead of records.
    diverging: EpochEnd | None = None
    has_high_watermark_moved: bool = False
    isr_change: IsrChange | None = None


class PartitionLeader:
    """The leader of one partition."""

    def __init__(
        self,
        broker_id: int,
        state: PartitionState,
        version: int,
        replicas: Iterable[int],
        *,
        next_offset: int,
        high_watermark: int,
        log_start_offset: int = 0,
        now_ms: int,
        settings: LeaderSettings = LeaderSettings(),  # noqa: B008  a tuple
    ) -> None:
        """
        :param state: the state that the controller has written, with this broker as the leader.
        :param version: the version of the znode with the state.
        :param replicas: all assigned replicas.
        :param next_offset: the end of this broker's log, where the leader epoch begins.
        :param high_watermark: the high watermark that this broker knew as a follower, or had on disk.
        """
        self.broker_id = broker_id
        self.settings = settings
        self.next_offset = next_offset
        self.log_start_offset = log_start_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), next_offset)
        #: Brokers that may not join the ISR, because they are dead or shutting down.
        self.ineligible: Collection[int] = frozenset()
        self.pending: IsrChange | None = None
        self._remotes: dict[int, RemoteReplica] = {}
        self._begin_epoch(state, version, replicas, {}, now_ms)
        self._advance_high_watermark(now_ms)

    def _begin_epoch(
        self,
        state: PartitionState,
        version: int,
        replicas: Iterable[int],
        known: Mapping[int, RemoteReplica],
        now_ms: int,
    ) -> None:
        assert state.leader == self.broker_id, f"broker {self.broker_id} is not the leader in {state}"
        self.state = state
        self.version = version
        self.pending = None
        self._is_outdated = False
        self.epoch_start_offset = self.next_offset
        self._remotes = {
            replica: known.get(replica) or RemoteReplica(replica) for replica in replicas if replica != self.broker_id
        }
        for remote in self._remotes.values():
            remote.begin_epoch(self.next_offset, now_ms, is_in_sync=remote.replica_id in state.isr)

    def begin_next_epoch(self, state: PartitionState, version: int, replicas: Iterable[int], now_ms: int) -> bool:
        """Continues to lead, in a new epoch. Returns whether the HW has moved."""
        assert state.leader_epoch > self.leader_epoch, f"{state} is not newer than {self.state}"
        # In an epoch that was skipped another broker may have led, and the followers may have truncated their logs.
        known = self._remotes if state.leader_epoch == self.leader_epoch + 1 else {}
        self._begin_epoch(state, version, replicas, known, now_ms)
        return self._advance_high_watermark(now_ms)

    # Questions

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR as it was last written to ZooKeeper."""
        return self.state.isr

    @property
    def maximal_isr(self) -> Collection[int]:
        """All replicas that may be in the ISR, whether the change under way succeeds or not."""
        if self.pending is None:
            return self.state.isr
        return frozenset((*self.state.isr, *self.pending.state.isr))

    @property
    def min_isr(self) -> int:
        """``min.insync.replicas``, but not more than there are replicas."""
        return min(self.settings.min_insync_replicas, len(self._remotes) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.min_isr

    @property
    def knows_high_watermark(self) -> bool:
        """Tells whether the HW has reached the start of this leader epoch. Until then consumers wait (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """The lowest start of all replicas' logs, except those of dead brokers."""
        starts = [one.log_start_offset for one in self._remotes.values() if one.replica_id not in self.ineligible]
        return min([self.log_start_offset, *starts])

    def remote(self, replica_id: int) -> RemoteReplica | None:
        return self._remotes.get(replica_id)

    # Producers

    def check_enough_replicas(self) -> None:
        """Checks the ISR before an append with acks=all.

        :raises NotEnoughReplicas: if fewer replicas are in sync than ``min.insync.replicas``.
        """
        if self.is_under_min_isr:
            raise NotEnoughReplicas(f"the ISR is {list(self.state.isr)}, and min.insync.replicas is {self.min_isr}")

    def appended(self, next_offset: int, now_ms: int) -> bool:
        """Notes the new end of the leader's log. Returns whether the HW has moved.

        The HW moves at once if no other replica is in sync.
        """
        assert next_offset >= self.next_offset, "a leader's log is never truncated"
        self.next_offset = next_offset
        return self._advance_high_watermark(now_ms)

    def is_acknowledged(self, end_offset: int) -> bool:
        """Tells whether a batch that ends at an offset is committed, for acks=all.

        The caller asks again when the HW has moved or the ISR has changed.

        :raises NotEnoughReplicasAfterAppend: if the batch is in the log, and too few replicas are in sync.
        """
        if self.high_watermark >= end_offset:
            return True
        if len(self.maximal_isr) < self.min_isr:
            raise NotEnoughReplicasAfterAppend(
                f"the ISR is {list(self.state.isr)}, and min.insync.replicas is {self.min_isr}"
            )
        return False

    # Followers

    def fetched(self, replica_id: int, fetch: FollowerFetch, epoch_end: EpochEnd, now_ms: int) -> FetchOutcome:
        """Notes a follower's fetch. The caller answers the fetch afterwards, so the answer has the new HW.

        :param epoch_end: the epoch end in this leader's log for the fetch's ``last_epoch``.
        :raises KafkaError: if the fetch is rejected. Then nothing has changed.
        """
        self.check_epoch(fetch.leader_epoch)
        remote = self._remotes.get(replica_id)
        if remote is None:
            raise NotLeaderOrFollower(
                f"broker {replica_id} is not one of the followers {sorted(self._remotes)} of leader {self.broker_id}"
            )
        if fetch.offset < self.log_start_offset:
            raise OffsetOutOfRange(f"offset {fetch.offset} is below the log's start {self.log_start_offset}")
        if fetch.last_epoch != UNKNOWN:
            if epoch_end == NO_EPOCH_END:
                raise OffsetOutOfRange(f"the log of leader {self.broker_id} has no epoch {fetch.last_epoch}")
            if is_diverging(fetch.offset, fetch.last_epoch, epoch_end):
                return FetchOutcome(diverging=epoch_end)
        if fetch.offset > self.next_offset:
            raise OffsetOutOfRange(f"offset {fetch.offset} is above the log's end {self.next_offset}")
        remote.fetched(fetch.offset, fetch.log_start_offset, self.next_offset, now_ms)
        if replica_id in self.state.isr and fetch.offset < self.high_watermark:
            change = self._propose_removing({replica_id})
        else:
            change = self._propose_adding(remote)
        return FetchOutcome(None, self._advance_high_watermark(now_ms), change)

    def check_epoch(self, epoch: int) -> None:
        if epoch == UNKNOWN or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"the leader epoch is {self.leader_epoch}; the request has the older epoch {epoch}")
        raise UnknownLeaderEpoch(f"the leader epoch is {self.leader_epoch}; the request has the newer epoch {epoch}")

    # The ISR

    def _propose_adding(self, remote: RemoteReplica) -> IsrChange | None:
        replica_id = remote.replica_id
        if self.pending is not None or replica_id in self.state.isr or replica_id in self.ineligible:
            return None
        if remote.next_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose((*self.state.isr, replica_id))

    def shrink_isr(self, now_ms: int) -> IsrChange | None:
        """The change that removes the followers that were not caught up for too long. None if there are none.

        The caller calls this every half of the lag time.
        """
        if self.pending is not None:
            return None
        out = {
            remote.replica_id
            for remote in self._remotes.values()
            if remote.replica_id in self.state.isr
            and not remote.is_caught_up(self.next_offset, now_ms, self.settings.lag_time_max_ms)
        }
        return self._propose_removing(out)

    def _propose_removing(self, out: Collection[int]) -> IsrChange | None:
        if self.pending is not None or not out:
            return None
        return self._propose(tuple(replica for replica in self.state.isr if replica not in out))

    def _propose(self, isr: tuple[int, ...]) -> IsrChange | None:
        if self._is_outdated:
            return None
        # The new ISR is based on this leader's log, so a recovery after an unclean election has ended.
        self.pending = IsrChange(self.state._replace(isr=isr, is_recovering=False), self.version)
        return self.pending

    def isr_written(self, change: IsrChange, version: int, now_ms: int) -> bool:
        """Notes that the write succeeded, and the znode's new version. Returns whether the HW has moved."""
        if change != self.pending:
            return False  # a change of an earlier epoch
        self.state, self.version, self.pending = change.state, version, None
        return self._advance_high_watermark(now_ms)

    def isr_rejected(self, change: IsrChange) -> None:
        """Notes that the write failed because the controller has changed the znode.

        Until the controller's request arrives, this leader makes no other change. If the outcome of a write is
        unknown, the caller calls neither :meth:`isr_written` nor this method: the change stays pending until a read
        shows the outcome.
        """
        if change == self.pending:
            self.pending = None
            self._is_outdated = True

    # The high watermark

    def _advance_high_watermark(self, now_ms: int) -> bool:
        if len(self.state.isr) < self.min_isr:
            return False
        committed, maximal_isr = self.next_offset, self.maximal_isr
        for remote in self._remotes.values():
            if remote.next_offset < committed and (
                remote.replica_id in maximal_isr or self._may_join_isr(remote, now_ms)
            ):
                committed = remote.next_offset
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _may_join_isr(self, remote: RemoteReplica, now_ms: int) -> bool:
        return remote.replica_id not in self.ineligible and remote.is_caught_up(
            self.next_offset, now_ms, self.settings.lag_time_max_ms
        )
