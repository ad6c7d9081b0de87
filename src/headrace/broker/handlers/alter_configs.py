"""AlterConfigs (key 33): replaces all settings of a topic, a group, a broker or client metrics by those given.

Speaks v0 to v2. Loggers (resource type 8) are INVALID_REQUEST, as in Kafka. Superseded by IncrementalAlterConfigs
(key 44), but old clients still send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.configs.alter import replace_broker, replace_resource
from headrace.broker.handlers._config_resources import StoredConfigs, alter_resources
from headrace.broker.network.request import Reply, Request

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
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
) -> Reply:
    def change_resource(kind: ResourceKind, resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return replace_resource(kind, _values(resource), config)

    def change_broker(resource: Any, stored: Mapping[str, str], per_broker: bool) -> dict[str, str]:
        return replace_broker(_values(resource), config, per_broker=per_broker)

    stored = StoredConfigs(
        authorizer, broker_id, config, topics, group_configs, client_metrics, config_store, run_blocking
    )
    return await alter_resources(request, stored, change_resource, change_broker)


def _values(resource: Any) -> list[tuple[str, str | None]]:
    return [(config.name, config.value) for config in resource.configs]
