import pytest
from broker_harness import NOW_MS, batch, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def describe(client, topic, partition=0):
    topics = [{"name": topic, "partition_indexes": [partition]}]
    return client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=topics).topics[0].partitions[0]


def test_the_producers_that_a_partition_remembers(client, topic):
    client.produce(topic)
    client.produce(topic, batch(3, producer_id=70_000, producer_epoch=2, base_sequence=0))
    answer = describe(client, topic)
    assert (answer.error_code, answer.partition_index) == (0, 0)
    (producer,) = answer.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (70_000, 2, 2)
    assert producer.last_timestamp == NOW_MS
    assert producer.current_txn_start_offset == -1


def test_nobody(client, topic):
    answer = describe(client, topic)
    assert (answer.error_code, answer.active_producers) == (0, ())


@pytest.mark.parametrize("partition", [0, 4])
def test_unknown_topic_and_partition(client, partition):
    name = unique() if partition == 0 else client.create_topic()
    answer = describe(client, name, partition)
    assert (answer.error_code, answer.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
