"""A partition that this broker leads, and the partitions of a broker."""

import pytest

from headrace.log.partition_log import Origin
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch, UnknownTopicOrPartition
from headrace.protocol.record_body import Record
from headrace.replication.partition import ANY_EPOCH, Isolation, Partition
from headrace.replication.partitions import Partitions


def batch(count=1, **fields):
    return build_batch([Record(number, 1_700_000_000_000, b"k", b"v", ()) for number in range(count)], **fields)


@pytest.fixture
def log(open_logs, tmp_path):
    return open_logs(tmp_path).create("t", 0, None)


@pytest.fixture
def partition(log):
    return Partition(log, 3)


def test_with_one_replica_the_high_watermark_is_the_end(partition):
    assert partition.high_watermark == 0
    partition.append(batch(4))
    assert partition.high_watermark == partition.log.next_offset == 4


def test_a_log_with_records_is_visible_from_the_start(log):
    log.append(batch(4), leader_epoch=0)
    assert Partition(log, 1).visible_end(Isolation.READ_UNCOMMITTED) == 4


def test_batches_carry_the_leaders_epoch(partition):
    partition.append(batch())
    assert partition.log.latest_epoch == 3


@pytest.mark.parametrize("epoch", [3, ANY_EPOCH])
def test_the_right_epoch(partition, epoch):
    partition.check_epoch(epoch)


def test_other_epochs(partition):
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(2)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(4)


def test_where_epochs_ended(partition):
    assert partition.end_offset_for_epoch(3) == (3, 0)
    partition.append(batch(2))
    partition.leader_epoch = 5
    assert partition.end_offset_for_epoch(5) == (5, 2)
    partition.append(batch(2))
    assert partition.end_offset_for_epoch(3) == partition.end_offset_for_epoch(4) == (3, 2)
    assert partition.end_offset_for_epoch(5) == (5, 4)
    assert partition.end_offset_for_epoch(6) == (-1, -1)


def test_an_open_transaction_hides_what_follows_it_from_read_committed(partition):
    partition.append(batch(2))
    transactional = batch(1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.append(transactional, Origin.COORDINATOR)
    partition.append(batch(2))
    assert partition.visible_end(Isolation.READ_UNCOMMITTED) == 5
    assert partition.visible_end(Isolation.READ_COMMITTED) == 2


def test_the_partitions_of_a_broker(partition):
    partitions = Partitions()
    partitions.add(partition)
    assert partitions.get("t", 0) is partitions.leader("t", 0) is partitions.leader("t", 0, 3) is partition
    assert list(partitions) == [partition]
    with pytest.raises(FencedLeaderEpoch):
        partitions.leader("t", 0, 1)
    for topic, index in (("t", 1), ("u", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            partitions.leader(topic, index)
    partitions.remove("t", 0)
    partitions.remove("t", 0)
    assert len(partitions) == 0


def test_a_partition_that_others_have_is_not_unknown():
    """So a client looks for the leader, and does not take the topic for deleted."""
    partitions = Partitions(lambda topic, index: (topic, index) == ("t", 1))
    with pytest.raises(NotLeaderOrFollower):
        partitions.leader("t", 1)
    with pytest.raises(UnknownTopicOrPartition):
        partitions.leader("t", 2)
