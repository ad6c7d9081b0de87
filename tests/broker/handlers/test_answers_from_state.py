"""Answers that are made from the broker's state: in slices, however short the request is, and within a limit."""

import hashlib
import logging

import pytest
from broker_harness import Client, batch, unique
from offset_commit_harness import Group

from headrace import Broker
from headrace.broker.network import answer_memory, slices
from headrace.protocol.api import Api
from headrace.testing.raw_client import ClosedByPeer

COUNT = 5


@pytest.fixture(scope="module")
def address():
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def turns(monkeypatch):
    """Ends each slice after one element, and lists the turns of slices that were waited for."""
    taken, take = [], slices.Slices.turn

    def turn(self):
        taken.append(self)
        return take(self)

    monkeypatch.setattr(slices, "SLICE_MS", 0)
    monkeypatch.setattr(slices.Slices, "turn", turn)
    return taken


def committed_group(client):
    group = Group(client)
    for _ in range(COUNT):
        group.commit(client.create_topic(), {0: 1})
    return group.name


def offset_fetch(client):
    groups = [{"group_id": committed_group(client), "topics": None}]
    return lambda: client.ask(Api.OFFSET_FETCH, 8, groups=groups, require_stable=False).groups[0].topics


def list_groups(client):
    for _ in range(COUNT):
        Group(client).commit(client.create_topic(), {0: 1})
    return lambda: client.ask(Api.LIST_GROUPS, 4, states_filter=()).groups


def list_transactions(client):
    for _ in range(COUNT):
        client.ask(Api.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=["t"])
        client.ask(Api.INIT_PRODUCER_ID, 4, transactional_id=unique(), transaction_timeout=60_000)
    return lambda: client.ask(Api.LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=()).transaction_states


def list_config_resources(client):
    for _ in range(COUNT):
        client.create_topic()
    return lambda: client.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=()).config_resources


def describe_user_scram_credentials(client):
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    fields = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": salted}
    upsertions = [{"name": unique(), **fields} for _ in range(COUNT)]
    client.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=(), upsertions=upsertions)
    return lambda: client.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None).results


def describe_producers(client):
    topic = client.create_topic()
    for number in range(COUNT):
        client.produce(topic, batch(producer_id=70_000 + number, producer_epoch=0, base_sequence=0))
    asked = [{"name": topic, "partition_indexes": [0]}]
    return lambda: client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions[0].active_producers


def metadata(client):
    names = [client.create_topic() for _ in range(COUNT)]
    return lambda: client.metadata(names).topics


def describe_groups(client):
    ids = [committed_group(client)] * COUNT
    return lambda: client.ask(Api.DESCRIBE_GROUPS, 5, groups=ids, include_authorized_operations=False).groups


def consumer_group_describe(client):
    ids = [committed_group(client)] * COUNT
    return lambda: client.ask(Api.CONSUMER_GROUP_DESCRIBE, 0, group_ids=ids, include_authorized_operations=False).groups


def describe_transactions(client):
    return lambda: client.ask(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"] * COUNT).transaction_states


def describe_configs(client):
    broker = {"resource_type": 4, "resource_name": "0", "configuration_keys": ["num.io.threads"]}
    fields = {"include_synonyms": True, "include_documentation": True}
    return lambda: client.ask(Api.DESCRIBE_CONFIGS, 4, resources=[broker] * COUNT, **fields).results


@pytest.mark.parametrize(
    "prepare",
    [
        offset_fetch, list_groups, list_transactions, list_config_resources, describe_user_scram_credentials,
        describe_producers, metadata, describe_groups, consumer_group_describe, describe_transactions,
        describe_configs,
    ],
)  # fmt: skip
def test_a_list_from_state_is_made_in_slices(client, turns, prepare):
    ask = prepare(client)
    turns.clear()
    assert len(ask()) >= COUNT
    assert len(turns) >= COUNT


def test_an_answer_that_is_too_large_closes_the_connection(client, address, monkeypatch, caplog):
    topic = client.create_topic(partitions=100)
    monkeypatch.setattr(answer_memory, "MAX_ANSWER_BYTES", 100_000)
    assert len(client.metadata([topic]).topics) == 1
    configs = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
    with caplog.at_level(logging.INFO), Client(address) as greedy, pytest.raises((ClosedByPeer, ConnectionError)):
        greedy.ask(Api.DESCRIBE_CONFIGS, 4, resources=[configs] * 30, include_synonyms=True, include_documentation=True)
    (line,) = [record.getMessage() for record in caplog.records if "100000 bytes" in record.getMessage()]
    assert "DescribeConfigs" in line
    assert len(client.metadata([topic]).topics) == 1


def test_an_answer_of_a_group_that_is_too_large_is_no_error_code(client, address, monkeypatch):
    """The connection is closed, though the handler answers other errors of a group with their code."""
    group = Group(client)
    topic = client.create_topic(partitions=100)
    group.commit(topic, dict.fromkeys(range(100), 1), metadata="m" * 1_000)
    asked = [{"group_id": group.name, "topics": None}]
    assert client.ask(Api.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups[0].error_code == 0
    monkeypatch.setattr(answer_memory, "MAX_ANSWER_BYTES", 50_000)
    with Client(address) as greedy, pytest.raises((ClosedByPeer, ConnectionError)):
        greedy.ask(Api.OFFSET_FETCH, 8, groups=asked, require_stable=False)
