"""DescribeConfigs (key 32): settings of topics, groups and brokers, with where each value comes from.

Speaks v1 to v4. Loggers (resource type 8) and client metrics (16) have no settings here: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.configs.broker_config import describe_broker, describe_group, describe_topic
from headrace.broker.handlers._config_resources import BROKER, CLUSTER_DEFAULT, GROUP, TOPIC, check_broker_name
from headrace.broker.network.dispatch import Reply
from headrace.broker.network.request import Request
from headrace.protocol.errors import InvalidRequest, code_for_errors
from headrace.protocol.wire.large_messages import ElementArray

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    async def describe(resource: Any) -> dict[str, object]:
        return await _describe(broker, request.body, resource)

    return {"results": await request.awaited_answers(request.body.resources, describe, "results")}


async def _describe(broker: Broker, body: Any, resource: Any) -> dict[str, object]:
    kind, name, wanted = resource.resource_type, resource.resource_name, resource.configuration_keys
    # Kafka says "" and not null where there is no error.
    with code_for_errors(resource_type=kind, resource_name=name, configs=(), error_message="") as answer:
        if isinstance(wanted, ElementArray):
            raise InvalidRequest(f"{len(wanted)} settings are asked for of one resource, which has fewer")
        synonyms, documentation = body.include_synonyms, getattr(body, "include_documentation", False)
        if kind == TOPIC:
            broker.topics.check_name(name)
            answer["configs"] = describe_topic(
                await broker.topics.stored_configs(name),
                broker.config,
                wanted=wanted,
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
        elif kind == GROUP:
            if not name:
                raise InvalidRequest("a group's name is missing")
            answer["configs"] = describe_group(
                broker.group_configs.of(name),
                broker.config,
                wanted=wanted,
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
        elif kind == BROKER:
            check_broker_name(broker, name)
            answer["configs"] = describe_broker(
                broker.config,
                wanted=wanted,
                include_synonyms=synonyms,
                include_documentation=documentation,
                cluster_default=name == CLUSTER_DEFAULT,
            )
        else:
            raise InvalidRequest(f"resources of type {kind} have no settings here")
    return answer
