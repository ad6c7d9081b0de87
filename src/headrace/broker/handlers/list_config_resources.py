"""ListConfigResources (key 74): the names of the resources that have settings (KIP-1142).

Speaks v0 to v1. v0 asks for subscriptions of client metrics, which are not supported, so the list is empty. If v1 names
no types, all types are meant. Only groups with settings of their own are listed. An unknown type is
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

_TYPES = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


async def handle(
    request: Request, authorizer: Authorizer, metadata: MetadataCache, group_configs: GroupConfigs
) -> Reply:
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE_CONFIGS):
        return {"error_code": ErrorCode.cluster_authorization_failed, "config_resources": ()}
    wanted = set(getattr(request.body, "resource_types", (CLIENT_METRICS,))) or _TYPES
    if not wanted <= _TYPES:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
    return {
        "error_code": ErrorCode.none,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in sorted(wanted)
            for name in _names(metadata, group_configs, kind)
        ],
    }


def _names(metadata: MetadataCache, group_configs: GroupConfigs, kind: int) -> Iterable[str]:
    if kind == TOPIC:
        return [topic.name for topic in metadata]
    if kind in (BROKER, BROKER_LOGGER):
        return map(str, metadata.nodes)
    if kind == GROUP:
        return group_configs
    return ()
