"""Random runs of three replicas: all rules hold in every run, and each deliberate mistake fails some run."""

import pytest
from replication_harness import ReplicationHarness, walk

from headrace.replication import leader as leader_module
from headrace.replication.epoch_ends import UNKNOWN, TruncationPoint
from headrace.replication.follower import FollowerState, PartitionFollower, Truncation
from headrace.replication.leader import PartitionLeader
from headrace.replication.remote_replica import RemoteReplica


def worlds(count, truncation=Truncation.BY_EPOCH, *, first=0):
    for seed in range(first, first + count):
        yield seed, ReplicationHarness(truncation=truncation, min_insync_replicas=1 + seed % 2)


def test_whatever_happens_nothing_committed_is_lost():
    acknowledged_count = 0
    for seed, harness in worlds(100):
        walk(harness, seed)
        acknowledged_count += len(harness.acknowledged)
    assert acknowledged_count > 200


def cut_to_the_high_watermark(monkeypatch):
    return Truncation.BY_HIGH_WATERMARK


def forget_that_a_change_of_the_isr_is_under_way(monkeypatch):
    monkeypatch.setattr(PartitionLeader, "maximal_isr", property(lambda self: frozenset(self.state.isr)))


def let_anybody_into_the_isr(monkeypatch):
    monkeypatch.setattr(
        PartitionLeader,
        "_propose_adding",
        lambda self, remote: (
            None
            if self.pending is not None or remote.replica_id in self.state.isr
            else self._propose((*self.state.isr, remote.replica_id))
        ),
    )


def let_into_the_isr_who_has_what_is_known_to_be_committed(monkeypatch):
    right = PartitionLeader._propose_adding

    def propose_with(self, remote):
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return right(self, remote)
        finally:
            self.epoch_start_offset = start

    monkeypatch.setattr(PartitionLeader, "_propose_adding", propose_with)


def take_requests_of_any_epoch(monkeypatch):
    monkeypatch.setattr(PartitionLeader, "check_epoch", lambda self, epoch: None)


def acknowledge_at_once(monkeypatch):
    monkeypatch.setattr(PartitionLeader, "is_acknowledged", lambda self, end_offset: True)


def commit_what_the_leader_has(monkeypatch):
    def advance(self, now_ms):
        self.high_watermark = self.next_offset
        return True

    monkeypatch.setattr(PartitionLeader, "_advance_high_watermark", advance)


def take_a_refused_isr_for_written(monkeypatch):
    def refused(self, change):
        self.isr_written(change, change.expected_version + 1, 0)

    monkeypatch.setattr(PartitionLeader, "isr_rejected", refused)


def never_cut(monkeypatch):
    monkeypatch.setattr(
        "headrace.replication.follower.truncation_point", lambda log, leaders: TruncationPoint(log.next_offset, True)
    )
    monkeypatch.setattr(leader_module, "is_diverging", lambda offset, last_epoch, leaders: False)


def cut_only_by_the_leaders_end(monkeypatch):
    """As KIP-101 first had it, without KIP-279: the follower does not look where it has the leader's epoch itself."""
    monkeypatch.setattr(
        "headrace.replication.follower.truncation_point",
        lambda log, leaders: TruncationPoint(min(leaders.end_offset, log.next_offset), True),
    )
    monkeypatch.setattr(leader_module, "is_diverging", lambda offset, last_epoch, leaders: False)


def trust_what_followers_said_in_other_epochs(monkeypatch):
    right = PartitionLeader._begin_epoch
    known: dict[PartitionLeader, dict[int, RemoteReplica]] = {}

    def begin(self, state, version, replicas, _, now_ms):
        right(self, state, version, replicas, known.setdefault(self, {}), now_ms)
        known[self] = self._remotes

    monkeypatch.setattr(PartitionLeader, "_begin_epoch", begin)


def fetch_without_cutting_first_or_saying_the_last_epoch(monkeypatch):
    def first_action(self):
        self.state = FollowerState.FETCHING

    right = PartitionFollower.next_request

    def next_request(self):
        ask = right(self)
        return ask._replace(last_epoch=UNKNOWN) if self.state is FollowerState.FETCHING else ask

    monkeypatch.setattr(PartitionFollower, "first_action", first_action)
    monkeypatch.setattr(PartitionFollower, "next_request", next_request)


@pytest.mark.parametrize(
    ("mistake", "first"),  # of the lives that are tried; not far behind is one that finds it out
    [
        (cut_to_the_high_watermark, 0),
        (forget_that_a_change_of_the_isr_is_under_way, 0),
        (let_anybody_into_the_isr, 0),
        (let_into_the_isr_who_has_what_is_known_to_be_committed, 500),
        (take_requests_of_any_epoch, 250),
        (acknowledge_at_once, 0),
        (commit_what_the_leader_has, 0),
        (take_a_refused_isr_for_written, 0),
        (never_cut, 0),
        (cut_only_by_the_leaders_end, 0),
        (trust_what_followers_said_in_other_epochs, 440),
        (fetch_without_cutting_first_or_saying_the_last_epoch, 0),
    ],
)
def test_a_mistake_is_found_out(monkeypatch, mistake, first):
    truncation = mistake(monkeypatch) or Truncation.BY_EPOCH
    for seed, harness in worlds(3_000, truncation, first=first):
        try:
            walk(harness, seed)
        except AssertionError:
            return
    pytest.fail("3,000 lives did not find it out")
