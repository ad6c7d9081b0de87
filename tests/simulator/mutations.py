"""Deliberate mistakes in the code. The simulator must catch each of them, which shows that it finds real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.broker.cluster.controller_fence import ControllerFence
from headrace.broker.replicas.follower_sessions import SessionPartition
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.replication.follower import FollowerState, PartitionFollower, Truncation
from headrace.replication.leader import PartitionLeader
from headrace.replication.partition import Partition
from headrace.testing.simulator.faults import Faults

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(mutate: Mutation) -> Mutation:
    MUTATIONS[mutate.__name__] = mutate
    return mutate


@mutation
def truncation_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Followers truncate their logs to the high watermark, as Kafka did before 0.11 (KIP-101)."""
    begin = PartitionFollower.__init__

    def init(self, leader_id, leader_epoch, log, truncation=Truncation.BY_HIGH_WATERMARK):
        begin(self, leader_id, leader_epoch, log, Truncation.BY_HIGH_WATERMARK)

    patch.setattr(PartitionFollower, "__init__", init)


@mutation
def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Brokers answer requests of any epoch, and followers do not look for the offset where logs diverge."""
    patch.setattr(Partition, "check_epoch", lambda self, epoch: None)
    ask = SessionPartition.ask

    def ask_for_any_epoch(self, asked):
        ask(self, asked)
        self.fetch = self.fetch._replace(leader_epoch=-1, last_epoch=-1)

    patch.setattr(SessionPartition, "ask", ask_for_any_epoch)

    def first_action(self):
        self._transition_to(FollowerState.FETCHING)

    patch.setattr(PartitionFollower, "first_action", first_action)


@mutation
def acknowledged_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLeader, "is_acknowledged", lambda self, end_offset: True)


@mutation
def isr_expands_too_early(patch: pytest.MonkeyPatch) -> None:
    """A follower gets into the ISR with its first fetch, however far behind it is."""

    def propose_with(self, remote):
        if self.pending is not None or remote.replica_id in self.state.isr or remote.replica_id in self.ineligible:
            return None
        return self._propose((*self.state.isr, remote.replica_id))

    patch.setattr(PartitionLeader, "_propose_adding", propose_with)


@mutation
def high_watermark_advances_too_early(patch: pytest.MonkeyPatch) -> None:
    """Everything that the leader has counts as committed."""

    def advance(self, now_ms):
        has_moved = self.next_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, self.next_offset)
        return has_moved

    patch.setattr(PartitionLeader, "_advance_high_watermark", advance)


@mutation
def consumers_see_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Consumers receive the log up to its end."""
    patch.setattr(Partition, "visible_end", lambda self, isolation: self.log.next_offset)


@mutation
def stale_controllers_are_followed(patch: pytest.MonkeyPatch) -> None:
    """Brokers apply requests of any controller, also of one that has been replaced."""
    patch.setattr(ControllerFence, "check_controller", lambda self, epoch: None)
    patch.setattr(ControllerFence, "check_broker_epoch", lambda self, epoch: None)
    change = ReplicaManager._change_role

    def apply(self, partition, told):
        if told.leadership.leader_epoch < partition.leader_epoch:
            self._stop(partition)  # the replica would reject an older epoch
            partition.leader_epoch = told.leadership.leader_epoch - 1
        change(self, partition, told)

    patch.setattr(ReplicaManager, "_change_role", apply)
    begin = Faults.__init__

    def init(self, *arguments):
        begin(self, *arguments)
        self._broker_faults += [
            self._late_controller
        ] * 20  # else more than twenty seeds pass until a broker follows one

    patch.setattr(Faults, "__init__", init)
