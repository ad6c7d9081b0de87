"""IncrementalAlterConfigs (key 44): sets, resets, appends to or subtracts from single settings (KIP-339).

Speaks v0 to v1. The levels of loggers (resource type 8) can be set and reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.configs.alter import alter_broker, alter_resource
from headrace.broker.handlers._config_resources import StoredConfigs, alter_resources
from headrace.broker.network.request import Reply, Request

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.configs.loggers import Loggers
    from headrace.broker.configs.resources import ResourceKind
    from headrace.broker.services import ConfigStore
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.broker.thread_pool import RunBlocking
    from headrace.broker.topics import Topics


async def handle(
    request: Request,
    authorizer: Authorizer,
    broker_id: int,
    config: BrokerConfig,
    topics: Topics,
    group_configs: GroupConfigs,
    client_metrics: Subscriptions,
    config_store: ConfigStore,
    run_blocking: RunBlocking,
    loggers: Loggers,
) -> Reply:
    def change_resource(kind: ResourceKind, resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return alter_resource(kind, stored, _changes(resource), config)

    def change_broker(resource: Any, stored: Mapping[str, str], per_broker: bool) -> dict[str, str]:
        return alter_broker(stored, _changes(resource), config, per_broker=per_broker)

    def change_loggers(resource: Any, validate_only: bool) -> None:
        loggers.alter(_changes(resource), validate_only=validate_only)

    stored = StoredConfigs(
        authorizer, broker_id, config, topics, group_configs, client_metrics, config_store, run_blocking
    )
    return await alter_resources(request, stored, change_resource, change_broker, change_loggers)


def _changes(resource: Any) -> list[tuple[str, int, str | None]]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]
