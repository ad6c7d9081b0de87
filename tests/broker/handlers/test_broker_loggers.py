"""The levels of a broker's loggers: described and changed by the config resource BROKER_LOGGER (KIP-412)."""

import json
import logging
from importlib.util import find_spec

import pytest
from broker_harness import Client, all_versions

from headrace import Broker
from headrace.broker.configs.loggers import KAFKA_NAMES, kafka_level
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

BROKER_LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_LOGGER = 6
ID = "0"


@pytest.fixture
def broker():
    """A broker of its own: when it stops, it restores the levels."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as client:
        yield client


def levels(client, *names):
    return {name: entry.value for name, entry in client.configs(BROKER_LOGGER, ID, *names).items()}


def alter(client, *changes, name=ID, **fields):
    return client.alter(BROKER_LOGGER, name, *changes, **fields).error_code


def describe_code(client, name):
    resource = {"resource_type": BROKER_LOGGER, "resource_name": name, "configuration_keys": None}
    (result,) = client.ask(Api.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    return result.error_code


@pytest.mark.parametrize("version", all_versions(Api.INCREMENTAL_ALTER_CONFIGS))
def test_a_level_is_in_force_at_once(client, caplog, version):
    target = logging.getLogger("headrace.broker.network.connection")
    assert alter(client, ("headrace.broker.network", SET, "ERROR"), version=version) == 0
    assert not target.isEnabledFor(logging.WARNING)
    assert alter(client, ("headrace.broker.network", SET, "DEBUG"), version=version) == 0
    assert target.isEnabledFor(logging.DEBUG)
    assert levels(client, target.name) == {target.name: "DEBUG"}


def test_lines_appear_and_disappear_with_the_level(client, broker, caplog):
    """The broker logs at INFO that it closes the connection of a client that sends garbage."""

    def lines_after_garbage(api_key):
        caplog.clear()
        with Client(broker.bootstrap_servers) as other:
            other.send_bytes(b"\x00\x00\x00\x04" + api_key + b"\x7f\xff")
            assert other.is_closed_by_peer()
        return [record.message for record in caplog.records if "closing the connection" in record.message]

    assert alter(client, ("headrace", SET, "WARN")) == 0
    assert lines_after_garbage(b"\x7f\x01") == []
    assert alter(client, ("headrace", SET, "INFO")) == 0
    assert len(lines_after_garbage(b"\x7f\x02")) == 1


def test_what_is_shown(client):
    found = client.configs(BROKER_LOGGER, ID)
    assert {"root", "headrace", "headrace.broker", "kafka.authorizer.logger", "kafka.request.logger"} <= found.keys()
    assert KAFKA_NAMES.keys() <= found.keys()
    assert {"kafka.server", "kafka.server.ReplicaManager", "kafka.network", "kafka.log"} <= KAFKA_NAMES.keys()
    assert all(name == "root" or name in KAFKA_NAMES or name.startswith(("headrace", "kafka.")) for name in found)
    entry = found["headrace.broker"]
    assert (entry.config_source, entry.config_type) == (FROM_LOGGER, 0)
    assert (entry.read_only, entry.is_sensitive, entry.synonyms, entry.documentation) == (False, False, (), "")
    assert {entry.value for entry in found.values()} <= {"OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}


def test_only_the_loggers_that_were_asked_for(client):
    assert list(levels(client, "root", "no.such.logger")) == ["root"]


def test_a_logger_without_a_level_has_that_of_its_parent(client):
    assert alter(client, ("headrace", SET, "ERROR"), ("headrace.broker", SET, "DEBUG")) == 0
    assert levels(client, "headrace.log", "headrace.broker.network") == {
        "headrace.log": "ERROR",
        "headrace.broker.network": "DEBUG",
    }
    assert alter(client, ("headrace.broker", DELETE, None)) == 0
    assert levels(client, "headrace.broker.network") == {"headrace.broker.network": "ERROR"}
    assert alter(client, ("headrace", DELETE, ""), ("root", SET, "FATAL")) == 0
    assert levels(client, "headrace.broker", "root") == {"headrace.broker": "FATAL", "root": "FATAL"}


def test_kafkas_names_are_other_names_of_our_loggers(client):
    assert alter(client, ("org.apache.kafka", SET, "TRACE")) == 0
    assert levels(client, "headrace", "kafka") == {"headrace": "TRACE", "kafka": "TRACE"}
    assert logging.getLogger("headrace.anything").isEnabledFor(logging.DEBUG)
    assert alter(client, ("kafka.coordinator.group", SET, "ERROR"), ("kafka.server.KafkaApis", SET, "FATAL")) == 0
    assert levels(client, "headrace.groups", "kafka.server.KafkaApis", "kafka.log") == {
        "headrace.groups": "ERROR",
        "kafka.server.KafkaApis": "FATAL",
        "kafka.log": "TRACE",
    }


def test_kafkas_names_are_of_loggers_that_exist():
    for ours in KAFKA_NAMES.values():
        assert find_spec(ours), ours


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("headrace", SET, "LOUD"), ErrorCode.invalid_config),
        (("headrace", SET, "debug"), ErrorCode.invalid_config),
        (("headrace", SET, ""), ErrorCode.invalid_config),
        (("headrace", SET, "OFF"), ErrorCode.invalid_config),
        (("no.such.logger", SET, "INFO"), ErrorCode.invalid_config),
        (("no.such.logger", DELETE, None), ErrorCode.invalid_config),
        (("asyncio", SET, "INFO"), ErrorCode.invalid_config),
        (("", SET, "INFO"), ErrorCode.invalid_config),
        (("headrace", SET, None), ErrorCode.invalid_request),
        (("root", DELETE, None), ErrorCode.invalid_request),
        (("headrace", APPEND, "INFO"), ErrorCode.invalid_request),
        (("headrace", SUBTRACT, "INFO"), ErrorCode.invalid_request),
        (("headrace", 7, "INFO"), ErrorCode.invalid_request),
    ],
)
def test_a_bad_change_changes_nothing(client, change, code):
    before = levels(client)
    assert alter(client, ("headrace.log", SET, "FATAL"), change) == code
    assert levels(client) == before


def test_a_logger_twice(client):
    assert alter(client, ("headrace", SET, "INFO"), ("headrace", SET, "WARN")) == ErrorCode.invalid_request


def test_checking_changes_nothing(client):
    before = levels(client)
    assert alter(client, ("headrace", SET, "FATAL"), validate_only=True) == 0
    assert alter(client, ("headrace", SET, "LOUD"), validate_only=True) == ErrorCode.invalid_config
    assert levels(client) == before


@pytest.mark.parametrize("name", ["", "1", "me"])
def test_loggers_belong_to_one_broker(client, name):
    assert describe_code(client, name) == ErrorCode.invalid_request
    assert alter(client, ("headrace", SET, "INFO"), name=name) == ErrorCode.invalid_request


@pytest.mark.parametrize("version", all_versions(Api.ALTER_CONFIGS))
def test_alter_configs_cannot_change_loggers(client, version):
    before = levels(client)
    configs = [{"name": "headrace", "value": "FATAL"}]
    resource = {"resource_type": BROKER_LOGGER, "resource_name": ID, "configs": configs}
    (answer,) = client.ask(Api.ALTER_CONFIGS, version, resources=[resource], validate_only=False).responses
    assert answer.error_code == ErrorCode.invalid_request
    assert levels(client) == before


def test_levels_are_not_stored(tmp_path):
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        before = levels(client, "root", "headrace")
        assert alter(client, ("root", SET, "FATAL"), ("headrace", SET, "FATAL")) == 0
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert levels(client, "root", "headrace") == before


def test_the_log_of_requests(client, caplog):
    def lines():
        caplog.clear()
        client.metadata([])
        client.metadata([])  # the first answer was sent before its line was written
        return [record.message for record in caplog.records if record.name == "kafka.request.logger"]

    assert alter(client, ("root", SET, "DEBUG")) == 0
    assert lines() == [], "the level of the root logger is not the level of this logger"
    assert alter(client, ("kafka.request.logger", SET, "DEBUG")) == 0
    start, _, text = lines()[-1].partition(":")
    line = json.loads(text)
    assert start == "Completed request"
    assert line["requestHeader"]["requestApiKeyName"] == "METADATA"
    assert line["requestHeader"]["requestApiVersion"] == 12
    assert line["principal"] == "User:ANONYMOUS"
    assert line["totalTimeMs"] >= line["localTimeMs"] >= 0
    assert alter(client, ("kafka.request.logger", SET, "WARN")) == 0
    assert lines() == []


def test_levels_of_python_in_kafkas_words():
    assert [kafka_level(level) for level in (0, 5, 9, 10, 20, 25, 30, 40, 50, 51)] == [
        "TRACE", "TRACE", "TRACE", "DEBUG", "INFO", "INFO", "WARN", "ERROR", "FATAL", "OFF",
    ]  # fmt: skip
