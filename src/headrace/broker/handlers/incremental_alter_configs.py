"""IncrementalAlterConfigs (key 44): sets, resets, appends to or subtracts from single settings (KIP-339).

Speaks v0 to v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.configs.broker_config import alter_broker, alter_group, alter_topic
from headrace.broker.handlers._config_resources import alter_resources
from headrace.broker.network.dispatch import Reply
from headrace.broker.network.request import Request

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    def change_topic(resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return alter_topic(stored, _changes(resource), broker.config)

    def change_group(resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return alter_group(stored, _changes(resource), broker.config)

    def change_broker(resource: Any, stored: Mapping[str, str], per_broker: bool) -> dict[str, str]:
        return alter_broker(stored, _changes(resource), broker.config, per_broker=per_broker)

    return await alter_resources(request, broker, change_topic, change_group, change_broker)


def _changes(resource: Any) -> list[tuple[str, int, str | None]]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]
