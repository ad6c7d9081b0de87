"""A topic's settings: what is in force, where it comes from, how it is changed."""

from dataclasses import fields, replace

import pytest
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsSynonym

from headrace.broker.configs.alter import Operation, alter_resource, replace_resource
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.describe import DescribeOptions, describe_resource
from headrace.broker.configs.registry import TOPIC_KEYS
from headrace.broker.configs.resources import TOPIC
from headrace.broker.configs.topic import effective_topic_config, topic_log_config, validate_topic
from headrace.log.config import LogConfig
from headrace.protocol.errors import InvalidConfig, InvalidRequest

DEFAULT = BrokerConfig.load({})


def test_defaults_are_those_of_the_log() -> None:
    assert topic_log_config({}, DEFAULT) == LogConfig()
    assert effective_topic_config({}, DEFAULT) == {name: key.default for name, key in TOPIC_KEYS.items()}


def test_overrides_go_before_the_broker() -> None:
    broker = BrokerConfig.load(
        {"log.segment.bytes": "5000", "log.retention.bytes": "7", "producer.id.expiration.ms": "9"}
    )
    overrides = {"segment.bytes": "1000", "cleanup.policy": "compact,delete", "headrace.walk.records": "true"}
    assert topic_log_config(overrides, broker) == replace(
        LogConfig(),
        segment_bytes=1000,
        retention_bytes=7,
        cleanup_policy=frozenset({"compact", "delete"}),
        walk_records=True,
        producer_id_expiration_ms=9,
    )


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_counts(properties: dict[str, str], retention_ms: int) -> None:
    assert topic_log_config({}, BrokerConfig.load(properties)).retention_ms == retention_ms


def test_describe_shows_the_chain_of_sources() -> None:
    broker = BrokerConfig.load({"log.retention.minutes": "3", "log.retention.hours": "2"})
    broker.apply_dynamic({"log.retention.ms": "1000"}, {"log.retention.ms": "2000"})
    (entry,) = describe_resource(
        TOPIC,
        {"retention.ms": " 500 "},
        broker,
        DescribeOptions(names=["retention.ms"], include_synonyms=True, include_documentation=True),
    )
    assert entry == {
        "name": "retention.ms",
        "value": "500",
        "read_only": False,
        "config_source": 1,
        "is_sensitive": False,
        "synonyms": [
            {"name": "retention.ms", "value": "500", "source": 1},
            {"name": "log.retention.ms", "value": "1000", "source": 2},
            {"name": "log.retention.ms", "value": "2000", "source": 3},
            {"name": "log.retention.minutes", "value": "3", "source": 4},
            {"name": "log.retention.hours", "value": "2", "source": 4},
            {"name": "log.retention.hours", "value": "168", "source": 5},
        ],
        "config_type": 5,
        "documentation": TOPIC_KEYS["retention.ms"].doc,
    }


@pytest.mark.parametrize(
    ("static", "broker", "default", "source", "value"),
    [
        ({}, {}, {}, 5, "604800000"),
        # Kafka says so: the value comes from a coarser unit, and log.retention.ms itself is not set.
        ({"log.retention.hours": "1"}, {}, {}, 5, "3600000"),
        ({"log.retention.ms": "7"}, {}, {}, 4, "7"),
        ({"log.retention.hours": "1"}, {}, {"log.retention.ms": "5"}, 3, "5"),
        ({"log.retention.hours": "1"}, {"log.retention.ms": "6"}, {"log.retention.ms": "5"}, 2, "6"),
    ],
)
def test_the_source_is_where_the_value_comes_from(
    static: dict[str, str], broker: dict[str, str], default: dict[str, str], source: int, value: str
) -> None:
    config = BrokerConfig.load(static)
    config.apply_dynamic(broker, default)
    (entry,) = describe_resource(TOPIC, {}, config, DescribeOptions(names=["retention.ms"]))
    assert (entry["config_source"], entry["value"], entry["synonyms"]) == (source, value, [])


@pytest.mark.parametrize(
    ("name", "synonyms"),
    [
        ("segment.ms", []),
        ("segment.jitter.ms", []),
        ("flush.ms", []),
        ("retention.ms", [("retention.ms", "1000", 1)]),
        ("local.retention.ms", [("log.local.retention.ms", "-2", 5)]),
        ("cleanup.policy", [("log.cleanup.policy", "compact", 4), ("log.cleanup.policy", "delete", 5)]),
    ],
)
def test_synonyms_of_a_topics_settings_are_those_that_apache_kafka_4_3_gives(
    name: str, synonyms: list[tuple[str, str, int]]
) -> None:
    config = BrokerConfig.load(
        {
            "log.roll.hours": "7",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "60000",
            "log.retention.minutes": "2",
            "log.cleanup.policy": "compact",
        }
    )
    (entry,) = describe_resource(
        TOPIC, {"retention.ms": "1000"}, config, DescribeOptions(names=[name], include_synonyms=True)
    )
    found = [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]]  # type: ignore[attr-defined]
    assert (found, entry["config_source"]) == (synonyms, synonyms[0][2] if synonyms else 5)


