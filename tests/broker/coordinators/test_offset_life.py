"""Committed offsets over a broker's life: restarts, deleted topics, retention."""

import pytest
from broker_harness import Client
from offset_commit_harness import Group
from transaction_harness import TxnProducer

from headrace import Broker
from headrace.protocol.api import Api
from headrace.testing import ManualClock, pass_time
from headrace.testing.broker_process import BrokerProcess

CHECK_MS, RETENTION_MS = 600_000, 7 * 24 * 3_600_000


def commit_all(client):
    """Plain commits, pending ones, and those of transactions that ended either way."""
    topic = client.create_topic("t", partitions=4)
    group = Group(client, "g")
    assert set(group.commit(topic, {0: 1, 1: 2, 2: 3, 3: 4}, metadata="m").values()) == {0}
    assert group.commit(topic, {0: 10}) == 0
    for name, partition, commits in [("committed", 1, True), ("aborted", 2, False), ("open", 3, None)]:
        producer = TxnProducer(client, name)
        producer.start()
        assert group.commit_within(producer, topic, {partition: 99}) == {partition: 0}
        if commits is not None:
            assert producer.end(commit=commits, version=5).error_code == 0
    return topic


EXPECTED = {("t", 0): (10, "", 0), ("t", 1): (99, "", 0), ("t", 2): (3, "m", 0), ("t", 3): (4, "m", 0)}


def test_a_restart_finds_what_was_committed(tmp_path):
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        commit_all(client)
        assert Group(client, "g").fetched(None) == EXPECTED
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        group = Group(client, "g")
        assert group.fetched(None) == EXPECTED
        assert group.at("t", 3, require_stable=True) == 88


def test_a_killed_broker_too(tmp_path):
    with BrokerProcess(tmp_path) as broker, Client(broker.address) as client:
        commit_all(client)
        broker.kill()
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        group = Group(client, "g")
        assert group.fetched(None) == EXPECTED
        assert group.at("t", 3, require_stable=True) == 88


def test_a_deleted_topics_offsets_are_gone_for_good(tmp_path):
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        group = Group(client, "g")
        for name in ("kept", "gone"):
            client.create_topic(name)
            group.commit(name, 5)
        topics = [{"name": "gone", "topic_id": None}]
        client.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=1000)
        assert group.fetched(None) == {("kept", 0): (5, "", 0)}
        client.create_topic("gone")
        assert group.at("gone") == -1
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert Group(client, "g").fetched(None) == {("kept", 0): (5, "", 0)}


def test_offsets_expire():
    clock = ManualClock()
    with Broker(clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        group = Group(client)
        assert group.commit(topic, 5) == 0
        pass_time(broker, clock, RETENTION_MS - 1)
        assert group.at(topic) == 5
        pass_time(broker, clock, CHECK_MS)
        assert group.at(topic) == -1
        groups = client.ask(Api.LIST_GROUPS, 4, states_filter=()).groups
        assert groups == ()


@pytest.mark.parametrize("version", [2, 4])
def test_an_old_clients_retention(version):
    clock = ManualClock()
    with Broker(clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        group = Group(client)
        assert group.commit(topic, 5, version, retention_ms=1000) == 0
        pass_time(broker, clock, CHECK_MS)
        assert group.at(topic) == -1
