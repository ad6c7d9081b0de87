"""Transactions in a whole broker: its clock, its restarts, its jobs."""

import pytest
from broker_harness import NOW_MS, Client, await_on_loop, on_loop
from transaction_harness import TxnProducer, committed

from headrace import Broker
from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode, StorageError
from headrace.testing import ManualClock, pass_time

EXPIRATION_MS = 604_800_000


@pytest.fixture
def clock():
    return ManualClock(NOW_MS)


@pytest.fixture
def broker(tmp_path, clock):
    config = {"transaction.state.log.num.partitions": 3}
    with Broker(data=tmp_path, clock=clock, config=config) as made:
        yield made


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as made:
        yield made


def test_the_topic_is_made_when_a_producer_first_starts(broker, client):
    assert not broker.core.internal_topics.exists(TRANSACTIONS)
    fields = {"transactional_id": "x", "transaction_timeout": 1000}
    assert client.ask(Api.INIT_PRODUCER_ID, 4, **fields).error_code == 0
    topic = broker.core.metadata.named(TRANSACTIONS)
    assert len(topic.partitions) == 3
    assert topic.is_internal


@pytest.mark.parametrize("version", [9, 12])
def test_a_transaction_times_out(broker, client, clock, version):
    topic = client.create_topic()
    producer = TxnProducer(client, timeout_ms=5000)
    producer.start()
    producer.add((topic, 0))
    assert producer.write(topic, version=version).error_code == 0
    pass_time(broker, clock, 4999)
    assert producer.state == "Ongoing"
    pass_time(broker, clock, 1)
    assert producer.state == "CompleteAbort"
    assert producer.write(topic, version=version).error_code == ErrorCode.invalid_producer_epoch
    assert committed(client, topic) == []
    assert client.offset(topic, -1).offset == 2


def test_an_id_expires(broker, client, clock):
    producer = TxnProducer(client)
    producer.start()
    pass_time(broker, clock, EXPIRATION_MS - 1)
    assert producer.state == "Empty"
    pass_time(broker, clock, 3_600_000)
    (answer,) = client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[producer.name]).transaction_states
    assert answer.error_code == ErrorCode.transactional_id_not_found
    assert producer.end().error_code == ErrorCode.invalid_producer_id_mapping


def test_an_open_transaction_goes_on_after_a_restart(tmp_path):
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        producer = TxnProducer(client)
        producer.start()
        producer.write(topic, b"1", version=12)
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        producer.client = client
        assert producer.end(version=5).error_code == 0
        assert committed(client, topic) == [b"1"]
        producer.write(topic, b"2", version=12)
        assert producer.end(version=5).error_code == 0
        assert committed(client, topic) == [b"1", b"2"]


def test_what_was_decided_is_done_after_a_restart(tmp_path):
    """The broker stops between the Prepare record and the markers."""
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        producer = TxnProducer(client)
        producer.start()
        producer.write(topic, b"1", version=12)
        markers = broker.core.coordinators.transactions.markers
        on_loop(broker, setattr, markers, "send", lambda *_: None)
        before = producer.epoch
        answer = client.ask(
            Api.END_TXN, 5, transactional_id=producer.name, producer_id=producer.id, producer_epoch=before,
            committed=True,
        )  # fmt: skip
        assert (answer.error_code, answer.producer_epoch) == (0, before + 1)
        assert producer.state == "PrepareCommit"
        assert committed(client, topic) == []
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        producer.client = client
        assert producer.end(version=5).producer_epoch == before + 1  # said again, as a client does
        assert producer.state == "CompleteCommit"
        assert committed(client, topic) == [b"1"]


def test_while_a_partition_loads_its_ids_are_told_to_wait(broker, client):
    producer = TxnProducer(client)
    producer.start()
    coordinator = broker.core.coordinators.transactions.coordinator
    journals = [
        broker.core.internal_topics.journal(partition)
        for index in range(3)
        if (partition := broker.core.partitions.get(TRANSACTIONS, index)).log.next_offset
    ]

    def begin_to_load():
        coordinator.unload(journals[0].index)
        loading = coordinator.load(journals[0])
        next(loading)
        return loading

    loading = on_loop(broker, begin_to_load)
    asked = {"transactional_id": producer.name, "producer_id": producer.id, "producer_epoch": producer.epoch}
    assert client.ask(Api.END_TXN, 3, committed=True, **asked).error_code == ErrorCode.coordinator_load_in_progress
    filters = {"state_filters": (), "producer_id_filters": ()}
    assert client.ask(Api.LIST_TRANSACTIONS, 0, **filters).error_code == ErrorCode.coordinator_load_in_progress
    on_loop(broker, list, loading)
    assert producer.end().error_code == ErrorCode.invalid_txn_state


def test_a_topic_that_goes_takes_its_ids_along(broker, client):
    producer = TxnProducer(client)
    producer.start()
    await_on_loop(broker, broker.core.role.topics.delete(TRANSACTIONS))
    asked = {"transactional_id": producer.name, "producer_id": producer.id, "producer_epoch": producer.epoch}
    assert client.ask(Api.END_TXN, 3, committed=True, **asked).error_code == ErrorCode.not_coordinator
    assert TxnProducer(client, producer.name).start().producer_epoch == 0


def test_a_coordinator_that_cannot_write_is_not_the_coordinator(broker, client):
    """Clients look for another one then, and come back until the disk works."""
    topic = client.create_topic()
    producer = TxnProducer(client)
    producer.start()
    journal = broker.core.coordinators.transactions.coordinator.shard_for(producer.name)._journal

    def fail(records):
        raise StorageError("full")

    asked = {"transactional_id": producer.name, "producer_id": producer.id, "producer_epoch": producer.epoch}
    on_loop(broker, setattr, journal, "write", fail)
    group = client.ask(Api.ADD_OFFSETS_TO_TXN, 3, group_id="g", **asked)
    assert group.error_code == ErrorCode.not_coordinator
    assert client.ask(Api.END_TXN, 5, committed=False, **asked).error_code == ErrorCode.not_coordinator
    fields = {"transactional_id": producer.name, "transaction_timeout": 1000}
    assert client.ask(Api.INIT_PRODUCER_ID, 4, **fields).error_code == ErrorCode.not_coordinator
    assert producer.write(topic, version=12).error_code == ErrorCode.not_enough_replicas
    on_loop(broker, delattr, journal, "write")
    assert producer.write(topic, version=12).error_code == 0
    assert producer.end(version=5).error_code == 0
    assert committed(client, topic) == [b"v"]
