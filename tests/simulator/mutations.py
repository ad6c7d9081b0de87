"""Deliberate mistakes, each of which loses or spoils data in some simulation: the proof that the simulator bites."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.broker.cluster.controller_fence import ControllerFence
from headrace.broker.replicas.follower_sessions import SessionPartition
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.replication.follower import PartitionFollower, State, Truncation
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
    """Followers cut their logs as Kafka did before 0.11."""
    begin = PartitionFollower.__init__

    def init(self, leader_id, leader_epoch, log, truncation=Truncation.BY_HIGH_WATERMARK):
        begin(self, leader_id, leader_epoch, log, Truncation.BY_HIGH_WATERMARK)

    patch.setattr(PartitionFollower, "__init__", init)


@mutation
def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks is answered, whatever epoch it thinks that it is; nobody looks where logs part."""
    patch.setattr(Partition, "check_epoch", lambda self, epoch: None)
    ask = SessionPartition.ask

    def ask_for_any_epoch(self, asked):
        ask(self, asked)
        self.fetch = self.fetch._replace(leader_epoch=-1, last_epoch=-1)

    patch.setattr(SessionPartition, "ask", ask_for_any_epoch)

    def begin(self):
        self._go(State.FETCHING)

    patch.setattr(PartitionFollower, "begin", begin)


@mutation
def acknowledged_before_the_isr_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLeader, "is_acknowledged", lambda self, end_offset: True)


@mutation
def isr_expands_too_early(patch: pytest.MonkeyPatch) -> None:
    """A follower is let in with its first fetch, however far behind it is."""

    def propose_with(self, remote):
        if self.pending is not None or remote.replica_id in self.state.isr or remote.replica_id in self.ineligible:
            return None
        return self._propose((*self.state.isr, remote.replica_id))

    patch.setattr(PartitionLeader, "_propose_with", propose_with)


@mutation
def high_watermark_advances_too_early(patch: pytest.MonkeyPatch) -> None:
    """What the leader has counts as committed."""

    def advance(self, now_ms):
        has_moved = self.next_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, self.next_offset)
        return has_moved

    patch.setattr(PartitionLeader, "_advance", advance)


@mutation
def consumers_see_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """They are sent all that is in the log."""
    patch.setattr(Partition, "visible_end", lambda self, isolation: self.log.next_offset)


@mutation
def stale_controllers_are_obeyed(patch: pytest.MonkeyPatch) -> None:
    """Brokers do as they are told, whoever says it and however late."""
    patch.setattr(ControllerFence, "check_controller", lambda self, epoch: None)
    patch.setattr(ControllerFence, "check_broker_epoch", lambda self, epoch: None)
    change = ReplicaManager._change_role

    def obey(self, partition, told):
        if told.leadership.leader_epoch < partition.leader_epoch:
            self._stop(partition)  # else it would wonder
            partition.leader_epoch = told.leadership.leader_epoch - 1
        change(self, partition, told)

    patch.setattr(ReplicaManager, "_change_role", obey)
    begin = Faults.__init__

    def init(self, *arguments):
        begin(self, *arguments)
        self._kinds += [self._late_controller] * 20  # else it takes twenty seeds and more until one is obeyed

    patch.setattr(Faults, "__init__", init)
