"""AddPartitionsToTxn: from clients one transaction at a time, from brokers many."""

import pytest
from broker_harness import all_versions, unique
from transaction_harness import TxnProducer

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

CLIENTS = [version for version in all_versions(Api.ADD_PARTITIONS_TO_TXN) if version < 4]
BROKERS = [version for version in all_versions(Api.ADD_PARTITIONS_TO_TXN) if version >= 4]


@pytest.fixture
def producer(client):
    made = TxnProducer(client)
    assert made.start().error_code == 0
    return made


def ask(client, version, *transactions):
    """Each transaction is (producer, partitions, verify_only); the codes of each by partition."""
    asked = [
        {
            "transactional_id": producer.name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": [index]} for topic, index in partitions],
        }
        for producer, partitions, verify_only in transactions
    ]
    answer = client.ask(Api.ADD_PARTITIONS_TO_TXN, version, transactions=asked)
    assert answer.error_code == 0
    return {
        each.transactional_id: {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for each in answer.results_by_transaction
    }


@pytest.mark.parametrize("version", CLIENTS)
def test_every_version_of_clients(client, topic, producer, version):
    other = client.create_topic(partitions=2)
    assert producer.add((topic, 0), version=version) == [0]
    assert producer.add((other, 1), (topic, 0), version=version) == [0, 0]
    described = producer.described()
    assert described.transaction_state == "Ongoing"
    assert {each.topic: each.partitions for each in described.topics} == {topic: (0,), other: (1,)}


@pytest.mark.parametrize("version", BROKERS)
def test_every_version_of_brokers(client, topic, producer, version):
    second = TxnProducer(client)
    second.start()
    added = ask(client, version, (producer, [(topic, 0)], False), (second, [(topic, 0)], False))
    assert added == {producer.name: {(topic, 0): 0}, second.name: {(topic, 0): 0}}
    assert producer.described().transaction_state == second.described().transaction_state == "Ongoing"


@pytest.mark.parametrize("version", BROKERS)
def test_asking_without_adding(client, topic, producer, version):
    other = client.create_topic()
    nothing = ask(client, version, (producer, [(topic, 0)], True))
    assert nothing == {producer.name: {(topic, 0): ErrorCode.transaction_abortable}}
    assert producer.state == "Empty"
    producer.add((topic, 0))
    answer = ask(client, version, (producer, [(topic, 0), (other, 0)], True))
    assert answer == {producer.name: {(topic, 0): 0, (other, 0): ErrorCode.transaction_abortable}}


@pytest.mark.parametrize("version", CLIENTS)
def test_one_that_is_not_there_keeps_the_others_out(client, topic, producer, version):
    codes = producer.add((topic, 0), (topic, 7), (unique(), 0), version=version)
    assert sorted(codes) == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.operation_not_attempted,
    ]
    assert producer.state == "Empty"


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)])
def test_another_epoch(topic, producer, version, code):
    producer.epoch += 1
    assert producer.add((topic, 0), version=version) == [code]


def test_unknown_ids(client, topic, producer):
    stranger = TxnProducer(client, producer.name)
    stranger.becomes(producer.id + 1_000_000, 0)
    assert stranger.add((topic, 0)) == [ErrorCode.invalid_producer_id_mapping]
    stranger = TxnProducer(client)
    stranger.becomes(1, 0)
    assert stranger.add((topic, 0)) == [ErrorCode.invalid_producer_id_mapping]
    stranger.name = ""
    assert stranger.add((topic, 0)) == [ErrorCode.invalid_request]
