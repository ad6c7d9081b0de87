"""The kinds of resources that have settings of their own: topics, consumer groups, and subscriptions of client metrics.

Each kind says which settings there are, which values are in force, and which settings a resource may have. Describing
(``describe.py``) and altering (``alter.py``) are the same for all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.configs.client_metrics import (
    CLIENT_METRICS_KEYS,
    effective_client_metrics,
    validate_client_metrics,
)
from headrace.broker.configs.group import GROUP_KEYS, effective_group_config, validate_group
from headrace.broker.configs.registry import TOPIC_KEYS
from headrace.broker.configs.topic import effective_topic_config, validate_topic

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.keys import ConfigKey, Value


class Source(IntEnum):
    """The source of a value, as numbered in the protocol."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ResourceKind(NamedTuple):
    keys: Mapping[str, ConfigKey]
    #: The source of a value that is set on the resource itself.
    source: Source
    #: Every setting of a resource with its typed value, from what is set on the resource and on the broker.
    effective: Callable[[Mapping[str, str], BrokerConfig], Mapping[str, Value]]
    #: Raises KafkaError if a resource may not have these settings.
    validate: Callable[[Mapping[str, str], BrokerConfig], None]


TOPIC = ResourceKind(TOPIC_KEYS, Source.TOPIC, effective_topic_config, validate_topic)
GROUP = ResourceKind(GROUP_KEYS, Source.GROUP, effective_group_config, validate_group)
CLIENT_METRICS = ResourceKind(
    CLIENT_METRICS_KEYS, Source.CLIENT_METRICS, effective_client_metrics, validate_client_metrics
)
