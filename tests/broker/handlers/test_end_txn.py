"""EndTxn: commit and abort, in both versions of transactions."""

import pytest
from broker_harness import all_versions
from transaction_harness import TxnProducer, committed

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def producer(client):
    made = TxnProducer(client)
    assert made.start().error_code == 0
    return made


@pytest.mark.parametrize("version", all_versions(Api.END_TXN))
@pytest.mark.parametrize("commit", [True, False])
def test_every_version(client, topic, producer, version, commit):
    before = (producer.id, producer.epoch)
    assert producer.add((topic, 0)) == [0]
    assert producer.write(topic).error_code == 0
    assert committed(client, topic) == []
    assert producer.end(commit=commit, version=version).error_code == 0
    described = producer.described()
    assert described.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert committed(client, topic) == ([b"v"] if commit else [])
    assert (producer.id, producer.epoch - before[1]) == (before[0], 1 if version >= 5 else 0)
    assert described.producer_epoch == producer.epoch


@pytest.mark.parametrize("version", [3, 5])
def test_transactions_in_a_row(client, topic, producer, version):
    for number in range(6):
        if version < 5:
            producer.add((topic, 0))
        assert producer.write(topic, b"%d" % number, version=12 if version >= 5 else 9).error_code == 0
        assert producer.end(commit=number % 2 == 0, version=version).error_code == 0
    producer.described()
    assert committed(client, topic) == [b"0", b"2", b"4"]


def test_two_partitions_end_together(client, producer):
    topic = client.create_topic(partitions=2)
    producer.add((topic, 0), (topic, 1))
    for partition in (0, 1):
        producer.write(topic, b"%d" % partition, partition=partition)
    assert [committed(client, topic, partition=partition) for partition in (0, 1)] == [[], []]
    producer.end()
    producer.described()
    assert [committed(client, topic, partition=partition) for partition in (0, 1)] == [[b"0"], [b"1"]]


def test_nothing_to_end(producer):
    assert producer.end(commit=True).error_code == ErrorCode.invalid_txn_state
    assert producer.end(commit=False).error_code == ErrorCode.invalid_txn_state


def test_said_twice_and_said_otherwise(topic, producer):
    producer.add((topic, 0))
    assert producer.end(commit=True).error_code == 0
    producer.described()
    assert producer.end(commit=True).error_code == 0
    assert producer.end(commit=False).error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize("commit", [True, False])
def test_version_5_said_twice_gives_the_same_epoch(topic, producer, commit):
    producer.write(topic, version=12)
    before = producer.epoch
    assert producer.end(commit=commit, version=5).producer_epoch == before + 1
    producer.described()
    producer.epoch = before
    again = producer.end(commit=commit, version=5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer.id, before + 1)
    producer.epoch = before
    assert producer.end(commit=not commit, version=5).error_code == ErrorCode.invalid_txn_state


def test_version_5_aborts_what_may_not_have_begun(producer):
    before = producer.epoch
    answer = producer.end(commit=False, version=5)
    assert (answer.error_code, answer.producer_epoch) == (0, before + 1)
    assert producer.described().transaction_state == "CompleteAbort"
    assert producer.end(commit=False, version=5).producer_epoch == before + 2
    assert producer.described().transaction_state == "CompleteAbort"
    assert producer.end(commit=True, version=5).error_code == ErrorCode.invalid_txn_state


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced), (5, ErrorCode.producer_fenced)],
)
def test_another_epoch(topic, producer, version, code):
    producer.add((topic, 0))
    producer.epoch += 1
    assert producer.end(version=version).error_code == code


def test_an_end_that_comes_after_the_next_transaction_began(client, topic, producer):
    """The same request, delayed, may not end a transaction that it was not meant for."""
    producer.write(topic, b"1", version=12)
    before = producer.epoch
    producer.end(version=5)
    assert producer.write(topic, b"2", version=12).error_code == 0
    now, producer.epoch = producer.epoch, before
    assert producer.end(version=5).error_code == ErrorCode.producer_fenced
    producer.epoch = now
    assert committed(client, topic) == [b"1"]


def test_unknown_and_empty_ids(client, producer):
    stranger = TxnProducer(client, producer.name)
    stranger.becomes(producer.id + 1_000_000, 0)
    assert stranger.end().error_code == ErrorCode.invalid_producer_id_mapping
    stranger = TxnProducer(client)
    stranger.becomes(1, 0)
    assert stranger.end().error_code == ErrorCode.invalid_producer_id_mapping
    stranger.name = ""
    assert stranger.end().error_code == ErrorCode.invalid_request
