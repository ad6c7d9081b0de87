"""AlterConfigs (key 33): replaces all settings of a topic or a broker by those given.

Speaks v0 to v2. Superseded by IncrementalAlterConfigs (key 44), but old clients still send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.configs.broker_config import replace_broker, replace_group, replace_topic
from headrace.broker.handlers._config_resources import alter_resources
from headrace.broker.network.dispatch import Reply
from headrace.broker.network.request import Request

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    def change_topic(resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return replace_topic(_values(resource), broker.config)

    def change_group(resource: Any, stored: Mapping[str, str]) -> dict[str, str]:
        return replace_group(_values(resource), broker.config)

    def change_broker(resource: Any, stored: Mapping[str, str], per_broker: bool) -> dict[str, str]:
        return replace_broker(_values(resource), broker.config, per_broker=per_broker)

    return await alter_resources(request, broker, change_topic, change_group, change_broker)


def _values(resource: Any) -> list[tuple[str, str | None]]:
    return [(config.name, config.value) for config in resource.configs]
