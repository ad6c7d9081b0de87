"""DescribeClientQuotas (key 48): the client quotas of the entities that match a filter.

Speaks v0 and v1. The broker first reads what other brokers have changed until now. Needs DESCRIBE_CONFIGS on the
cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.network.request import Reply, Request
from headrace.broker.quotas.entities import parts_of
from headrace.broker.quotas.filters import Component, QuotaFilter
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.broker.quotas.stored_quotas import StoredQuotas


async def handle(
    request: Request, authorizer: Authorizer, client_quotas: ClientQuotas, stored_quotas: StoredQuotas
) -> Reply:
    entries = request.state_answers("entries")
    try:
        check_cluster(authorizer, request.connection, AclOperation.DESCRIBE_CONFIGS)
        components = (Component(each.entity_type, each.match_type, each.match) for each in request.body.components)
        wanted = QuotaFilter(components, is_strict=request.body.strict)
        await stored_quotas.catch_up()
        async for entity, limits in request.slices.over(list(client_quotas.items())):
            if wanted.matches(entity):
                entries.add(
                    {
                        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts_of(entity)],
                        "values": [{"key": key, "value": limit} for key, limit in limits.items()],
                    }
                )
    except KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    return {"error_code": 0, "error_message": None, "entries": entries}
