"""DescribeAcls (key 29): the ACLs that match a filter.

Speaks v1 to v3. Needs DESCRIBE on the cluster. Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers._acl_rules import describe_entry, describe_pattern, read_filter
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer


async def handle(request: Request, authorizer: Authorizer) -> Reply:
    wanted = read_filter(request.body)
    resources = request.state_answers("resources")
    try:
        check_cluster(authorizer, request.connection, AclOperation.DESCRIBE)
        async for pattern in request.slices.over(authorizer.patterns()):
            if not wanted.matches_pattern(pattern):
                continue
            entries = sorted(entry for entry in authorizer.entries(pattern) if wanted.matches_entry(entry))
            if entries:
                resources.add({**describe_pattern(pattern), "acls": [describe_entry(entry) for entry in entries]})
    except KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "resources": ()}
    return {"resources": resources}
