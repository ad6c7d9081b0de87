"""AddOffsetsToTxn: the group's partition of __consumer_offsets becomes part of the transaction."""

import pytest
from broker_harness import all_versions, unique
from transaction_harness import TxnProducer, patiently

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_records import partition_for


@pytest.fixture
def producer(client):
    made = TxnProducer(client)
    assert made.start().error_code == 0
    return made


@pytest.mark.parametrize("version", all_versions(Api.ADD_OFFSETS_TO_TXN))
def test_every_version(client, producer, version):
    group = unique("group")
    patiently(lambda: client.ask(Api.FIND_COORDINATOR, 3, key=group, key_type=0))
    assert producer.offsets_of(group, version=version).error_code == 0
    described = producer.described()
    assert described.transaction_state == "Ongoing"
    (topic,) = described.topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", (partition_for(group, 50),))
    assert producer.end().error_code == 0
    assert producer.described().transaction_state == "CompleteCommit"


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)])
def test_another_epoch(producer, version, code):
    producer.epoch += 1
    assert producer.offsets_of("g", version=version).error_code == code


def test_unknown_ids(client, producer):
    stranger = TxnProducer(client, producer.name)
    stranger.becomes(producer.id + 1_000_000, 0)
    assert stranger.offsets_of("g").error_code == ErrorCode.invalid_producer_id_mapping
    stranger.name = ""
    assert stranger.offsets_of("g").error_code == ErrorCode.invalid_request
