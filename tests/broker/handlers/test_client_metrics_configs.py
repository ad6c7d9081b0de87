"""Config resources of type CLIENT_METRICS: Kafka's checks, error codes and sources of values."""

import pytest
from broker_harness import OTHER_KAFKA, Client, unique
from telemetry_harness import APPEND, CLIENT_METRICS, DELETE, SET, remove_subscriptions

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

FROM_DEFAULT, FROM_SUBSCRIPTION = 5, 7
INT, LIST = 3, 7
DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}


@pytest.fixture(autouse=True)
def no_subscriptions(address):
    remove_subscriptions(address)
    yield
    remove_subscriptions(address)


def described(client, name, **expected):
    """The settings of a subscription. Apache Kafka's brokers learn of a change a moment later."""
    configs = client.configs(CLIENT_METRICS, name)
    while OTHER_KAFKA and {key: config.value for key, config in configs.items()} != {**DEFAULTS, **expected}:
        configs = client.configs(CLIENT_METRICS, name)
    return configs


def replaced(client, name, **configs):
    resource = {
        "resource_type": CLIENT_METRICS,
        "resource_name": name,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    (response,) = client.ask(Api.ALTER_CONFIGS, 2, resources=[resource], validate_only=False).responses
    return response.error_code


def test_a_subscription_that_does_not_exist_has_the_defaults(client):
    configs = described(client, unique())
    assert {name: config.value for name, config in configs.items()} == DEFAULTS
    assert {config.config_source for config in configs.values()} == {FROM_DEFAULT}
    assert {config.synonyms for config in configs.values()} == {()}
    assert {name: config.config_type for name, config in configs.items()} == {
        "interval.ms": INT,
        "match": LIST,
        "metrics": LIST,
    }
    assert not any(config.read_only or config.is_sensitive for config in configs.values())


def test_settings_are_set_and_deleted_one_by_one(client):
    name = unique()
    assert client.alter(CLIENT_METRICS, name, ("metrics", SET, "a,b"), ("interval.ms", SET, "100")).error_code == 0
    configs = described(client, name, metrics="a,b", **{"interval.ms": "100"})
    assert (configs["metrics"].value, configs["metrics"].config_source) == ("a,b", FROM_SUBSCRIPTION)
    (synonym,) = configs["metrics"].synonyms
    assert (synonym.name, synonym.value, synonym.source) == ("metrics", "a,b", FROM_SUBSCRIPTION)
    assert client.alter(CLIENT_METRICS, name, ("metrics", DELETE, None)).error_code == 0
    configs = described(client, name, **{"interval.ms": "100"})
    assert {key: config.config_source for key, config in configs.items()} == {
        "interval.ms": FROM_SUBSCRIPTION,
        "match": FROM_DEFAULT,
        "metrics": FROM_DEFAULT,
    }


def test_all_settings_are_replaced(client):
    name = unique()
    assert replaced(client, name, metrics="z", interval_ms="500") == ErrorCode.none
    assert replaced(client, name, metrics="y") == ErrorCode.none
    configs = described(client, name, metrics="y")
    assert (configs["metrics"].value, configs["interval.ms"].value) == ("y", "300000")


def test_only_a_check(client):
    name = unique()
    assert client.alter(CLIENT_METRICS, name, ("metrics", SET, "*"), validate_only=True).error_code == 0
    assert described(client, name)["metrics"].value == ""


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.invalid_request),
        ("interval.ms", "3600001", ErrorCode.invalid_request),
        ("interval.ms", "soon", ErrorCode.invalid_config),
        ("interval.ms", None, ErrorCode.invalid_request),
        ("no.such.setting", "1", ErrorCode.invalid_request),
        ("metrics", "a,,b", ErrorCode.invalid_config),
        ("metrics", "a,a", ErrorCode.none),
        ("metrics", "", ErrorCode.none),
        ("match", "client_id=a.*,client_software_name=b", ErrorCode.none),
        ("match", "client_id=a,client_id=b", ErrorCode.none),
        ("match", "", ErrorCode.none),
        ("match", "colour=red", ErrorCode.invalid_config),
        ("match", "client_id", ErrorCode.invalid_config),
        ("match", "client_id=", ErrorCode.invalid_config),
        ("match", "client_id=a=b", ErrorCode.invalid_config),
        ("match", "client_id=[", ErrorCode.invalid_config),
    ],
)
def test_kafkas_checks(client, setting, value, code):
    name = unique()
    assert client.alter(CLIENT_METRICS, name, (setting, SET, value)).error_code == code
    if code != ErrorCode.none:
        assert {config.value for config in described(client, name).values()} == set(DEFAULTS.values())


def test_a_subscription_needs_a_name(client):
    assert client.alter(CLIENT_METRICS, "", ("metrics", SET, "*")).error_code == ErrorCode.invalid_request
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "", "configuration_keys": None}
    (result,) = client.ask(Api.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False).results
    assert result.error_code == ErrorCode.invalid_request


def test_a_list_can_be_appended_to(client, ours):
    """Apache Kafka 4.3 describes the setting as a list, and refuses to append to it."""
    name = unique()
    client.alter(CLIENT_METRICS, name, ("metrics", SET, "a"))
    assert client.alter(CLIENT_METRICS, name, ("metrics", APPEND, "b")).error_code == 0
    assert described(client, name)["metrics"].value == "a,b"


def test_subscriptions_survive_a_restart(tmp_path, ours):
    name = "a/b ü"
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert client.alter(CLIENT_METRICS, name, ("metrics", SET, "*")).error_code == 0
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert client.configs(CLIENT_METRICS, name)["metrics"].value == "*"
        assert client.ask(Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=None).requested_metrics == ("*",)
