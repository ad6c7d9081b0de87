"""headrace configs: settings of topics and brokers, in Kafka's words."""

import logging

import pytest

from headrace.client.admin.types import ConfigChange, ConfigEntry, ConfigSynonym
from headrace.tools.configs.entities import (
    TYPES,
    Entity,
    changes,
    lines,
    names_to_be_there,
    own_entries,
    parse_added,
)
from headrace.tools.shared.commands import UsageError


@pytest.fixture(scope="module")
def topic(admin):
    admin.create_topic("set", num_partitions=1)
    return "set"


def test_a_setting_is_added_shown_and_taken_back(tool, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = tool("configs", "--alter", *entity, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    assert added == (0, "Completed updating config for topic set.\n", "")
    heading, policy, retention = tool("configs", "--describe", *entity).lines
    assert heading == "Dynamic configs for topic set are:"
    assert policy == (
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}"
    )
    assert retention.startswith("  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000")
    assert tool("configs", "--alter", "--topic", topic, "--delete-config", "retention.ms,cleanup.policy").code == 0
    assert tool("configs", "--describe", "--topic", topic).lines == [heading]


def test_all_shows_defaults_too(tool, topic):
    lines = tool("configs", "--describe", "--topic", topic, "--all").lines
    assert lines[0] == "All configs for topic set are:"
    assert "  preallocate=false sensitive=false synonyms={DEFAULT_CONFIG:log.preallocate=false}" in lines
    assert lines[1:] == sorted(lines[1:])


def test_brokers_and_their_defaults(tool):
    added = tool(
        "configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=77"
    )
    assert added.out == "Completed updating default config for brokers in the cluster.\n"
    tool("configs", "--alter", "--broker", 0, "--add-config", "log.cleaner.threads=2")
    assert tool("configs", "--describe", "--entity-type", "brokers").lines == [
        "Dynamic configs for broker 0 are:",
        "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        "DEFAULT_CONFIG:log.cleaner.threads=1}",
        "Default configs for brokers in the cluster are:",
        "  log.retention.ms=77 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=77}",
    ]
    tool("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    tool("configs", "--alter", "--broker", 0, "--delete-config", "log.cleaner.threads")
    assert len(tool("configs", "--describe", "--entity-type", "brokers").lines) == 2


def test_settings_of_a_file(tool, topic, tmp_path):
    path = tmp_path / "topic.properties"
    path.write_text("segment.bytes=2000000\n# no comment\n")
    assert tool("configs", "--alter", "--topic", topic, "--add-config-file", path).code == 0
    (told,) = tool("configs", "--describe", "--topic", topic, "--json").value
    assert (told["entityType"], told["entityName"]) == ("topics", topic)
    (setting,) = told["configs"]
    assert (setting["name"], setting["value"], setting["source"]) == (
        "segment.bytes", "2000000", "DYNAMIC_TOPIC_CONFIG",
    )  # fmt: skip
    changed = tool("configs", "--alter", "--topic", topic, "--delete-config", "segment.bytes", "--json").value
    assert changed == {"entityType": "topics", "entityName": topic, "changed": {"segment.bytes": None}}


def test_every_topic_without_a_name(tool, topic, admin):
    admin.create_topic("other", configs={"retention.ms": 1})
    lines = tool("configs", "--describe", "--entity-type", "topics").lines
    assert "Dynamic configs for topic set are:" in lines
    assert "Dynamic configs for topic other are:" in lines


def test_log_levels(tool):
    entity = ("--entity-type", "broker-loggers", "--entity-name", 0)
    added = tool("configs", "--alter", *entity, "--add-config", "headrace.log=ERROR,headrace.broker=DEBUG")
    assert added == (0, "Completed updating config for broker-logger 0.\n", "")
    heading, *lines = tool("configs", "--describe", *entity).lines
    assert heading == "Dynamic configs for broker-logger 0 are:"
    assert {
        "  headrace.log=ERROR sensitive=false synonyms={}",
        "  headrace.broker.network=DEBUG sensitive=false synonyms={}",
    } <= set(lines)
    assert logging.getLogger("headrace.log").level == logging.ERROR
    assert tool("configs", "--alter", "--broker-logger", 0, "--delete-config", "headrace.log,headrace.broker").code == 0
    assert logging.getLogger("headrace.log").level == logging.NOTSET
    assert tool("configs", "--describe", "--entity-type", "broker-loggers").lines[0] == heading


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("--add-config", "no.such.logger=INFO"), "Invalid broker logger(s): no.such.logger"),
        (("--delete-config", "no.such.logger"), "Invalid broker logger(s): no.such.logger"),
        (("--add-config", "headrace=LOUD"), "Cannot set the log level of headrace to LOUD"),
        (("--delete-config", "root"), "The log level of the root logger cannot be removed"),
    ],
)
def test_bad_log_levels(tool, change, error):
    done = tool("configs", "--alter", "--broker-logger", 0, *change)
    assert done.code == 1
    assert error in done.err


