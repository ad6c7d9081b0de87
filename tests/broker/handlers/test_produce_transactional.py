"""Produce within a transaction: what may be written, and that a late write never lands in the next transaction."""

from time import monotonic

import pytest
from broker_harness import OTHER_KAFKA, Client, all_versions, batch, fetch_request
from transaction_harness import TxnProducer, committed

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

ALL = all_versions(Api.PRODUCE)
MUST_ADD = [version for version in ALL if version < 12]
ADDS_ITSELF = [version for version in ALL if version >= 12]


@pytest.fixture
def producer(client):
    made = TxnProducer(client)
    assert made.start().error_code == 0
    return made


@pytest.mark.parametrize("version", MUST_ADD)
def test_what_was_added_may_be_written(client, topic, producer, version):
    refused = ErrorCode.transaction_abortable if version == 11 else ErrorCode.invalid_txn_state
    assert producer.write(topic, version=version).error_code == refused
    producer.add((topic, 0))
    assert producer.write(topic, b"1", version=version).error_code == 0
    assert producer.write(topic, b"2", version=version).error_code == 0
    producer.end()
    producer.described()
    assert committed(client, topic) == [b"1", b"2"]
    assert producer.write(topic, b"3", version=version).error_code == refused


@pytest.mark.parametrize("version", ADDS_ITSELF)
def test_a_write_adds_its_partition(client, topic, producer, version):
    topic_id = client.id_of(topic)
    assert producer.write(topic, b"1", version=version, topic_id=topic_id).error_code == 0
    assert producer.described().transaction_state == "Ongoing"
    assert producer.write(topic, b"2", version=version, topic_id=topic_id).error_code == 0
    assert committed(client, topic) == []
    producer.end(version=5)
    producer.described()
    assert committed(client, topic) == [b"1", b"2"]


def test_a_late_write_does_not_land_in_the_next_transaction(client, topic, producer):
    producer.write(topic, b"1", version=12)
    producer.write(topic, b"2", version=12)
    late = TxnProducer(client, producer.name)
    late.becomes(producer.id, producer.epoch)
    late.sequences = dict(producer.sequences)
    producer.end(commit=False, version=5)
    producer.described()
    assert late.write(topic, b"late", version=12).error_code == ErrorCode.invalid_producer_epoch
    assert producer.write(topic, b"3", version=12).error_code == 0
    assert late.write(topic, b"late", version=12).error_code == ErrorCode.invalid_producer_epoch
    producer.end(version=5)
    producer.described()
    assert committed(client, topic) == [b"3"]


def test_a_transactional_batch_without_an_id(topic, producer):
    producer.add((topic, 0))
    answer = producer.write(topic, transactional_id=None)
    assert answer.error_code == ErrorCode.transactional_id_authorization_failed


def test_a_batch_outside_of_the_open_transaction(client, topic, producer):
    producer.add((topic, 0))
    producer.write(topic)
    records = batch(producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=1)
    assert client.produce(topic, records).error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize("version", [9, 12])
def test_ids_that_the_coordinator_does_not_know(client, topic, producer, version):
    stranger = TxnProducer(client)
    stranger.becomes(producer.id, 0)
    assert stranger.write(topic, version=version).error_code == ErrorCode.invalid_producer_id_mapping


def test_a_partition_that_is_not_there_begins_nothing(topic, producer):
    assert producer.write(topic, partition=5, version=12).error_code == ErrorCode.unknown_topic_or_partition
    assert producer.state == "Empty"


@pytest.mark.parametrize("commit", [True, False])
def test_a_reader_of_what_is_committed_waits_for_the_end(client, topic, address, producer, commit):
    producer.add((topic, 0))
    producer.write(topic)
    with Client(address, timeout_s=20) as reader:
        began = monotonic()
        reader.send(Api.FETCH, 12, **fetch_request((topic, 0, 0), max_wait=15_000, isolation_level=1))
        producer.write(topic)
        producer.end(commit=commit)
        (partition,) = reader.receive().responses[0].partitions
        assert monotonic() - began < 10
    assert partition.last_stable_offset == partition.high_watermark == 3
    assert [each.first_offset for each in partition.aborted_transactions] == ([] if commit else [0])


def test_without_verification(tmp_path):
    if OTHER_KAFKA:
        pytest.skip("needs a broker with another setting")
    config = {"transaction.partition.verification.enable": "false"}
    with Broker(data=tmp_path, config=config) as broker, Client(broker.bootstrap_servers) as client:
        producer = TxnProducer(client)
        producer.start()
        assert producer.write(client.create_topic()).error_code == 0
