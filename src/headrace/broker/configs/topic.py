"""Computes the effective settings of a topic: the topic's own value, or else the broker's, or else the default.

Some topic settings have several broker settings as default (``retention.ms`` in milliseconds, minutes and hours). The
first of these that has a value counts, converted to the topic's unit. A negative value means "no limit" in every unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.keys import ConfigKey, Synonym, Value
from headrace.broker.configs.registry import TOPIC_KEYS
from headrace.broker.configs.rules import topic_problems
from headrace.log.config import LogConfig
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig


def effective_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Returns every topic setting with its typed value.

    :raises ConfigError: if an override is not valid.
    """
    return {
        name: key.parse(overrides[name]) if name in overrides else fallback(key, broker)
        for name, key in TOPIC_KEYS.items()
    }


def validate_topic(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """
    :raises InvalidConfig: if a topic may not have these settings, with one line per problem.
    """
    problems = []
    given: dict[str, str] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            problems.append(f"Unknown topic config name: {name}")
        elif text is None:
            problems.append(f"Null value not supported for topic config {name}")
        else:
            try:
                key.parse(text)
                given[name] = text
            except ConfigError as error:
                problems += error.problems
    problems += topic_problems(effective_topic_config(given, broker))
    if problems:
        raise InvalidConfig("\n".join(problems))


def topic_log_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """Returns the settings that a log needs. An invalid override raises; they were checked when they were stored."""
    values = effective_topic_config(overrides, broker)

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int)
        return value

    policies, dirty_ratio = values["cleanup.policy"], values["min.cleanable.dirty.ratio"]
    assert isinstance(policies, tuple)
    assert isinstance(dirty_ratio, float)
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        cleanup_policy=frozenset(policies),
        min_cleanable_dirty_ratio=dirty_ratio,
        delete_retention_ms=number("delete.retention.ms"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        preallocate=bool(values["preallocate"]),
        message_timestamp_type=str(values["message.timestamp.type"]),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        max_message_bytes=number("max.message.bytes"),
        compression_type=str(values["compression.type"]),
        compression_gzip_level=number("compression.gzip.level"),
        compression_lz4_level=number("compression.lz4.level"),
        compression_zstd_level=number("compression.zstd.level"),
        walk_records=bool(values["headrace.walk.records"]),
        producer_id_expiration_ms=broker.int("producer.id.expiration.ms"),
    )


def fallback(key: ConfigKey, broker: BrokerConfig) -> Value:
    """Returns the value of a setting that a topic does not set."""
    for synonym in key.synonyms:
        value = broker[synonym.name]
        if value is not None:
            return _converted(synonym, value)
    return key.default


def _converted(synonym: Synonym, value: Value) -> Value:
    if synonym.unit == 1:
        return value
    assert isinstance(value, int)
    return -1 if value < 0 else value * synonym.unit
