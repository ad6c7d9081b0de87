"""DescribeUserScramCredentials (key 50): the mechanisms and iterations of users that log in by SCRAM.

Speaks v0. Null or no users asks for all users. A user without credentials is answered with RESOURCE_NOT_FOUND, a user
that the request names twice with DUPLICATE_RESOURCE. Salts and keys are never shown. The client needs DESCRIBE on the
cluster.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation
from headrace.security.sasl.scram import MECHANISM_IDS

if TYPE_CHECKING:
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.authorization.authorizer import Authorizer

_DENIED = "Cluster authorization failed."
_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_UNKNOWN = "Attempt to describe a user credential that does not exist: "


async def handle(request: Request, authorizer: Authorizer, scram_users: ScramUsers) -> Reply:
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE):
        return _denied(len(request.body.users or ()))
    wanted = request.body.users or ()
    counts = Counter(user.name for user in wanted) if wanted else dict.fromkeys(scram_users, 1)
    results = await request.answers(
        list(counts.items()), lambda asked: _described(scram_users, *asked), "results", from_state=True
    )
    return {"error_code": ErrorCode.none, "results": results}


def _denied(count: int) -> Reply:
    """As in Kafka, there is a result for each user, without the user's name."""
    code = ErrorCode.cluster_authorization_failed
    return {"error_code": code, "error_message": _DENIED, "results": [_failed("", code, _DENIED)] * count}


def _described(users: ScramUsers, name: str, count: int) -> dict[str, Any]:
    if count > 1:
        return _failed(name, ErrorCode.duplicate_resource, _TWICE + name)
    credentials = users.of(name)
    if not credentials:
        return _failed(name, ErrorCode.resource_not_found, _UNKNOWN + name)
    infos = [
        {"mechanism": MECHANISM_IDS[mechanism], "iterations": credential.iterations}
        for mechanism, credential in credentials.items()
    ]
    return {"user": name, "error_code": ErrorCode.none, "credential_infos": infos}


def _failed(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": ()}
