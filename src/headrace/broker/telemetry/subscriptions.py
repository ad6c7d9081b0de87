"""The subscriptions of client metrics, as a cache of ``/config/client-metrics`` in the znode tree.

A subscription is a config resource: which metrics, how often, from which clients (``configs/client_metrics.py``). A
client that matches several subscriptions pushes the metrics of all of them, at the shortest interval.

The version grows with every change. A client whose instance is older than the version is matched again at its next
request (``instances.py``), so a change is in force without a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, cast

from headrace.broker.configs.client_metrics import (
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    effective_client_metrics,
    patterns_of,
)
from headrace.broker.configs.group_overrides import entity_of, group_of
from headrace.coordination.interface import NodeExistsError
from headrace.coordination.paths import CLIENT_METRICS_CONFIGS, config_path
from headrace.coordination.znodes import EntityConfig, MalformedZnodeError
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.coordination.interface import Coordination
    from headrace.patterns import Pattern

logger = getLogger(__name__)

ENTITY_TYPE = "client-metrics"
ALL_METRICS = "*"
_NOTHING: Mapping[str, str] = {}


class Subscription(NamedTuple):
    metrics: frozenset[str]
    interval_ms: int
    #: Which clients push: the expression of each selector. An empty mapping matches every client.
    patterns: Mapping[str, Pattern]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Subscription:
        """
        :raises KafkaError: if the settings are not valid.
        """
        values = effective_client_metrics(configs)
        metrics, interval_ms = cast(tuple[str, ...], values[METRICS]), cast(int, values[INTERVAL_MS])
        return cls(frozenset(metrics), interval_ms, patterns_of(values[MATCH]))

    def matches(self, client: Mapping[str, str | None]) -> bool:
        """Tells whether all expressions match a client, whose attributes are given by selector."""
        return all(
            (attribute := client[selector]) is not None and pattern.matches(attribute)
            for selector, pattern in self.patterns.items()
        )


class Demand(NamedTuple):
    """The metrics that a broker asks one client for: prefixes of names, and how often the client pushes them."""

    metrics: tuple[str, ...]
    interval_ms: int

    def asks_for(self, name: str) -> bool:
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


class Subscriptions:
    def __init__(self) -> None:
        self.version = 0
        self._configs: dict[str, Mapping[str, str]] = {}
        self._subscriptions: dict[str, Subscription] = {}

    def __iter__(self) -> Iterator[str]:
        """The names of all subscriptions."""
        return iter(self._configs)

    def of(self, name: str) -> Mapping[str, str]:
        """The settings of a subscription; empty if there is no such subscription."""
        return self._configs.get(name, _NOTHING)

    def demand_on(self, client: Mapping[str, str | None]) -> Demand:
        """Joins the subscriptions that match a client."""
        matching = [each for each in self._subscriptions.values() if each.matches(client)]
        metrics = {name for each in matching for name in each.metrics}
        interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in matching)])
        return Demand((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Sets the settings of a subscription, given its name in the tree. Without settings there is none."""
        name = name_of(entity)
        if self.of(name) == configs:
            return
        self.version += 1
        self._subscriptions.pop(name, None)
        self._configs.pop(name, None)
        if configs:
            self._configs[name] = configs
            try:
                self._subscriptions[name] = Subscription.of(configs)
            except KafkaError as error:  # written by another program: brokers check settings before they store them
                logger.error("the subscription %r of client metrics is not in force: %s", name, error)

    def keep_only(self, entities: list[str]) -> None:
        """Forgets subscriptions that have no znode any more."""
        for name in set(self._configs) - {name_of(entity) for entity in entities}:
            self.put(entity_name(name), {})

    # -- for a broker that is not in a cluster

    async def load(self, coordination: Coordination) -> None:
        for entity in await coordination.children(CLIENT_METRICS_CONFIGS):
            data, _ = await coordination.get(config_path(ENTITY_TYPE, entity))
            try:
                self.put(entity, EntityConfig.from_json(data).config)
            except MalformedZnodeError as error:
                logger.error("the subscription %r of client metrics cannot be read: %s", name_of(entity), error)

    async def store(self, coordination: Coordination, name: str, configs: Mapping[str, str]) -> None:
        entity = entity_name(name)
        path, content = config_path(ENTITY_TYPE, entity), EntityConfig(configs).to_json()
        try:
            await coordination.create(path, content)
        except NodeExistsError:
            await coordination.set(path, content)
        self.put(entity, configs)


def entity_name(name: str) -> str:
    """Returns the name of a subscription in the tree: percent-encoded, because it may be any text."""
    return entity_of(name)


def name_of(entity: str) -> str:
    return group_of(entity)
