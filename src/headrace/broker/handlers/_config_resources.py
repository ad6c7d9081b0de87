"""Changes the settings of resources, for AlterConfigs and IncrementalAlterConfigs.

A resource is a topic, a group, a subscription of client metrics, a broker, the default of all brokers, which has an
empty name, or the loggers of a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.authorization.checks import check, check_cluster
from headrace.broker.configs import resources
from headrace.broker.configs.resources import ResourceKind
from headrace.broker.network.request import Request
from headrace.protocol.errors import InvalidRequest, code_for_errors
from headrace.protocol.wire.large_messages import ElementArray
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.services import ConfigStore
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.broker.thread_pool import RunBlocking
    from headrace.broker.topics import Topics

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
CLUSTER_DEFAULT = ""

#: From a topic, group or subscription of the request and its stored settings to the settings to store.
ResourceChange = Callable[[ResourceKind, Any, Mapping[str, str]], dict[str, str]]
#: The same for a broker; the last argument is False for the default of all brokers.
BrokerChange = Callable[[Any, Mapping[str, str], bool], dict[str, str]]
#: Changes the levels of loggers; the last argument is whether to check only.
LoggersChange = Callable[[Any, bool], None]


class StoredConfigs(NamedTuple):
    """The stores of the settings of all resources, and the authorizer of changes."""

    authorizer: Authorizer
    broker_id: int
    config: BrokerConfig
    topics: Topics
    group_configs: GroupConfigs
    client_metrics: Subscriptions
    config_store: ConfigStore
    run_blocking: RunBlocking


#: The types of resources whose settings belong to the cluster itself.
_OF_CLUSTER = frozenset({BROKER, BROKER_LOGGER, CLIENT_METRICS})


def check_configs(authorizer: Authorizer, request: Request, operation: AclOperation, kind: int, name: str) -> None:
    """
    :raises InvalidRequest: if no resource of this type has settings.
    :raises KafkaError: if the client may not read or change (the operation) the settings of the resource.
    """
    if kind in _OF_CLUSTER:
        check_cluster(authorizer, request.connection, operation)
    elif kind == TOPIC:
        check(authorizer, request.connection, operation, ResourceType.TOPIC, name)
    elif kind == GROUP:
        check(authorizer, request.connection, operation, ResourceType.GROUP, name)
    else:
        raise InvalidRequest(f"resources of type {kind} have no settings here")


def check_broker_name(broker_id: int, name: str) -> None:
    """
    :raises InvalidRequest: if the name is another broker's. Only that broker knows its settings.
    """
    if name not in (CLUSTER_DEFAULT, str(broker_id)):
        raise InvalidRequest(f"this is broker {broker_id}, not {name!r}; send the request to broker {name!r}")


def check_logger_broker(broker_id: int, name: str) -> None:
    """
    :raises InvalidRequest: if the name is not this broker's. Loggers have no default for all brokers.
    """
    if name == CLUSTER_DEFAULT:
        raise InvalidRequest("the loggers belong to one broker: name its id")
    check_broker_name(broker_id, name)


async def alter_resources(
    request: Request,
    stored: StoredConfigs,
    change_resource: ResourceChange,
    change_broker: BrokerChange,
    change_loggers: LoggersChange | None = None,
) -> dict[str, Any]:
    """Returns the answer to a request that changes settings. Each resource succeeds or fails alone.

    :param change_loggers: None if the request cannot change loggers.
    """
    body = request.body
    repeated = await request.slices.repeated(body.resources, lambda each: (each.resource_type, each.resource_name))

    async def alter(resource: Any) -> dict[str, Any]:
        kind, name = resource.resource_type, resource.resource_name
        with code_for_errors(resource_type=kind, resource_name=name) as answer:
            if (kind, name) in repeated:
                raise InvalidRequest(f"the resource {name!r} of type {kind} is named twice in the request")
            check_configs(stored.authorizer, request, AclOperation.ALTER_CONFIGS, kind, name)
            if isinstance(resource.configs, ElementArray):
                raise InvalidRequest(f"{len(resource.configs)} settings are given for one resource, which has fewer")
            if kind == TOPIC:
                await _alter_topic(stored, name, resource, change_resource, validate_only=body.validate_only)
            elif kind == GROUP:
                await _alter_group(stored, name, resource, change_resource, validate_only=body.validate_only)
            elif kind == CLIENT_METRICS:
                await _alter_client_metrics(stored, name, resource, change_resource, validate_only=body.validate_only)
            elif kind == BROKER:
                await _alter_broker(stored, name, resource, change_broker, validate_only=body.validate_only)
            elif kind == BROKER_LOGGER and change_loggers is not None:
                check_logger_broker(stored.broker_id, name)
                change_loggers(resource, body.validate_only)
            else:
                raise InvalidRequest(f"resources of type {kind} have no settings here")
        return answer

    return {"responses": await request.awaited_answers(body.resources, alter, "responses")}


async def _alter_topic(
    stored: StoredConfigs, name: str, resource: Any, change: ResourceChange, *, validate_only: bool
) -> None:
    if not name:
        raise InvalidRequest("there are no settings for all topics; name a topic")
    stored.topics.check_name(name)
    configs = change(resources.TOPIC, resource, await stored.topics.stored_configs(name))
    if not validate_only:
        await stored.topics.set_configs(name, configs)


async def _alter_group(
    stored: StoredConfigs, name: str, resource: Any, change: ResourceChange, *, validate_only: bool
) -> None:
    if not name:
        raise InvalidRequest("there are no settings for all groups but the brokers' own; name a group")
    configs = change(resources.GROUP, resource, stored.group_configs.of(name))
    if not validate_only:
        await stored.config_store.set_group_configs(name, configs)


async def _alter_client_metrics(
    stored: StoredConfigs, name: str, resource: Any, change: ResourceChange, *, validate_only: bool
) -> None:
    if not name:
        raise InvalidRequest("the name of the subscription is missing")
    configs = change(resources.CLIENT_METRICS, resource, stored.client_metrics.of(name))
    if not validate_only:
        await stored.config_store.set_client_metrics(name, configs)


async def _alter_broker(
    stored: StoredConfigs, name: str, resource: Any, change: BrokerChange, *, validate_only: bool
) -> None:
    check_broker_name(stored.broker_id, name)
    is_default = name == CLUSTER_DEFAULT
    config = stored.config
    async with config.change_lock:
        before = config.dynamic_default if is_default else config.dynamic_broker
        # On a thread, because checks read key stores and resolve names of hosts.
        configs = await stored.run_blocking(change, resource, before, not is_default)
        if not validate_only:
            await stored.config_store.set_dynamic_configs(name, configs)
            if not is_default:
                await config.sent_again()
