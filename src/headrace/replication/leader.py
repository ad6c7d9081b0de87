"""A partition's leader: who is in sync, what is committed, who may be answered. No I/O, no clock: values in and out.

Followers fetch, and where one fetches is the end of its log (LEO): it has all below. What all in-sync replicas (ISR)
have is committed: the high watermark (HW) is the least of their ends. It never goes back.

The ISR is in ZooKeeper, where the controller chooses the next leader from it; so a change is a write of
``/brokers/topics/T/partitions/P/state`` that succeeds only if nobody else has changed it (:class:`IsrChange`). Between
asking for that and the answer nobody knows which of the two sets a next leader would be chosen from. Until then the HW
is held down by all who are in either: the maximal ISR. A follower that has caught up and waits to be let in holds it
down too, or a busy partition would run away from it.

A follower leaves when it was not caught up for ``replica.lag.time.max.ms``; at once, if it asks for what is committed:
then it had that, and its host has lost it. It comes back when it has all that is
committed, and all that this leader found in its log when it became leader (KAFKA-7128: what is committed of that, the
new leader learns only from the others).

With fewer in sync than ``min.insync.replicas``, acks=all is refused and the HW stands still (KIP-966).
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
    min_insync_replicas: int = 1
    lag_time_max_ms: int = 30_000


class IsrChange(NamedTuple):
    """A write to be made, if the znode still has that version."""

    state: PartitionState
    expected_version: int


class FollowerFetch(NamedTuple):
    """What a follower says with its fetch of one partition."""

    leader_epoch: int
    offset: int
    #: Of its last record; -1: it does not say (and is not checked).
    last_epoch: int
    log_start_offset: int


class Fetched(NamedTuple):
    """What a fetch has changed."""

    #: Not None: nothing was changed; the follower has records that we have not, and is to be told this instead of data.
    diverging: EpochEnd | None = None
    has_high_watermark_moved: bool = False
    isr_change: IsrChange | None = None


class PartitionLeader:
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
        :param state: what the controller has written, with this broker as the leader; and its znode's version.
        :param replicas: all that are assigned.
        :param next_offset: our log's end; where this epoch begins.
        :param high_watermark: as far as this broker knew as a follower, or had on disk.
        """
        self.broker_id = broker_id
        self.settings = settings
        self.next_offset = next_offset
        self.log_start_offset = log_start_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), next_offset)
        #: Brokers that are not to be let into the ISR: dead or shutting down, as far as we know.
        self.ineligible: Collection[int] = frozenset()
        self.pending: IsrChange | None = None
        self._remotes: dict[int, RemoteReplica] = {}
        self._begin(state, version, replicas, {}, now_ms)
        self._advance(now_ms)

    def _begin(
        self,
        state: PartitionState,
        version: int,
        replicas: Iterable[int],
        known: Mapping[int, RemoteReplica],
        now_ms: int,
    ) -> None:
        assert state.leader == self.broker_id, f"{state} is not ours to lead"
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

    def renew(self, state: PartitionState, version: int, replicas: Iterable[int], now_ms: int) -> bool:
        """We lead on, in a new epoch. Whether the HW has moved."""
        assert state.leader_epoch > self.leader_epoch, f"{state} is not newer than {self.state}"
        # In an epoch that we have not heard of somebody else may have led, and the others cut their logs.
        known = self._remotes if state.leader_epoch == self.leader_epoch + 1 else {}
        self._begin(state, version, replicas, known, now_ms)
        return self._advance(now_ms)

    # What is known

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """As it was last written."""
        return self.state.isr

    @property
    def maximal_isr(self) -> Collection[int]:
        """All who may be in it, whatever becomes of the change that is under way."""
        if self.pending is None:
            return self.state.isr
        return frozenset((*self.state.isr, *self.pending.state.isr))

    @property
    def min_isr(self) -> int:
        """There cannot be more in sync than there are replicas."""
        return min(self.settings.min_insync_replicas, len(self._remotes) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.min_isr

    @property
    def knows_high_watermark(self) -> bool:
        """Whether all that was committed before our time is known to be: before that, readers wait (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """Below this no replica has anything any more; those that are away are not asked."""
        starts = [one.log_start_offset for one in self._remotes.values() if one.replica_id not in self.ineligible]
        return min([self.log_start_offset, *starts])

    def remote(self, replica_id: int) -> RemoteReplica | None:
        return self._remotes.get(replica_id)

    # Producers

    def check_enough_replicas(self) -> None:
        """Before an append that asks for acks=all.

        :raises NotEnoughReplicas:
        """
        if self.is_under_min_isr:
            raise NotEnoughReplicas(f"in sync are {list(self.state.isr)}, and {self.min_isr} must be")

    def appended(self, next_offset: int, now_ms: int) -> bool:
        """Our log has grown. Whether the HW has moved, which it does at once if nobody else is in sync."""
        assert next_offset >= self.next_offset, "a leader's log is never cut"
        self.next_offset = next_offset
        return self._advance(now_ms)

    def is_acknowledged(self, end_offset: int) -> bool:
        """Whether acks=all is done with a batch that ends before an offset. To be asked when the HW has moved, or the
        ISR changed.

        :raises NotEnoughReplicasAfterAppend: if it is in the log, and too few are in sync.
        """
        if self.high_watermark >= end_offset:
            return True
        if len(self.maximal_isr) < self.min_isr:
            raise NotEnoughReplicasAfterAppend(f"in sync are {list(self.state.isr)}, and {self.min_isr} must be")
        return False

    # Followers

    def fetched(self, replica_id: int, fetch: FollowerFetch, epoch_end: EpochEnd, now_ms: int) -> Fetched:
        """A follower asks for what comes at an offset. To be done before it is answered: then it learns of the HW that
        its own fetch has moved.

        :param epoch_end: of our log, for the fetch's ``last_epoch``.
        :raises KafkaError: if it is not answered; nothing has changed.
        """
        self.check_epoch(fetch.leader_epoch)
        remote = self._remotes.get(replica_id)
        if remote is None:
            raise NotLeaderOrFollower(f"broker {replica_id} has no replica, as far as leader {self.broker_id} knows")
        if fetch.offset < self.log_start_offset:
            raise OffsetOutOfRange(f"offset {fetch.offset} is below the log's start {self.log_start_offset}")
        if fetch.last_epoch != UNKNOWN:
            if epoch_end == NO_EPOCH_END:
                raise OffsetOutOfRange(f"epoch {fetch.last_epoch} is not known here")
            if is_diverging(fetch.offset, fetch.last_epoch, epoch_end):
                return Fetched(diverging=epoch_end)
        if fetch.offset > self.next_offset:
            raise OffsetOutOfRange(f"offset {fetch.offset} is above the log's end {self.next_offset}")
        remote.fetched(fetch.offset, fetch.log_start_offset, self.next_offset, now_ms)
        if replica_id in self.state.isr and fetch.offset < self.high_watermark:
            change = self._propose_without({replica_id})
        else:
            change = self._propose_with(remote)
        return Fetched(None, self._advance(now_ms), change)

    def check_epoch(self, epoch: int) -> None:
        if epoch == UNKNOWN or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch} any more")
        raise UnknownLeaderEpoch(f"the leader epoch is {self.leader_epoch}, not yet {epoch}")

    # The ISR

    def _propose_with(self, remote: RemoteReplica) -> IsrChange | None:
        replica_id = remote.replica_id
        if self.pending is not None or replica_id in self.state.isr or replica_id in self.ineligible:
            return None
        if remote.next_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        return self._propose((*self.state.isr, replica_id))

    def shrink(self, now_ms: int) -> IsrChange | None:
        """Without those that have been behind for too long. To be asked every half of the lag time."""
        if self.pending is not None:
            return None
        out = {
            remote.replica_id
            for remote in self._remotes.values()
            if remote.replica_id in self.state.isr
            and not remote.is_caught_up(self.next_offset, now_ms, self.settings.lag_time_max_ms)
        }
        return self._propose_without(out)

    def _propose_without(self, out: Collection[int]) -> IsrChange | None:
        if self.pending is not None or not out:
            return None
        return self._propose(tuple(replica for replica in self.state.isr if replica not in out))

    def _propose(self, isr: tuple[int, ...]) -> IsrChange | None:
        if self._is_outdated:
            return None
        # Whoever is let in or goes does so by what this leader has: an unclean election is made up for.
        self.pending = IsrChange(self.state._replace(isr=isr, is_recovering=False), self.version)
        return self.pending

    def isr_written(self, change: IsrChange, version: int, now_ms: int) -> bool:
        """The write has been made, and this is the znode's version now. Whether the HW has moved."""
        if change != self.pending:
            return False  # of an epoch before
        self.state, self.version, self.pending = change.state, version, None
        return self._advance(now_ms)

    def isr_refused(self, change: IsrChange) -> None:
        """Somebody else has written: the controller, whose word is on its way. Until it is here nothing is asked for.

        Where the outcome is not known, none of the two is told: the change stays pending until a read has shown it.
        """
        if change == self.pending:
            self.pending = None
            self._is_outdated = True

    # The high watermark

    def _advance(self, now_ms: int) -> bool:
        if len(self.state.isr) < self.min_isr:
            return False
        committed, maximal_isr = self.next_offset, self.maximal_isr
        for remote in self._remotes.values():
            if remote.next_offset < committed and (
                remote.replica_id in maximal_isr or self._waits_to_be_let_in(remote, now_ms)
            ):
                committed = remote.next_offset
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def _waits_to_be_let_in(self, remote: RemoteReplica, now_ms: int) -> bool:
        return remote.replica_id not in self.ineligible and remote.is_caught_up(
            self.next_offset, now_ms, self.settings.lag_time_max_ms
        )
