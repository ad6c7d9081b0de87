"""DescribeConfigs: settings, each with the source of its value.

The sources of a value, strongest first: the topic (1), subscription of client metrics (7) or group (8), this broker's
dynamic settings (2), the cluster-wide dynamic settings (3), the broker's file or command line (4), the default (5). The
entry shows the strongest value. Its synonyms are the whole chain of values. As in Kafka, the chain begins where the
described name itself is set. So ``log.roll.ms``, if it is not set, has no synonyms and the source DEFAULT, though its
value comes from ``log.roll.hours``.

Settings that are not in the registry are shown too, if the broker was started with them. Such a setting may be a
secret, so its value is hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.configs.client_metrics import CLIENT_METRICS_KEYS
from headrace.broker.configs.group import GROUP_KEYS
from headrace.broker.configs.keys import ConfigKey, Update, to_text
from headrace.broker.configs.registry import BROKER_KEYS, TOPIC_KEYS, broker_key, broker_synonyms
from headrace.broker.configs.resources import ResourceKind, Source

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

Entry = dict[str, object]

#: The type of a setting that is not in the registry.
_UNKNOWN_TYPE = 0


class DescribeOptions(NamedTuple):
    """Which settings of a resource a DescribeConfigs request asks for, and with which details."""

    #: The names of settings; None means all.
    names: Sequence[str] | None = None
    include_synonyms: bool = False
    include_documentation: bool = False


_ALL = DescribeOptions()


def describe_resource(
    kind: ResourceKind, overrides: Mapping[str, str], broker: BrokerConfig, options: DescribeOptions = _ALL
) -> list[Entry]:
    """Returns the settings of a topic, a group or a subscription as the ``configs`` of a DescribeConfigs result.

    The resource need not exist.
    """
    values = kind.effective(overrides, broker)
    entries = []
    for name in _chosen(kind.keys, options.names):
        key = kind.keys[name]
        chain = _default_chain(key, broker)
        if name in overrides:
            chain.insert(0, _synonym(name, to_text(values[name]), kind.source))
        entries.append(_entry(name, to_text(values[name]), key, chain, options, read_only=False))
    return entries


def describe_broker(
    broker: BrokerConfig, options: DescribeOptions = _ALL, *, cluster_default: bool = False
) -> list[Entry]:
    """Returns a broker's settings, or with ``cluster_default`` only the settings of the whole cluster."""
    names: Iterable[str] = broker.dynamic_default if cluster_default else broker.all_names()
    entries = []
    for name in _chosen(names, options.names):
        key = broker_key(name)
        chain = _chain(name, broker)
        if cluster_default:
            chain = [synonym for synonym in chain if synonym["source"] == Source.DYNAMIC_DEFAULT_BROKER]
            value: str | None = broker.dynamic_default[name]
        elif name in broker.not_in_force:
            value = broker.not_in_force[name]
        else:
            value = to_text(broker[name]) if key is not None else None
        # Kafka looks for the whole name: a setting of one listener is read-only and has no documentation.
        known = BROKER_KEYS.get(name)
        read_only = known is None or known.update is Update.READ_ONLY
        shown = options if known is not None else options._replace(include_documentation=False)
        entries.append(_entry(name, value, key, chain, shown, read_only=read_only))
    return entries


def _chosen(known: Iterable[str], asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return sorted(known)
    known = frozenset(known)
    return [name for name in dict.fromkeys(asked) if name in known]


def _default_chain(key: ConfigKey, broker: BrokerConfig) -> list[Entry]:
    """Returns the chain of the broker's setting that is the default of a topic's or a group's setting, if any."""
    return _chain(key.synonyms[0].name, broker) if key.synonyms else []


def _chain(described: str, broker: BrokerConfig) -> list[Entry]:
    """Returns every value that a broker's setting and its synonyms have in some layer, the strongest layer first.

    The chain begins with the first value of the described name itself. Kafka leaves out the values before it.
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
    key = broker_key(name) or TOPIC_KEYS.get(name) or GROUP_KEYS.get(name) or CLIENT_METRICS_KEYS.get(name)
    is_secret = key is None or key.is_sensitive
    return {"name": name, "value": None if is_secret else value, "source": int(source)}


def _entry(
    name: str,
    value: str | None,
    key: ConfigKey | None,
    chain: list[Entry],
    options: DescribeOptions,
    *,
    read_only: bool,
) -> Entry:
    source = chain[0]["source"] if chain else int(Source.DEFAULT)
    is_sensitive = key is None or key.is_sensitive
    return {
        "name": name,
        "value": None if is_sensitive else value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": is_sensitive,
        "synonyms": chain if options.include_synonyms else [],
        "config_type": _UNKNOWN_TYPE if key is None else int(key.type),
        "documentation": key.doc if options.include_documentation and key is not None else None,
    }
