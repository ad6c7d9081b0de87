"""WriteTxnMarkers: from coordinators on other brokers, and from a user who ends a hanging transaction."""

import pytest
from broker_harness import all_versions, unique
from transaction_harness import TxnProducer, committed

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def producer(client, topic):
    """One whose transaction is open."""
    made = TxnProducer(client)
    made.start()
    made.add((topic, 0))
    assert made.write(topic).error_code == 0
    return made


def mark(producer, *partitions, version=1, commit=True, epoch=None, coordinator_epoch=0):
    marker = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch if epoch is None else epoch,
        "transaction_result": commit,
        "coordinator_epoch": coordinator_epoch,
        "topics": [{"name": topic, "partition_indexes": [index]} for topic, index in partitions],
    }
    (answer,) = producer.client.ask(Api.WRITE_TXN_MARKERS, version, markers=[marker]).markers
    assert answer.producer_id == producer.id
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", all_versions(Api.WRITE_TXN_MARKERS))
@pytest.mark.parametrize("commit", [True, False])
def test_every_version(client, topic, producer, version, commit):
    assert mark(producer, (topic, 0), version=version, commit=commit) == [0]
    assert committed(client, topic) == ([b"v"] if commit else [])
    assert client.offset(topic, -1).offset == 2


def test_a_marker_raises_the_epoch(topic, producer):
    assert mark(producer, (topic, 0), epoch=producer.epoch + 1) == [0]
    assert producer.write(topic).error_code == ErrorCode.invalid_producer_epoch
    assert mark(producer, (topic, 0)) == [ErrorCode.invalid_producer_epoch]


def test_an_older_coordinator(topic, producer):
    assert mark(producer, (topic, 0), coordinator_epoch=5) == [0]
    assert mark(producer, (topic, 0), coordinator_epoch=4) == [ErrorCode.transaction_coordinator_fenced]


def test_partitions_that_are_not_here(topic, producer):
    unknown = ErrorCode.unknown_topic_or_partition
    assert mark(producer, (topic, 9), (unique(), 0)) == [unknown, unknown]
