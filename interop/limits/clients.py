"""The client of a request sequence: sends requests one by one, and shows the answers in a form that brokers share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
SET, DELETE = range(2)
_TOPICS_BY_ID_SINCE = 6
#: A component of a filter: type of entity, kind of match, name.
Component = tuple[str, int, str | None]
#: An entity: types and names.
Entity = Sequence[tuple[str, str | None]]


def instance_id(name: str) -> UUID:
    """The same id in every run, so that ids of subscriptions can be compared."""
    return uuid5(NAMESPACE_OID, name)


class Client(RawClient):
    def __init__(self, address: str, client_id: str, software: str = "scene", software_version: str = "1.0") -> None:
        super().__init__(address, client_id=client_id, timeout_s=30.0)
        self.client_id = client_id
        names = {"client_software_name": software, "client_software_version": software_version}
        assert self.ask(Api.API_VERSIONS, 3, **names).error_code == 0

    # -- telemetry

    def get(self, instance: UUID | None) -> dict[str, Any]:
        answer = self.ask(Api.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance)
        found = answer.client_instance_id
        shown = "none" if found is None or not found.int else "the same" if found == instance else "new"
        #: Apache Kafka's ids of subscriptions depend on the order of a hash set.
        has_known_id = shown != "new" and len(answer.requested_metrics) < 2
        return {
            "error": ErrorCode(answer.error_code).name,
            "instance_id": shown,
            "subscription_id": answer.subscription_id if has_known_id else "any",
            "compression_types": list(answer.accepted_compression_types),
            "interval_ms": round(answer.push_interval.total_seconds() * 1000),
            "max_bytes": answer.telemetry_max_bytes,
            "is_delta": answer.delta_temporality,
            "metrics": sorted(answer.requested_metrics),
            "throttle_ms": round(answer.throttle_time.total_seconds() * 1000),
        }

    def push(
        self, instance: UUID | None, subscription: Mapping[str, Any] | int, metrics: bytes = b"", *, codec: int = 0,
        is_last: bool = False,
    ) -> str:  # fmt: skip
        """
        :param subscription: the answer to :meth:`get`, or an id of a subscription.
        """
        answer = self.ask(
            Api.PUSH_TELEMETRY,
            0,
            client_instance_id=instance,
            subscription_id=subscription if isinstance(subscription, int) else subscription["subscription_id"],
            terminating=is_last,
            compression_type=codec,
            metrics=metrics,
        )
        assert not answer.throttle_time
        return ErrorCode(answer.error_code).name

    def alter_subscription(self, name: str, **values: str | None) -> str:
        """Sets settings of a subscription; None removes one. ``interval_ms`` stands for ``interval.ms``."""
        changes = [(key.replace("_", "."), DELETE if value is None else SET, value) for key, value in values.items()]
        return self.alter_configs(CLIENT_METRICS, name, changes)

    def subscription(self, name: str) -> dict[str, str]:
        """The settings of a subscription."""
        found = self.describe_configs(CLIENT_METRICS, name)
        assert isinstance(found, dict), found
        return found

    # -- settings

    def alter_configs(
        self, kind: int, name: str, changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
    ) -> str:
        """Changes settings: name, operation, value. Returns the error."""
        configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        asked = {"resources": [resource], "validate_only": validate_only}
        (answer,) = self.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, **asked).responses
        return ErrorCode(answer.error_code).name

    def replace_configs(self, kind: int, name: str, values: Mapping[str, str]) -> str:
        """Sets all settings of a resource. Returns the error."""
        configs = [{"name": key, "value": value} for key, value in values.items()]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        (answer,) = self.ask(Api.ALTER_CONFIGS, 2, resources=[resource], validate_only=False).responses
        return ErrorCode(answer.error_code).name

    def describe_configs(self, kind: int, name: str, keys: Sequence[str] | None = None) -> str | dict[str, str]:
        """The values of settings, or the error."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        (answer,) = self.ask(Api.DESCRIBE_CONFIGS, 4, **asked).results
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return {config.name: config.value for config in answer.configs}

    def list_resources(self, kinds: Sequence[int] | None) -> str | list[str]:
        """The kinds and names of resources with settings: brokers, and the resources called "listed"; or the error.

        :param kinds: None for the first version of the request, which asks for subscriptions.
        """
        version, asked = (0, {}) if kinds is None else (1, {"resource_types": kinds})
        answer = self.ask(Api.LIST_CONFIG_RESOURCES, version, **asked)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        # The first version does not tell the kind.
        found = [
            (getattr(each, "resource_type", CLIENT_METRICS), each.resource_name) for each in answer.config_resources
        ]
        return sorted(f"{kind} {name}" for kind, name in found if name == "listed" or kind in (BROKER, BROKER_LOGGER))

    # -- topics. A throttle time above 0 is shown as "throttled".

    def create_topic(self, name: str, partitions: int, *, version: int = 7, validate_only: bool = False) -> str:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
        asked = {"topics": [topic], "timeout": 30_000, "validate_only": validate_only}
        answer = self.ask(Api.CREATE_TOPICS, version, **asked)
        return _shown(answer.topics[0].error_code, answer.throttle_time)

    def create_partitions(self, name: str, count: int, *, version: int = 3) -> str:
        topic = {"name": name, "count": count, "assignments": None}
        asked = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        answer = self.ask(Api.CREATE_PARTITIONS, version, **asked)
        return _shown(answer.results[0].error_code, answer.throttle_time)

    def delete_topic(self, name: str, *, version: int = 6) -> str:
        named = (
            {"topics": [{"name": name, "topic_id": None}]}
            if version >= _TOPICS_BY_ID_SINCE
            else {"topic_names": [name]}
        )
        answer = self.ask(Api.DELETE_TOPICS, version, timeout=30_000, **named)
        return _shown(answer.responses[0].error_code, answer.throttle_time)

    # -- quotas

    def alter_quotas(
        self, *entries: tuple[Entity, Mapping[str, float | None]], version: int = 1, validate_only: bool = False
    ) -> list[str]:
        """Changes quotas; None removes one. Returns the error of each entity, in the order of the entities' names."""
        wanted = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": [{"key": key, "value": limit or 0.0, "remove": limit is None} for key, limit in limits.items()],
            }
            for entity, limits in entries
        ]
        answers = self.ask(Api.ALTER_CLIENT_QUOTAS, version, entries=wanted, validate_only=validate_only).entries
        shown = [(_names(each.entity), ErrorCode(each.error_code).name) for each in answers]
        return [f"{names}: {error}" for names, error in sorted(shown)]

    def ask_quotas(self) -> list[tuple[Entity, list[str]]]:
        """All entities, with the keys of their quotas."""
        entries = self.ask(Api.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False).entries
        return [
            ([(part.entity_type, part.entity_name) for part in each.entity], [one.key for one in each.values])
            for each in entries
        ]

    def quotas(self, *components: Component, is_strict: bool = False, version: int = 1) -> str | list[str]:
        """Describes quotas. Returns the entities with their limits, or the error."""
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        answer = self.ask(Api.DESCRIBE_CLIENT_QUOTAS, version, components=wanted, strict=is_strict)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return sorted(
            f"{_names(each.entity)}: "
            + ", ".join(f"{one.key}={_number(one.value)}" for one in sorted(each.values, key=_key))
            for each in answer.entries or ()
        )


def _shown(error_code: int, throttle_time: timedelta) -> str:
    return ErrorCode(error_code).name + (", throttled" if throttle_time else "")


def _key(value: Any) -> str:
    return str(value.key)


def _number(limit: float) -> str:
    return f"{limit:g}" if math.isfinite(limit) else str(limit)


def _names(entity: Any) -> str:
    return " ".join(sorted(f"{part.entity_type}={part.entity_name}" for part in entity))
