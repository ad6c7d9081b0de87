"""The seeds' two disasters (001 3.3): they happen when logs are cut to the high watermark, and do not with epochs.

Each is told once, on a list in memory and on the broker's own log.
"""

import pytest
from disk_log import DiskLog
from replication_harness import MemoryLog, World, walk

from headrace.replication.follower import Truncation

A, B = 0, 1


@pytest.fixture
def disk_logs(open_logs, tmp_path):
    """Makes logs on disk, one a broker."""
    return lambda broker_id: DiskLog(open_logs(tmp_path / f"{broker_id}", broker_id).create("t", 0, None))


@pytest.fixture(params=["memory", "disk"])
def make_log(request):
    return (lambda _: MemoryLog()) if request.param == "memory" else request.getfixturevalue("disk_logs")


def two_replicas_of_two_records(make_log, truncation):
    """A leads and has both records committed and acknowledged; B has both, but has heard of the first only."""
    world = World(2, truncation=truncation, make_log=make_log)
    world.elect(A)
    for broker_id in (A, B):
        world.tell(broker_id)
    world.append(A)
    world.exchange(B, 2)
    world.append(A)
    world.exchange(B)
    world.send(B)  # says that B has both; the answer would say that both are committed
    logs = [world.replicas[broker_id].log for broker_id in (A, B)]
    assert [(log.next_offset, log.high_watermark) for log in logs] == [(2, 2), (2, 1)]
    assert list(world.acknowledged) == [0, 1]
    for broker_id in (A, B):
        world.flush_high_watermark(broker_id)
    return world


def values(world, broker_id):
    return [value for _, value in world.replicas[broker_id].log.records]


def lose_data(make_log, truncation):
    world = two_replicas_of_two_records(make_log, truncation)
    world.bounce(B)  # and is about to follow A again
    world.crash(A)
    world.elect(B, gone=frozenset({A}))
    world.tell(B)
    world.restart(A)
    world.settle()
    return world


def test_cutting_to_the_high_watermark_loses_what_was_acknowledged(make_log):
    world = lose_data(make_log, Truncation.BY_HIGH_WATERMARK)
    assert values(world, A) == values(world, B) == ["v1"]
    with pytest.raises(AssertionError, match="has lost"):
        world.check()


def test_with_epochs_nothing_is_lost(make_log):
    world = lose_data(make_log, Truncation.BY_EPOCH)
    assert values(world, A) == values(world, B) == ["v1", "v2"]
    world.check()


def let_logs_differ(make_log, truncation):
    world = two_replicas_of_two_records(make_log, truncation)
    world.crash(A)
    world.crash(B)
    world.restart(B)
    world.tell(B)  # the last word is still that A leads
    world.elect(B, gone=frozenset({A}))
    world.tell(B)
    world.append(B)
    world.restart(A)
    world.settle()
    return world


def test_cutting_to_the_high_watermark_lets_logs_differ(make_log):
    world = let_logs_differ(make_log, Truncation.BY_HIGH_WATERMARK)
    assert values(world, A) == ["v1", "v2"]
    assert values(world, B) == ["v1", "v3"]
    with pytest.raises(AssertionError):
        world.check()


def test_with_epochs_logs_are_the_same(make_log):
    world = let_logs_differ(make_log, Truncation.BY_EPOCH)
    assert values(world, A) == values(world, B) == ["v1", "v2", "v3"]
    world.check()


def test_a_leader_that_lost_power_and_its_last_record_makes_the_other_cut_its_log(make_log):
    """The second disaster as KIP-101 tells it: the record was not yet on B's disk."""
    world = two_replicas_of_two_records(make_log, Truncation.BY_EPOCH)
    world.crash(A)
    world.crash(B)
    world.replicas[B].log.truncate_to(1)
    world.restart(B)
    world.elect(B, gone=frozenset({A}))
    world.tell(B)
    world.append(B)
    world.restart(A)
    world.settle()
    assert values(world, A) == values(world, B) == ["v1", "v3"]
    assert world.replicas[A].log.epochs == world.replicas[B].log.epochs


@pytest.mark.parametrize("seed", range(4))
def test_random_lives_on_disk(disk_logs, seed):
    walk(World(make_log=disk_logs), seed, steps=120)


def test_an_epoch_without_records_is_forgotten_when_its_leader_follows_again(make_log):
    log = make_log(A)
    log.append([(3, "v1")])
    log.begin_epoch(5)
    assert log.latest_epoch == 5
    log.truncate_to(1)
    assert (log.latest_epoch, log.next_offset) == (3, 1)
