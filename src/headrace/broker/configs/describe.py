"""DescribeConfigs: settings with where each value comes from.

A value's sources, strongest first: the topic (1) or group (8), this broker's dynamic settings (2), the cluster-wide
dynamic ones (3), the broker's file or command line (4), the default (5). The entry shows the strongest; its synonyms
are the whole chain, which begins where the described name itself is set, as in Kafka. So ``log.roll.ms`` that is not
set has no synonyms and the source DEFAULT, though its value comes from ``log.roll.hours``.

Settings that the registry does not know are shown too if the broker was started with them. Nobody knows whether they
are secrets, so their values are hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import TYPE_CHECKING

from headrace.broker.configs.group import GROUP_KEYS, effective_group_config
from headrace.broker.configs.keys import ConfigKey, Update, to_text
from headrace.broker.configs.registry import BROKER_KEYS, TOPIC_KEYS, broker_key, broker_synonyms
from headrace.broker.configs.topic import effective_topic_config

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

Entry = dict[str, object]

#: The type of a setting that is not in the registry.
_UNKNOWN_TYPE = 0


class Source(IntEnum):
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


def describe_topic(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    *,
    wanted: Sequence[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> list[Entry]:
    """A topic's settings as the ``configs`` of a DescribeConfigs result; ``wanted`` None is all of them."""
    values = effective_topic_config(overrides, broker)
    entries = []
    for name in _chosen(TOPIC_KEYS, wanted):
        key = TOPIC_KEYS[name]
        chain = _default_chain(key, broker)
        if name in overrides:
            chain.insert(0, _synonym(name, to_text(values[name]), Source.TOPIC))
        value = to_text(values[name])
        entries.append(_entry(name, value, key, chain, False, include_synonyms, include_documentation))
    return entries


def describe_group(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    *,
    wanted: Sequence[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> list[Entry]:
    """A group's settings, whether there is such a group or not."""
    entries = []
    for name, value in effective_group_config(overrides, broker).items():
        if wanted is None or name in wanted:
            key = GROUP_KEYS[name]
            chain = _default_chain(key, broker)
            if name in overrides:
                chain.insert(0, _synonym(name, to_text(value), Source.GROUP))
            entries.append(_entry(name, to_text(value), key, chain, False, include_synonyms, include_documentation))
    return entries


def describe_broker(
    broker: BrokerConfig,
    *,
    wanted: Sequence[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    cluster_default: bool = False,
) -> list[Entry]:
    """A broker's settings, or with ``cluster_default`` only those that are set for the whole cluster."""
    names: Iterable[str] = broker.dynamic_default if cluster_default else broker.all_names()
    entries = []
    for name in _chosen(names, wanted):
        key = broker_key(name)
        chain = _chain(name, broker)
        if cluster_default:
            chain = [synonym for synonym in chain if synonym["source"] == Source.DYNAMIC_DEFAULT_BROKER]
            value: str | None = broker.dynamic_default[name]
        elif name in broker.not_in_force:
            value = broker.not_in_force[name]
        else:
            value = to_text(broker[name]) if key is not None else None
        # Kafka looks for the whole name: what is set for one listener is read-only and has no documentation.
        known = BROKER_KEYS.get(name)
        read_only = known is None or known.update is Update.READ_ONLY
        documented = include_documentation and known is not None
        entries.append(_entry(name, value, key, chain, read_only, include_synonyms, documented))
    return entries


def _chosen(names: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    if wanted is None:
        return sorted(names)
    known = frozenset(names)
    return [name for name in dict.fromkeys(wanted) if name in known]


def _default_chain(key: ConfigKey, broker: BrokerConfig) -> list[Entry]:
    """The chain of the broker's setting that is the default of a topic's or a group's setting, if there is one."""
    return _chain(key.synonyms[0].name, broker) if key.synonyms else []


def _chain(described: str, broker: BrokerConfig) -> list[Entry]:
    """Every value that a broker's setting and its synonyms have in some layer, the strongest layer first.

    The chain begins with the first value of the described name itself. Kafka leaves out what comes before.
    """
    names = broker_synonyms(described)
    layers = (
        (broker.dynamic_broker, Source.DYNAMIC_BROKER),
        (broker.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
        (broker.static, Source.STATIC_BROKER),
        (broker.unknown, Source.STATIC_BROKER),
        (broker.ignored, Source.STATIC_BROKER),
    )
    chain = [_synonym(name, layer[name], source) for layer, source in layers for name in names if name in layer]
    for name in names:
        key = BROKER_KEYS.get(name)
        if key is not None and key.default is not None:
            chain.append(_synonym(name, to_text(key.default), Source.DEFAULT))
    return list(dropwhile(lambda synonym: synonym["name"] != described, chain))


def _synonym(name: str, value: str | None, source: Source) -> Entry:
    key = broker_key(name) or TOPIC_KEYS.get(name) or GROUP_KEYS.get(name)
    is_secret = key is None or key.is_sensitive
    return {"name": name, "value": None if is_secret else value, "source": int(source)}


def _entry(
    name: str,
    value: str | None,
    key: ConfigKey | None,
    chain: list[Entry],
    read_only: bool,
    include_synonyms: bool,
    include_documentation: bool,
) -> Entry:
    source = chain[0]["source"] if chain else int(Source.DEFAULT)
    is_sensitive = key is None or key.is_sensitive
    return {
        "name": name,
        "value": None if is_sensitive else value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": is_sensitive,
        "synonyms": chain if include_synonyms else [],
        "config_type": _UNKNOWN_TYPE if key is None else int(key.type),
        "documentation": key.doc if include_documentation and key is not None else None,
    }
