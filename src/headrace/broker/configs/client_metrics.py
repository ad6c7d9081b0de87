"""The settings of a subscription of client metrics (KIP-714): which metrics, how often, from which clients.

The error codes are Kafka's: an unknown name and an interval out of range are INVALID_REQUEST, all other wrong values
are INVALID_CONFIG.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.keys import CLUSTER_WIDE, INT, LIST, MEDIUM, Check, ConfigKey, Value
from headrace.patterns import Pattern
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidConfig, InvalidRegularExpression, InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULT_INTERVAL_MS = 300_000
_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000

#: What a ``match`` may name of a client.
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

#: As in Kafka, a repeated item does no harm.
_NO_BLANK_ITEMS = Check("a list without blank items", lambda value: isinstance(value, tuple) and "" not in value)

CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(METRICS, LIST, (), _NO_BLANK_ITEMS, MEDIUM, CLUSTER_WIDE,
            "Prefixes of the names of the metrics that clients push; * for all metrics, empty for none."),
        ConfigKey(INTERVAL_MS, INT, DEFAULT_INTERVAL_MS, None, MEDIUM, CLUSTER_WIDE,
            "How often a client pushes its metrics, in milliseconds: 100 to 3,600,000."),
        ConfigKey(MATCH, LIST, (), _NO_BLANK_ITEMS, MEDIUM, CLUSTER_WIDE,
            "Which clients push: a list of SELECTOR=EXPRESSION, all of which must match. The selectors are "
            f"{', '.join(SELECTORS)}."),
    )
}  # fmt: skip


def effective_client_metrics(overrides: Mapping[str, str], _broker: BrokerConfig | None = None) -> dict[str, Value]:
    """Returns every setting of a subscription with its typed value.

    :raises KafkaError: if a setting is unknown, or its value is not valid.
    """
    values = {name: key.default for name, key in CLIENT_METRICS_KEYS.items()}
    for name, text in overrides.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise InvalidRequest(f"Unknown client metrics configuration: {name}")
        try:
            values[name] = key.parse(text)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
    interval_ms = values[INTERVAL_MS]
    assert isinstance(interval_ms, int)
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise InvalidRequest(
            f"Invalid value {interval_ms} for {INTERVAL_MS}: must be from {_MIN_INTERVAL_MS} to {_MAX_INTERVAL_MS}"
        )
    return values


def validate_client_metrics(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """
    :raises KafkaError: if a subscription may not have these settings.
    """
    patterns_of(effective_client_metrics(overrides, broker)[MATCH])


def patterns_of(match: Value) -> dict[str, Pattern]:
    """Returns the expressions of a ``match`` by selector. If a selector is given twice, the last one counts.

    :raises InvalidConfig: if an item is not a selector with an expression.
    """
    assert isinstance(match, tuple)
    patterns = {}
    for item in match:
        selector, *expressions = (part.strip() for part in item.split("="))
        if selector not in SELECTORS or len(expressions) != 1 or not expressions[0]:
            raise InvalidConfig(
                f"Illegal client matching pattern: {item}. It must be SELECTOR=EXPRESSION, with one of the "
                f"selectors {', '.join(SELECTORS)}"
            )
        try:
            patterns[selector] = Pattern(expressions[0])
        except InvalidRegularExpression as error:
            raise InvalidConfig(f"Illegal client matching pattern: {item}. RE2 rejects it: {error}") from None
    return patterns
