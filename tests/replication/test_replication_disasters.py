"""The two disasters of KIP-101: they happen with truncation to the high watermark, and not with leader epochs.

Each disaster runs on a log in memory and on the broker's own log.
"""

import pytest
from disk_log import DiskLog
from memory_log import MemoryLog
from replication_harness import ReplicationHarness, walk

from headrace.replication.follower import Truncation

A, B = 0, 1


@pytest.fixture
def disk_logs(open_logs, tmp_path):
    """Makes logs on disk, one per broker."""
    return lambda broker_id: DiskLog(open_logs(tmp_path / f"{broker_id}", broker_id).create("t", 0, None))


@pytest.fixture(params=["memory", "disk"])
def make_log(request):
    return (lambda _: MemoryLog()) if request.param == "memory" else request.getfixturevalue("disk_logs")


def two_replicas_of_two_records(make_log, truncation):
    """A leads, and both records are committed. B has both records, but its high watermark covers only the first."""
    harness = ReplicationHarness(2, truncation=truncation, make_log=make_log)
    harness.elect(A)
    for broker_id in (A, B):
        harness.tell(broker_id)
    harness.append(A)
    harness.exchange(B, 2)
    harness.append(A)
    harness.exchange(B)
    harness.send(B)  # says that B has both; the answer would say that both are committed
    logs = [harness.replicas[broker_id].log for broker_id in (A, B)]
    assert [(log.next_offset, log.high_watermark) for log in logs] == [(2, 2), (2, 1)]
    assert list(harness.acknowledged) == [0, 1]
    for broker_id in (A, B):
        harness.flush_high_watermark(broker_id)
    return harness


def values(harness, broker_id):
    return [value for _, value in harness.replicas[broker_id].log.records]


def lose_data(make_log, truncation):
    harness = two_replicas_of_two_records(make_log, truncation)
    harness.bounce(B)  # and is about to follow A again
    harness.crash(A)
    harness.elect(B, gone=frozenset({A}))
    harness.tell(B)
    harness.restart(A)
    harness.settle()
    return harness


def test_cutting_to_the_high_watermark_loses_what_was_acknowledged(make_log):
    harness = lose_data(make_log, Truncation.BY_HIGH_WATERMARK)
    assert values(harness, A) == values(harness, B) == ["v1"]
    with pytest.raises(AssertionError, match="has lost"):
        harness.check()


def test_with_epochs_nothing_is_lost(make_log):
    harness = lose_data(make_log, Truncation.BY_EPOCH)
    assert values(harness, A) == values(harness, B) == ["v1", "v2"]
    harness.check()


def let_logs_differ(make_log, truncation):
    harness = two_replicas_of_two_records(make_log, truncation)
    harness.crash(A)
    harness.crash(B)
    harness.restart(B)
    harness.tell(B)  # the last word is still that A leads
    harness.elect(B, gone=frozenset({A}))
    harness.tell(B)
    harness.append(B)
    harness.restart(A)
    harness.settle()
    return harness


def test_cutting_to_the_high_watermark_lets_logs_differ(make_log):
    harness = let_logs_differ(make_log, Truncation.BY_HIGH_WATERMARK)
    assert values(harness, A) == ["v1", "v2"]
    assert values(harness, B) == ["v1", "v3"]
    with pytest.raises(AssertionError):
        harness.check()


def test_with_epochs_logs_are_the_same(make_log):
    harness = let_logs_differ(make_log, Truncation.BY_EPOCH)
    assert values(harness, A) == values(harness, B) == ["v1", "v2", "v3"]
    harness.check()


def test_a_leader_that_lost_power_and_its_last_record_makes_the_other_cut_its_log(make_log):
    """The second disaster as KIP-101 tells it: the record was not yet on B's disk."""
    harness = two_replicas_of_two_records(make_log, Truncation.BY_EPOCH)
    harness.crash(A)
    harness.crash(B)
    harness.replicas[B].log.truncate_to(1)
    harness.restart(B)
    harness.elect(B, gone=frozenset({A}))
    harness.tell(B)
    harness.append(B)
    harness.restart(A)
    harness.settle()
    assert values(harness, A) == values(harness, B) == ["v1", "v3"]
    assert harness.replicas[A].log.epochs == harness.replicas[B].log.epochs


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_on_disk(disk_logs, seed):
    walk(ReplicationHarness(make_log=disk_logs), seed, steps=120)


def test_an_epoch_without_records_is_forgotten_when_its_leader_follows_again(make_log):
    log = make_log(A)
    log.append([(3, "v1")])
    log.begin_epoch(5)
    assert log.latest_epoch == 5
    log.truncate_to(1)
    assert (log.latest_epoch, log.next_offset) == (3, 1)
