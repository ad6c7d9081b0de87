"""Describes and changes the settings of topics, brokers, groups and subscriptions to client metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.requests import AdminRequests, AskedBroker, BrokerIds, outcome, raise_for
from headrace.client.admin.types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSynonym,
    ResourceKind,
    Results,
)
from headrace.client.errors import HeadraceError
from headrace.client.retry import Deadline
from headrace.protocol.api import Api

_KIND_NUMBERS: dict[ResourceKind, int] = {
    "topic": 2,
    "broker": 4,
    "broker_logger": 8,
    "client_metrics": 16,
    "group": 32,
}
_KINDS = {number: kind for kind, number in _KIND_NUMBERS.items()}
_OPERATIONS: dict[ConfigOperation, int] = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
_SOURCES = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
_TYPES = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")

#: The changes of a resource. In a dict, a value sets a setting, and None restores its default.
ConfigChanges = Mapping[str, object] | Iterable[ConfigChange]


class ConfigsAdmin:
    """The settings of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Returns the settings of each resource, by name.

        :param names: the names of the settings. Without it, all.
        """
        setting_names = None if names is None else list(names)

        async def ask(
            broker: AskedBroker, keys: list[ConfigResource]
        ) -> Mapping[ConfigResource, _Entries | HeadraceError]:
            answer = await broker.ask(
                Api.DESCRIBE_CONFIGS,
                resources=[{**_named(resource), "configuration_keys": setting_names} for resource in keys],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            return {
                _resource(found): outcome(
                    found.error_code,
                    {config.name: _entry(config) for config in found.configs},
                    f"the settings of {found.resource_name!r}",
                    found.error_message,
                )
                for found in answer.results
            }

        return await self._requests.fan_out(resources, self._brokers_of, ask, timeout_ms)

    async def describe_config(
        self, kind: ResourceKind, name: str | int, *, timeout_ms: float | None = None
    ) -> dict[str, ConfigEntry]:
        """Returns the settings of one resource, by name."""
        resource = ConfigResource(kind, str(name))
        return (await self.describe_configs([resource], timeout_ms=timeout_ms)).value(resource)

    async def list_config_resources(
        self, kinds: Iterable[ResourceKind] | None = None, *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """Returns the resources that have settings, sorted (KIP-1142).

        :param kinds: which kinds of resources. Without it, all.
        """
        numbers = [_KIND_NUMBERS[kind] for kind in (_KIND_NUMBERS if kinds is None else dict.fromkeys(kinds))]
        answer = await self._requests.cluster.ask_any(
            Api.LIST_CONFIG_RESOURCES, timeout_ms=timeout_ms, resource_types=numbers
        )
        raise_for(answer.error_code, "the config resources")
        # Brokers before 4.1 know only client metrics, and do not name the type.
        found = (
            ConfigResource(_KINDS.get(int(getattr(each, "resource_type", 16)), "client_metrics"), each.resource_name)
            for each in answer.config_resources
        )
        return sorted(each for each in found if kinds is None or _KIND_NUMBERS[each.kind] in numbers)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, ConfigChanges],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Changes some settings; the others stay as they are (KIP-339).

        ::

            await admin.alter_configs({ConfigResource("topic", "orders"): {"retention.ms": 60_000, "segment.ms": None}})
        """
        wanted = {resource: _changes(keys) for resource, keys in changes.items()}

        async def ask(broker: AskedBroker, keys: list[ConfigResource]) -> Mapping[ConfigResource, HeadraceError | None]:
            answer = await broker.ask(
                Api.INCREMENTAL_ALTER_CONFIGS,
                resources=[{**_named(resource), "configs": wanted[resource]} for resource in keys],
                validate_only=validate_only,
            )
            return {
                _resource(found): outcome(
                    found.error_code, None, f"the settings of {found.resource_name!r}", found.error_message
                )
                for found in answer.responses
            }

        return await self._requests.fan_out(wanted, self._brokers_of, ask, timeout_ms)

    async def alter_config(
        self, kind: ResourceKind, name: str | int, changes: ConfigChanges, *, timeout_ms: float | None = None
    ) -> None:
        """Changes some settings of one resource; the others stay as they are."""
        resource = ConfigResource(kind, str(name))
        (await self.alter_configs({resource: changes}, timeout_ms=timeout_ms)).value(resource)

    async def _brokers_of(self, resources: list[ConfigResource], deadline: Deadline) -> BrokerIds[ConfigResource]:
        """Finds the brokers to ask. Only a broker itself knows its own settings; any broker knows all others."""
        await self._requests.cluster.ensure_fresh(timeout_ms=deadline.left_ms())
        metadata = self._requests.cluster.metadata
        anyone = metadata.controller_id if metadata.controller_id in metadata.nodes else min(metadata.nodes)
        own = {
            resource: int(resource.name)
            for resource in resources
            if resource.kind in ("broker", "broker_logger") and resource.name.isdecimal()
        }
        brokers = await self._requests.brokers(list(own.values()), deadline)
        return {resource: brokers[own[resource]] if resource in own else anyone for resource in resources}


_Entries = dict[str, ConfigEntry]


def _named(resource: ConfigResource) -> dict[str, object]:
    return {"resource_type": _KIND_NUMBERS[resource.kind], "resource_name": resource.name}


def _resource(found: Any) -> ConfigResource:
    return ConfigResource(_KINDS[int(found.resource_type)], found.resource_name)


def _changes(changes: ConfigChanges) -> list[dict[str, object]]:
    if isinstance(changes, Mapping):
        changes = [
            ConfigChange(name, None, "delete") if value is None else ConfigChange(name, config_text(value))
            for name, value in changes.items()
        ]
    return [
        {"name": change.name, "config_operation": _OPERATIONS[change.operation], "value": change.value}
        for change in changes
    ]


def config_text(value: object) -> str:
    """Returns the value of a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        _nth(_SOURCES, int(config.config_source)),
        _nth(_TYPES, int(getattr(config, "config_type", 0))),
        bool(config.read_only),
        bool(config.is_sensitive),
        tuple(ConfigSynonym(s.name, s.value, _nth(_SOURCES, int(s.source))) for s in config.synonyms),
        getattr(config, "documentation", None),
    )


def _nth(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]
