"""IncrementalAlterConfigs: single settings of topics and brokers, in effect at once."""

import pytest
from broker_harness import BROKER, TOPIC, Client, all_versions, batch, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_FILE, FROM_DEFAULT = range(1, 6)
FROM_GROUP = 8
GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def value(client, kind, name, key):
    config = client.configs(kind, name, key)[key]
    return config.value, config.config_source


@pytest.mark.parametrize("version", all_versions(Api.INCREMENTAL_ALTER_CONFIGS))
def test_every_version(client, topic, version, ours):
    answer = client.alter(TOPIC, topic, ("retention.ms", SET, "9000"), version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.resource_type, answer.resource_name) == (TOPIC, topic)
    assert value(client, TOPIC, topic, "retention.ms") == ("9000", FROM_TOPIC)


def test_set_delete_append_subtract(client, topic, ours):
    def policy():
        return value(client, TOPIC, topic, "cleanup.policy")

    client.alter(TOPIC, topic, ("cleanup.policy", APPEND, "compact"))
    assert policy() == ("delete,compact", FROM_TOPIC)
    client.alter(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"))
    assert policy() == ("compact", FROM_TOPIC)
    client.alter(TOPIC, topic, ("cleanup.policy", DELETE, None))
    assert policy() == ("delete", FROM_DEFAULT)


def test_other_settings_stay(client, ours):
    topic = client.create_topic(retention_ms=1)
    client.alter(TOPIC, topic, ("segment.ms", SET, "2"))
    assert value(client, TOPIC, topic, "retention.ms") == ("1", FROM_TOPIC)


@pytest.mark.parametrize(
    "change",
    [
        ("retention.ms", SET, "soon"),
        ("no.such.setting", SET, "1"),
        ("retention.ms", APPEND, "1"),
        ("cleanup.policy", SET, "shred"),
    ],
    ids=lambda change: change[0],
)
def test_bad_topic_settings(client, topic, change):
    answer = client.alter(TOPIC, topic, change)
    assert answer.error_code == ErrorCode.invalid_config
    assert answer.error_message


@pytest.mark.parametrize("changes", [[("retention.ms", SET, None)], [("retention.ms", SET, "1")] * 2])
def test_bad_requests(client, topic, changes):
    assert client.alter(TOPIC, topic, *changes).error_code == ErrorCode.invalid_request


def test_one_bad_change_spoils_the_resource(client, topic):
    client.alter(TOPIC, topic, ("retention.ms", SET, "5"), ("segment.ms", SET, "x"))
    assert value(client, TOPIC, topic, "retention.ms")[1] == FROM_DEFAULT


def test_only_a_check(client, topic):
    assert client.alter(TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True).error_code == 0
    bad = client.alter(TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True)
    assert bad.error_code == ErrorCode.invalid_config
    assert value(client, TOPIC, topic, "retention.ms")[1] == FROM_DEFAULT


def test_a_topic_that_is_not_there(client):
    answer = client.alter(TOPIC, unique(), ("retention.ms", SET, "5"))
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize(
    ("name", "code"), [("a b", ErrorCode.invalid_topic_exception), ("", ErrorCode.invalid_request)]
)
def test_bad_topic_names(client, name, code):
    assert client.alter(TOPIC, name, ("retention.ms", SET, "5")).error_code == code


@pytest.mark.parametrize("name", ["17", "me"])
def test_another_broker(client, name, ours):
    assert client.alter(BROKER, name, ("num.io.threads", SET, "9")).error_code == ErrorCode.invalid_request


def test_a_resource_that_is_named_twice(client, topic):
    change = [{"name": "retention.ms", "config_operation": SET, "value": "1"}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": change}
    answer = client.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource, resource], validate_only=False)
    assert {response.error_code for response in answer.responses} == {ErrorCode.invalid_request}


def test_a_topic_change_holds_at_once(client, topic, ours):
    assert client.produce(topic, batch(value=b"v" * 3000)).error_code == 0
    client.alter(TOPIC, topic, ("max.message.bytes", SET, "1000"))
    assert client.produce(topic, batch(value=b"v" * 3000)).error_code == ErrorCode.message_too_large


# -- brokers: one of our own each, since its settings change


@pytest.fixture
def own(tmp_path, ours):
    with Broker(data=tmp_path, config={"log.retention.ms": 7000}) as broker, Client(broker.bootstrap_servers) as client:
        client.broker = broker
        yield client


