"""UpdateFeatures (key 57): refuses to change the features of the cluster, which are always enabled (KIP-584).

Speaks v0 to v2. As in Apache Kafka 4.3, a request for the level that a feature has already succeeds. Another level, or
another feature, is INVALID_UPDATE_VERSION, as the error of the whole request.

DescribeQuorum (key 55) is not served, as in Kafka with ZooKeeper: there is no quorum. Clients that ask ApiVersions tell
their users that the broker does not support it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.handlers.api_versions import FEATURES
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.protocol.errors import ErrorCode, InvalidUpdateVersion, KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer


_NO_RESULTS_SINCE = 2


async def handle(request: Request, authorizer: Authorizer) -> Reply:
    updates = request.body.feature_updates
    results: Answers | Sequence[Any] = ()
    try:
        check_cluster(authorizer, request.connection, AclOperation.ALTER)
        if request.version < _NO_RESULTS_SINCE:
            results = await request.answers(updates, _result, "results")
        else:
            async for update in request.slices.over(updates):
                _result(update)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": str(error), "results": ()}
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _result(update: Any) -> dict[str, Any]:
    """
    :raises InvalidUpdateVersion: if the feature does not have the level already.
    """
    name, level = update.feature, update.max_version_level
    if name not in FEATURES:
        raise InvalidUpdateVersion(f"{name!r} is not a feature of this cluster; it has {', '.join(FEATURES)}")
    if level != FEATURES[name]:
        raise InvalidUpdateVersion(f"{name} cannot have the level {level}: it is always enabled at {FEATURES[name]}")
    return {"feature": name, "error_code": ErrorCode.none, "error_message": None}
