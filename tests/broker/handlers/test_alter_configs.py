"""AlterConfigs: the settings of the request replace all settings of the resource."""

import pytest
from broker_harness import BROKER, TOPIC, Client, all_versions, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

FROM_TOPIC, FROM_DEFAULT = 1, 5


def alter(client, kind, name, *, version=2, validate_only=False, twice=False, **values):
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}] * (2 if twice else 1)
    answer = client.ask(Api.ALTER_CONFIGS, version, resources=resources, validate_only=validate_only)
    return answer.responses[0]


def source(client, topic, key):
    return client.configs(TOPIC, topic, key)[key].config_source


@pytest.mark.parametrize("version", all_versions(Api.ALTER_CONFIGS))
def test_every_version(client, version, ours):
    topic = client.create_topic(retention_ms=1, segment_ms=2)
    answer = alter(client, TOPIC, topic, version=version, segment_ms="3")
    assert (answer.error_code, answer.resource_type, answer.resource_name) == (0, TOPIC, topic)
    assert source(client, topic, "retention.ms") == FROM_DEFAULT
    assert client.configs(TOPIC, topic, "segment.ms")["segment.ms"].value == "3"


def test_nothing_given_resets_everything(client, ours):
    topic = client.create_topic(retention_ms=1)
    assert alter(client, TOPIC, topic).error_code == 0
    assert source(client, topic, "retention.ms") == FROM_DEFAULT


def test_only_a_check(client):
    topic = client.create_topic(retention_ms=1)
    assert alter(client, TOPIC, topic, validate_only=True).error_code == 0
    assert alter(client, TOPIC, topic, validate_only=True, retention_ms="x").error_code == ErrorCode.invalid_config
    assert source(client, topic, "retention.ms") == FROM_TOPIC


@pytest.mark.parametrize("values", [{"retention_ms": "x"}, {"no_such_setting": "1"}])
def test_bad_settings(client, topic, values):
    assert alter(client, TOPIC, topic, **values).error_code == ErrorCode.invalid_config


def test_a_null_value(client, topic):
    assert alter(client, TOPIC, topic, retention_ms=None).error_code == ErrorCode.invalid_request


def test_a_topic_that_is_not_there(client):
    assert alter(client, TOPIC, unique(), retention_ms="1").error_code == ErrorCode.unknown_topic_or_partition


def test_a_resource_that_is_named_twice(client, topic, ours):
    assert alter(client, TOPIC, topic, twice=True).error_code == ErrorCode.invalid_request


def test_a_broker_and_the_default_of_all(ours):
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        assert alter(client, BROKER, "", background_threads="11").error_code == 0
        assert alter(client, BROKER, "0", num_io_threads="9").error_code == 0
        assert client.configs(BROKER, "0", "num.io.threads")["num.io.threads"].value == "9"
        assert alter(client, BROKER, "0").error_code == 0
        assert client.configs(BROKER, "0", "num.io.threads")["num.io.threads"].value == "8"
        assert alter(client, BROKER, "3").error_code == ErrorCode.invalid_request