def test_layers_of_a_brokers_setting(own):
    def threads():
        return value(own, BROKER, "0", "background.threads")

    assert threads() == ("10", FROM_DEFAULT)
    assert own.alter(BROKER, "", ("background.threads", SET, "11")).error_code == 0
    assert threads() == ("11", FROM_ALL_BROKERS)
    assert own.alter(BROKER, "0", ("background.threads", SET, "12")).error_code == 0
    assert threads() == ("12", FROM_THIS_BROKER)
    assert own.alter(BROKER, "0", ("background.threads", DELETE, None)).error_code == 0
    assert threads() == ("11", FROM_ALL_BROKERS)
    assert [*own.configs(BROKER, "")] == ["background.threads"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0", ("log.dirs", SET, "/elsewhere")),
        ("0", ("num.io.threads", SET, "100")),
        ("0", ("num.io.threads", SET, "x")),
        ("", ("listeners", SET, "PLAINTEXT://:1")),
    ],
)
def test_bad_broker_settings(own, name, change):
    assert own.alter(BROKER, name, change).error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(("threads", "code"), [("6", 0), ("7", 42), ("1", 0), ("0", 42)])
def test_a_pool_at_most_doubles_or_halves_rounded_down(own, threads, code):
    assert value(own, BROKER, "0", "num.network.threads")[0] == "3"
    assert own.alter(BROKER, "0", ("num.network.threads", SET, threads)).error_code == code


def test_a_brokers_default_reaches_its_topics_at_once(own):
    topic = own.create_topic()
    assert value(own, TOPIC, topic, "retention.ms") == ("7000", FROM_FILE)
    own.alter(BROKER, "", ("message.max.bytes", SET, "1000"), ("log.retention.ms", SET, "8000"))
    assert value(own, TOPIC, topic, "retention.ms") == ("8000", FROM_ALL_BROKERS)
    assert own.produce(topic, batch(value=b"v" * 3000)).error_code == ErrorCode.message_too_large


def test_a_topics_own_setting_beats_the_brokers(own):
    topic = own.create_topic(max_message_bytes=5000)
    own.alter(BROKER, "0", ("message.max.bytes", SET, "1000"))
    assert own.produce(topic, batch(value=b"v" * 3000)).error_code == 0


def test_settings_survive_a_restart(own, tmp_path):
    topic = own.create_topic()
    own.alter(TOPIC, topic, ("retention.ms", SET, "1"))
    own.alter(BROKER, "", ("background.threads", SET, "11"))
    own.alter(BROKER, "0", ("num.io.threads", SET, "9"))
    own.broker.stop()
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert value(client, TOPIC, topic, "retention.ms") == ("1", FROM_TOPIC)
        assert value(client, BROKER, "0", "background.threads") == ("11", FROM_ALL_BROKERS)
        assert value(client, BROKER, "0", "num.io.threads") == ("9", FROM_THIS_BROKER)


# -- groups


def test_a_group_has_settings_of_its_own(client, ours):
    group = f"{unique()}/./ä"
    assert value(client, GROUP, group, SESSION) == ("45000", FROM_DEFAULT)
    assert client.alter(GROUP, group, (SESSION, SET, "50000")).error_code == 0
    assert value(client, GROUP, group, SESSION) == ("50000", FROM_GROUP)
    assert value(client, GROUP, group, HEARTBEAT) == ("5000", FROM_DEFAULT)
    listed = client.ask(Api.LIST_CONFIG_RESOURCES, 1, resource_types=(GROUP,)).config_resources
    assert group in {one.resource_name for one in listed}
    assert client.alter(GROUP, group, (SESSION, DELETE, None)).error_code == 0
    assert value(client, GROUP, group, SESSION) == ("45000", FROM_DEFAULT)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (SESSION, "44999", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "4999", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "soon", "must be"),
        ("session.timeout.ms", "50000", "Unknown group config name: session.timeout.ms"),
    ],
)
def test_settings_that_a_group_may_not_have(client, ours, name, text, message):
    group = unique()
    answer = client.alter(GROUP, group, (name, SET, text))
    assert answer.error_code == ErrorCode.invalid_config
    assert message in answer.error_message
    assert value(client, GROUP, group, SESSION) == ("45000", FROM_DEFAULT)


def test_all_groups_at_once(client):
    assert client.alter(GROUP, "", (SESSION, SET, "50000")).error_code == ErrorCode.invalid_request


def test_settings_of_groups_survive_a_restart(tmp_path):
    for is_new in (True, False):
        with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
            if is_new:
                client.alter(GROUP, "g", (HEARTBEAT, SET, "7000"))
            assert value(client, GROUP, "g", HEARTBEAT) == ("7000", FROM_GROUP)
