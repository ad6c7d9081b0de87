"""DescribeConfigs (key 32): the settings of topics, groups, brokers and client metrics, with their sources.

Speaks v1 to v4. The settings of loggers (resource type 8) are their levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.configs import resources
from headrace.broker.configs.describe import DescribeOptions, describe_broker, describe_resource
from headrace.broker.handlers._config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CLUSTER_DEFAULT,
    GROUP,
    TOPIC,
    check_broker_name,
    check_configs,
    check_logger_broker,
)
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import InvalidRequest, code_for_errors
from headrace.protocol.wire.large_messages import ElementArray
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.configs.loggers import Loggers
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.broker.topics import Topics


async def handle(
    request: Request,
    authorizer: Authorizer,
    broker_id: int,
    config: BrokerConfig,
    topics: Topics,
    group_configs: GroupConfigs,
    loggers: Loggers,
    client_metrics: Subscriptions,
) -> Reply:
    body = request.body

    async def configs(kind: int, name: str, options: DescribeOptions) -> list[dict[str, object]]:
        if kind == TOPIC:
            topics.check_name(name)
            return describe_resource(resources.TOPIC, await topics.stored_configs(name), config, options)
        if kind == GROUP:
            if not name:
                raise InvalidRequest("the name of the group is missing")
            return describe_resource(resources.GROUP, group_configs.of(name), config, options)
        if kind == CLIENT_METRICS:
            if not name:
                raise InvalidRequest("the name of the subscription is missing")
            return describe_resource(resources.CLIENT_METRICS, client_metrics.of(name), config, options)
        if kind == BROKER:
            check_broker_name(broker_id, name)
            return describe_broker(config, options, cluster_default=name == CLUSTER_DEFAULT)
        if kind == BROKER_LOGGER:
            check_logger_broker(broker_id, name)
            return loggers.describe(options.names)
        raise InvalidRequest(f"resources of type {kind} have no settings here")

    async def describe(resource: Any) -> dict[str, object]:
        kind, name, names = resource.resource_type, resource.resource_name, resource.configuration_keys or None
        options = DescribeOptions(names, body.include_synonyms, getattr(body, "include_documentation", False))
        # As in Kafka, the message is "" and not null where there is no error.
        with code_for_errors(resource_type=kind, resource_name=name, configs=(), error_message="") as answer:
            check_configs(authorizer, request, AclOperation.DESCRIBE_CONFIGS, kind, name)
            if isinstance(names, ElementArray):
                raise InvalidRequest(f"{len(names)} settings are asked for of one resource, which has fewer")
            answer["configs"] = await configs(kind, name, options)
        return answer

    return {"results": await request.awaited_answers(body.resources, describe, "results", from_state=True)}