def test_describe_all_and_some() -> None:
    assert [entry["name"] for entry in describe_resource(TOPIC, {}, DEFAULT)] == sorted(TOPIC_KEYS)
    assert describe_resource(TOPIC, {}, DEFAULT, DescribeOptions(names=[])) == []
    assert [
        entry["name"]
        for entry in describe_resource(TOPIC, {}, DEFAULT, DescribeOptions(names=["flush.ms", "no.such", "flush.ms"]))
    ] == ["flush.ms"]


def test_describe_entries_fit_the_protocol() -> None:
    (entry,) = describe_resource(TOPIC, {}, DEFAULT, DescribeOptions(names=["segment.bytes"], include_synonyms=True))
    assert set(entry) == {field.name for field in fields(DescribeConfigsResourceResult)}
    (synonym, *_) = entry["synonyms"]  # type: ignore[misc]
    assert set(synonym) == {field.name for field in fields(DescribeConfigsSynonym)}


def test_incremental_changes() -> None:
    stored = {"retention.ms": "5", "segment.bytes": "1000"}
    changed = alter_resource(
        TOPIC,
        stored,
        [
            ("retention.ms", Operation.DELETE, None),
            ("segment.bytes", Operation.SET, "2000"),
            ("cleanup.policy", Operation.APPEND, "compact,delete"),
            ("flush.ms", Operation.DELETE, None),
        ],
        DEFAULT,
    )
    assert changed == {"segment.bytes": "2000", "cleanup.policy": "delete,compact"}
    assert stored == {"retention.ms": "5", "segment.bytes": "1000"}
    subtracted = alter_resource(TOPIC, changed, [("cleanup.policy", Operation.SUBTRACT, "delete")], DEFAULT)
    assert subtracted["cleanup.policy"] == "compact"


def test_replacing_all() -> None:
    assert replace_resource(TOPIC, [("retention.ms", "5")], DEFAULT) == {"retention.ms": "5"}
    assert replace_resource(TOPIC, [], DEFAULT) == {}


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ([("nonsense", 0, "1")], InvalidConfig, "Unknown topic config name: nonsense"),
        ([("retention.ms", 0, "x")], InvalidConfig, "'x' for configuration retention.ms: must be a whole number"),
        ([("retention.ms", 0, "-2")], InvalidConfig, "at least -1"),
        ([("segment.bytes", 0, "13")], InvalidConfig, "at least 14"),
        ([("cleanup.policy", 0, "shred")], InvalidConfig, "a list of compact, delete"),
        ([("cleanup.policy", 2, "shred")], InvalidConfig, "a list of compact, delete"),
        ([("remote.storage.enable", 0, "true")], InvalidConfig, "not supported"),
        ([("retention.ms", 2, "1")], InvalidConfig, "not LIST"),
        ([("nonsense", 3, "1")], InvalidConfig, "not LIST"),
        ([("retention.ms", 0, None)], InvalidRequest, "Null value"),
        ([("cleanup.policy", 2, None)], InvalidRequest, "Null value"),
        ([("retention.ms", 9, "1")], InvalidRequest, "Unknown operation 9"),
        ([("retention.ms", 0, "1"), ("retention.ms", 1, None)], InvalidRequest, "twice"),
        (
            [("min.compaction.lag.ms", 0, "10"), ("max.compaction.lag.ms", 0, "5")],
            InvalidConfig,
            r"min.compaction.lag.ms \(10\) is greater than max.compaction.lag.ms \(5\)",
        ),
    ],
)
def test_changes_that_are_refused(changes: list[tuple[str, int, str | None]], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        alter_resource(TOPIC, {}, changes, DEFAULT)


def test_rules_count_the_brokers_values_too() -> None:
    broker = BrokerConfig.load({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match="greater than"):
        alter_resource(TOPIC, {}, [("min.compaction.lag.ms", 0, "6")], broker)


def test_a_new_topics_settings_are_checked_all_at_once() -> None:
    with pytest.raises(InvalidConfig) as error:
        validate_topic({"a": "1", "retention.ms": None, "flush.ms": "x", "segment.ms": "5"}, DEFAULT)
    assert len(str(error.value).splitlines()) == 3
    validate_topic({"segment.ms": "5"}, DEFAULT)
