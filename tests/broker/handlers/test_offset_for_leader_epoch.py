"""OffsetForLeaderEpoch: where an epoch ended."""

import pytest
from broker_harness import all_versions, batch, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

UNKNOWN = (-1, -1)


def ask(client, topic, epoch, *, partition=0, version=4, current=-1):
    wanted = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
    topics = [{"topic": topic, "partitions": [wanted]}]
    answer = client.ask(Api.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", all_versions(Api.OFFSET_FOR_LEADER_EPOCH))
def test_every_version(client, topic, version):
    client.produce(topic, batch(3))
    answer = ask(client, topic, 0, version=version)
    assert (answer.error_code, answer.partition) == (0, 0)
    assert (answer.leader_epoch, answer.end_offset) == (0, 3)


def test_an_epoch_that_has_not_come(client, topic):
    client.produce(topic)
    answer = ask(client, topic, 5)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *UNKNOWN)


def test_each_epoch_ends_where_the_next_begins(shared_broker, client, topic):
    partition = shared_broker.core.partitions.get(topic, 0)
    for epoch in (0, 3, 4):
        partition.leader_epoch = epoch
        client.produce(topic, batch(2))
    ends = {epoch: ask(client, topic, epoch) for epoch in (0, 1, 2, 3, 4)}
    assert {epoch: (answer.leader_epoch, answer.end_offset) for epoch, answer in ends.items()} == {
        0: (0, 2),
        1: (0, 2),
        2: (0, 2),
        3: (3, 4),
        4: (4, 6),
    }


def test_an_empty_partition_ends_where_it_begins(client, topic):
    answer = ask(client, topic, 0)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 0)


def test_unknown_topic_and_partition(client, topic):
    assert ask(client, unique(), 0).error_code == ErrorCode.unknown_topic_or_partition
    answer = ask(client, topic, 0, partition=4)
    assert answer.error_code == ErrorCode.unknown_topic_or_partition
    assert (answer.leader_epoch, answer.end_offset) == UNKNOWN


def test_who_knows_another_epoch_is_told(client, topic):
    assert ask(client, topic, 0, current=0).error_code == 0
    assert ask(client, topic, 0, current=9).error_code == ErrorCode.unknown_leader_epoch
