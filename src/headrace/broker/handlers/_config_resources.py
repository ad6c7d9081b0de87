"""What the config APIs share: a resource is a topic, a group, a broker, or the default of all brokers (no name)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.network.request import Request
from headrace.protocol.errors import InvalidRequest, code_for_errors
from headrace.protocol.wire.large_messages import ElementArray

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

TOPIC = 2
BROKER = 4
GROUP = 32
CLUSTER_DEFAULT = ""

#: From a resource of the request and the settings stored for it to the settings that shall be stored.
ResourceChange = Callable[[Any, Mapping[str, str]], dict[str, str]]
#: The same, and whether it is for one broker and not for all.
BrokerChange = Callable[[Any, Mapping[str, str], bool], dict[str, str]]


def check_broker_name(broker: Broker, name: str) -> None:
    """A broker's settings are known to itself alone, so that is whom a client must ask."""
    if name not in (CLUSTER_DEFAULT, str(broker.broker_id)):
        raise InvalidRequest(f"this is broker {broker.broker_id}, not {name!r}")


async def alter_resources(
    request: Request,
    broker: Broker,
    change_topic: ResourceChange,
    change_group: ResourceChange,
    change_broker: BrokerChange,
) -> dict[str, Any]:
    """The answer to a request that changes settings; each resource succeeds or fails alone."""
    body = request.body
    repeated = await request.slices.repeated(body.resources, lambda each: (each.resource_type, each.resource_name))

    async def alter(resource: Any) -> dict[str, Any]:
        kind, name = resource.resource_type, resource.resource_name
        with code_for_errors(resource_type=kind, resource_name=name) as answer:
            if (kind, name) in repeated:
                raise InvalidRequest("the resource is named twice in the request")
            if isinstance(resource.configs, ElementArray):
                raise InvalidRequest(f"{len(resource.configs)} settings are given for one resource, which has fewer")
            if kind == TOPIC:
                if not name:
                    raise InvalidRequest("topics have no settings that hold for all of them")
                broker.topics.check_name(name)
                configs = change_topic(resource, await broker.topics.stored_configs(name))
                if not body.validate_only:
                    await broker.topics.set_configs(name, configs)
            elif kind == GROUP:
                if not name:
                    raise InvalidRequest("groups have no settings that hold for all of them but the brokers' own")
                configs = change_group(resource, broker.group_configs.of(name))
                if not body.validate_only:
                    await broker.set_group_configs(name, configs)
            elif kind == BROKER:
                check_broker_name(broker, name)
                is_default = name == CLUSTER_DEFAULT
                stored = broker.config.dynamic_default if is_default else broker.config.dynamic_broker
                configs = change_broker(resource, stored, not is_default)
                if not body.validate_only:
                    await broker.set_dynamic_configs(name, configs)
            else:
                raise InvalidRequest(f"resources of type {kind} have no settings here")
        return answer

    return {"responses": await request.awaited_answers(body.resources, alter, "responses")}
