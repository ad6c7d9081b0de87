"""ListConfigResources (key 74): the names of the resources that have settings (KIP-1142).

Speaks v0 to v1. v0 (ListClientMetricsResources) asks for the subscriptions of client metrics. If v1 names no types, all
types are meant. Only groups and subscriptions with settings of their own are listed. An unknown type is
UNSUPPORTED_VERSION, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.handlers._config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.telemetry.subscriptions import Subscriptions

_TYPES = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


async def handle(
    request: Request,
    authorizer: Authorizer,
    metadata: MetadataCache,
    group_configs: GroupConfigs,
    client_metrics: Subscriptions,
) -> Reply:
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE_CONFIGS):
        return {"error_code": ErrorCode.cluster_authorization_failed, "config_resources": ()}
    wanted = set(getattr(request.body, "resource_types", (CLIENT_METRICS,))) or _TYPES
    if not wanted <= _TYPES:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
    names: dict[int, Iterable[str]] = {
        TOPIC: (topic.name for topic in metadata),
        BROKER: map(str, metadata.nodes),
        BROKER_LOGGER: map(str, metadata.nodes),
        CLIENT_METRICS: client_metrics,
        GROUP: group_configs,
    }
    found = [(kind, name) for kind in sorted(wanted) for name in names[kind]]
    answers = await request.answers(found, _described, "config_resources", from_state=True)
    return {"error_code": ErrorCode.none, "config_resources": answers}


def _described(resource: tuple[int, str]) -> dict[str, object]:
    kind, name = resource
    return {"resource_name": name, "resource_type": kind}
