"""ListConfigResources: the names of topics, brokers and subscriptions of client metrics."""

import pytest
from broker_harness import OTHER_KAFKA, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def named(client, *types):
    answer = client.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=types)
    assert answer.error_code == ErrorCode.none
    return {(one.resource_type, one.resource_name) for one in answer.config_resources}


def test_the_first_version_asks_for_client_metrics(client):
    name = unique("subscription")
    client.alter(CLIENT_METRICS, name, ("interval.ms", 0, "1000"))
    assert (CLIENT_METRICS, name) in eventually(client, lambda found: (CLIENT_METRICS, name) in found, CLIENT_METRICS)
    answer = client.ask(Api.LIST_CONFIG_RESOURCES, 0)
    assert name in {one.resource_name for one in answer.config_resources}
    client.alter(CLIENT_METRICS, name, ("interval.ms", 1, None))
    assert eventually(client, lambda found: (CLIENT_METRICS, name) not in found) is not None


def eventually(client, holds, *types):
    """Apache Kafka's brokers learn of a changed setting a moment later; ours when the answer comes."""
    found = named(client, *types)
    while OTHER_KAFKA and not holds(found):
        found = named(client, *types)
    assert holds(found)
    return found


def test_the_types_that_are_asked_for(client):
    topic = client.create_topic(unique())
    assert (TOPIC, topic) in named(client, TOPIC)
    assert {kind for kind, _ in named(client, TOPIC)} == {TOPIC}
    others = named(client, BROKER, GROUP)
    assert {one for one in others if one[0] != GROUP} == {(BROKER, "0")}  # other tests give groups settings


def test_no_type_means_all(client):
    topic = client.create_topic(unique())
    assert {(TOPIC, topic), (BROKER, "0"), (LOGGER, "0")} <= named(client)


@pytest.mark.parametrize("unknown", [0, 3, 127])
def test_a_type_that_does_not_exist(client, unknown):
    answer = client.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=(TOPIC, unknown))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())
