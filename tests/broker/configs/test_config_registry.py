"""The tables: Kafka's facts, every row documented, the docs page up to date."""

import csv
from pathlib import Path

import pytest

from headrace.broker.configs.keys import ConfigKey, ConfigType, Importance, Update, to_text
from headrace.broker.configs.registry import (
    BROKER_KEYS,
    SUBJECTS,
    TOPIC_KEYS,
    WITHOUT_MEANING,
    broker_key,
    broker_synonyms,
    without_meaning,
)
from headrace.properties import ConfigError
from headrace.tools.docs.configs import render

ROOT = Path(__file__).parents[3]
ALL_KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]


def key(type_: ConfigType, default: None = None) -> ConfigKey:
    return ConfigKey("x", type_, default, None, Importance.LOW, Update.READ_ONLY, "")


def test_defaults_are_kafkas() -> None:
    """Printed by Apache Kafka 4.3.0's own definitions; the last eleven of the broker's are facts of Kafka 3."""
    with (Path(__file__).parent / "kafka_config_facts.csv").open(encoding="utf-8") as file:
        for kind, name, type_, default in csv.reader(file):
            found = (TOPIC_KEYS if kind == "topic" else BROKER_KEYS)[name]
            text = to_text(found.default)
            assert (found.type.name, "null" if text is None else text) == (type_, default), name


def test_no_name_is_there_twice() -> None:
    assert sum(map(len, SUBJECTS.values())) == len(BROKER_KEYS)


@pytest.mark.parametrize("known", ALL_KEYS, ids=lambda known: known.name)
def test_each_row_holds_together(known: ConfigKey) -> None:
    assert known.doc[0].isupper() or known.doc.startswith(("https", "min."))
    assert known.doc.endswith(".")
    assert without_meaning(known.name) is None or known.name in TOPIC_KEYS or known.name in BROKER_KEYS
    for synonym in known.synonyms:
        assert synonym.name in BROKER_KEYS
    text = to_text(known.default)
    if text is not None:
        assert known.parse(text) == known.default


def test_the_topic_defaults_are_the_brokers() -> None:
    for known in TOPIC_KEYS.values():
        for synonym in known.synonyms:
            value = BROKER_KEYS[synonym.name].default
            if value is not None:
                assert known.default == (value if synonym.unit == 1 else int(str(value)) * synonym.unit), known.name


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (ConfigType.BOOLEAN, {"true": True, " FALSE ": False}, ["", "yes", "1"]),
        (ConfigType.SHORT, {"32767": 32767, "-32768": -32768}, ["32768", "", "x", "1.0"]),
        (ConfigType.INT, {" +5 ": 5, "-2147483648": -(2**31)}, ["2147483648", "1_000", "0x1", "٣", "9" * 5000]),
        (ConfigType.LONG, {"9223372036854775807": 2**63 - 1}, ["9223372036854775808", "1L", ""]),
        (ConfigType.DOUBLE, {"0.5": 0.5, "1e-5": 1e-5, ".5": 0.5, "2": 2.0}, ["", "x", "nan", "inf", "1,5"]),
        (ConfigType.LIST, {"": (), "a": ("a",), " a , b ": ("a", "b")}, []),
        (ConfigType.STRING, {" a b ": "a b", "": ""}, []),
        (ConfigType.CLASS, {"a.B": "a.B"}, []),
        (ConfigType.PASSWORD, {"secret": "secret"}, []),
    ],
)
def test_types(type_: ConfigType, good: dict[str, object], bad: list[str]) -> None:
    assert {text: key(type_).parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(ConfigError, match=r"Invalid value .* for configuration x: must be "):
            key(type_).parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (5, "5"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (1048576.0, "1048576.0"),
        (123456789.0, "1.23456789E8"),
        (1e7, "1.0E7"),
        (1e-5, "1.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_are_printed_as_java_does(value: object, text: str | None) -> None:
    assert to_text(value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "bad", "allowed"),
    [
        ("num.partitions", "0", "must be at least 1"),
        ("log.cleaner.min.cleanable.ratio", "2", "must be between 0 and 1"),
        ("compression.gzip.level", "0", "must be between 1 and 9, or -1"),
        ("compression.type", "ZSTD", "must be one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("log.cleanup.policy", "delete,delete", "each item once"),
        ("log.cleanup.policy", "shred", "must be a list of compact, delete"),
        ("log.dirs", "", "not empty"),
        ("log.dirs", "a,,b", "none blank"),
        ("log.segment.bytes", "13", "must be at least 14"),
        ("headrace.metrics.listener", "9090", "must be HOST:PORT, or empty"),
        ("headrace.metrics.listener", "a:99999", "must be HOST:PORT, or empty"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_what_is_allowed(name: str, bad: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as error:
        BROKER_KEYS[name].parse(bad)
    assert str(error.value).startswith(f"Invalid value {bad!r} for configuration {name}: ")
    assert allowed in str(error.value)


def test_values_with_a_check_that_are_good() -> None:
    assert BROKER_KEYS["compression.gzip.level"].parse("-1") == -1
    assert BROKER_KEYS["log.cleanup.policy"].parse("") == ()
    assert BROKER_KEYS["group.consumer.migration.policy"].parse("Upgrade") == "Upgrade"
    assert BROKER_KEYS["headrace.metrics.listener"].parse("[::1]:9090") == "[::1]:9090"


@pytest.mark.parametrize(
    ("text", "is_good"), [("*", True), ("0:1,1:2", True), ("", True), ("0:1,*", False), ("x", False)]
)
def test_throttled_replicas(text: str, is_good: bool) -> None:
    known = TOPIC_KEYS["leader.replication.throttled.replicas"]
    if is_good:
        known.parse(text)
    else:
        with pytest.raises(ConfigError, match="partition:broker"):
            known.parse(text)


def test_listener_prefixes_find_their_row() -> None:
    assert broker_key("listener.name.internal.ssl.keystore.location") is BROKER_KEYS["ssl.keystore.location"]
    assert broker_key("listener.name.a.scram-sha-256.sasl.jaas.config") is BROKER_KEYS["sasl.jaas.config"]
    assert broker_key("listener.name.a.nonsense") is None
    assert broker_synonyms("listener.name.a.ssl.protocol") == ("listener.name.a.ssl.protocol", "ssl.protocol")
    assert broker_synonyms("log.retention.hours") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )


def test_names_without_meaning_are_none_of_ours() -> None:
    shadowed = [name for name in BROKER_KEYS if name in WITHOUT_MEANING]
    assert not shadowed


def test_the_docs_page_is_what_the_registry_makes() -> None:
    page = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8")
    assert page == render(), "run script/generate-docs"