def test_what_a_broker_refuses_is_one_line(tool, topic):
    failed = tool("configs", "--alter", "--topic", topic, "--add-config", "nonsense=1")
    assert (failed.code, failed.out, failed.err.count("\n")) == (1, "", 1)
    assert "nonsense" in failed.err


@pytest.mark.parametrize("entity", [["--topic", "set"], ["--broker", "0"], ["--broker-defaults"]])
def test_deleting_a_setting_that_is_not_set_succeeds_with_a_warning(tool, topic, entity):
    """Kafka 4.3's tool succeeds, too, and says nothing."""
    result = tool("configs", "--alter", *entity, "--delete-config", "retention.ms,log.retention.ms")
    assert result.code == 0
    assert result.out.startswith("Completed updating ")
    expected = "warning: retention.ms, log.retention.ms cannot be deleted, because they are not set"
    assert result.err == f"headrace configs: {expected}\n"


def test_a_topic_that_is_not_there(tool):
    failed = tool("configs", "--describe", "--topic", "nowhere")
    assert failed.code == 1
    assert failed.err == "headrace configs: The topic 'nowhere' doesn't exist and doesn't have dynamic config.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--entity-type", "topics"],
        ["--describe"],
        ["--describe", "--entity-type", "planets"],
        ["--describe", "--topic", "a", "--zookeeper", "127.0.0.1:1"],
        ["--alter", "--entity-type", "users", "--add-config", "SCRAM-SHA-256=[password=x]"],
        ["--alter", "--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=4095,password=x]"],
        ["--alter", "--entity-type", "client-metrics", "--add-config", "interval.ms=700"],
        ["--describe", "--entity-type", "topics", "--entity-default"],
        ["--describe", "--entity-type", "topics", "--entity-name", ""],
        ["--describe", "--entity-type", "brokers", "--entity-name", "first"],
        ["--describe", "--topic", "a", "--broker", "0"],
        ["--describe", "--topic", "a", "--entity-type", "topics"],
        ["--describe", "--topic", "a", "--add-config", "b=c"],
        ["--alter", "--entity-type", "topics", "--add-config", "b=c"],
        ["--alter", "--topic", "a"],
        ["--alter", "--topic", "a", "--all", "--add-config", "b=c"],
        ["--alter", "--topic", "a", "--add-config", "b=c", "--add-config-file", "f"],
        ["--alter", "--topic", "a", "--add-config", "b"],
        ["--alter", "--topic", "a", "--add-config", "b=c", "--delete-config", "b"],
        ["--alter", "--topic", "a", "--add-config-file", "/nowhere"],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("configs", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


# -- without a broker


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=[x,y],c=3", {"a": "1", "b": "x,y", "c": "3"}),
        (" a = 1 , b = [x] ", {"a": "1", "b": "x"}),
        ("a=[]", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=[k=v,l=w]", {"a": "k=v,l=w"}),
    ],
)
def test_added_settings(text, settings):
    assert parse_added(text) == settings


@pytest.mark.parametrize("text", ["a", "=1", "a b=1", "a=1,b"])
def test_added_settings_that_make_no_sense(text):
    with pytest.raises(UsageError):
        parse_added(text)


def test_changes_are_sets_and_deletes():
    assert changes({"a": "1"}, "b, c") == [
        ConfigChange("a", "1"), ConfigChange("b", None, "delete"), ConfigChange("c", None, "delete"),
    ]  # fmt: skip


def test_loggers_are_there_before_they_are_changed():
    wanted = changes({"kept": "DEBUG"}, "dropped")
    assert names_to_be_there(Entity(TYPES["topics"], "t"), wanted) == ["dropped"]
    assert names_to_be_there(Entity(TYPES["broker-loggers"], "0"), wanted) == ["kept", "dropped"]


def test_secrets_are_not_shown_and_layers_are():
    secret = ConfigEntry("password", None, "DYNAMIC_BROKER_CONFIG", is_sensitive=True,
                         synonyms=(ConfigSynonym("password", None, "STATIC_BROKER_CONFIG"),))  # fmt: skip
    static = ConfigEntry("port", "1", "STATIC_BROKER_CONFIG")
    broker = Entity(TYPES["brokers"], "3")
    assert own_entries(broker, [static, secret], with_all=False) == [secret]
    assert own_entries(broker, [static, secret], with_all=True) == [secret, static]
    assert list(lines(broker, [secret], with_all=False)) == [
        "Dynamic configs for broker 3 are:",
        "  password=null sensitive=true synonyms={STATIC_BROKER_CONFIG:password=null}",
    ]
