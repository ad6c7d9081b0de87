"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from contextlib import ExitStack

import pytest
from broker_harness import all_versions, unique
from group_member_harness import find_coordinator

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

GROUP, TRANSACTION = 0, 1


@pytest.mark.parametrize("version", all_versions(Api.FIND_COORDINATOR))
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_every_version(client, address, version, key_type):
    key = unique("group")
    while True:  # Apache Kafka needs a moment to make the topic
        answer = find_coordinator(client, key, version=version, key_type=key_type if version else GROUP)
        answer = answer[key] if version >= 4 else answer
        if answer.error_code != ErrorCode.coordinator_not_available:
            break
    assert answer.error_code == 0
    assert f"{answer.host}:{answer.port}" == address


def test_many_keys_at_once(client):
    answers = find_coordinator(client, "a", "b", "c")
    assert list(answers) == ["a", "b", "c"]
    assert {answer.error_code for answer in answers.values()} == {0}


def test_no_keys(client):
    assert find_coordinator(client) == {}


@pytest.mark.parametrize("key_type", [3, -1])
def test_other_types_of_keys(client, key_type):
    answer = find_coordinator(client, "k", version=3, key_type=key_type)
    assert answer.error_code == ErrorCode.invalid_request
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


def test_there_are_no_share_groups(client, ours):
    answer = find_coordinator(client, "k", version=6, key_type=2)["k"]
    assert answer.error_code == ErrorCode.invalid_request


def test_all_who_ask_while_the_topic_is_made_are_answered(ours):
    with Broker() as broker, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(10)]
        for client in clients:
            client.send(Api.FIND_COORDINATOR, 3, key="g", key_type=GROUP)
        assert {client.receive().error_code for client in clients} == {0}


def test_the_topic_is_made_as_kafka_makes_it(client):
    find_coordinator(client, "k")
    (topic,) = client.metadata(["__consumer_offsets"]).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50
    configs = client.configs(2, "__consumer_offsets")
    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == "104857600"
