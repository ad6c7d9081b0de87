"""ApiVersions (key 18): the APIs of the broker with their versions. The first request of nearly every client.

Speaks v0 to v4. A request of an unknown version is answered in v0 with UNSUPPORTED_VERSION and the table of APIs, so
that a newer client can use an older version (KIP-511). From v3 on the client sends the name and version of its library,
which the metrics show; they must match
``[a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?``.

Also from v3 on the answer has the features of the cluster (KIP-584). Clients use two of them: transactions of KIP-890
(``transaction.version`` 2) and the group protocol of KIP-848 (``group.version`` 1). Both are always enabled, so the
epoch of the list is 0. Only v4 answers with supported ranges that start at 0, because older clients cannot read them
(KAFKA-17011).

The APIs that brokers send to each other (4 to 7) are in the table only if the broker is in a cluster. Telemetry is in
it only if somebody can read the metrics (``Telemetry.is_offered``), as in Kafka: librdkafka logs a line for each client
that asks for a subscription.

As in Apache Kafka 4, the table says that Produce begins at v0: librdkafka disables compression if the minimum is
higher. Produce requests below v3 are refused all the same.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from headrace.broker.network.request import Reply, Request
from headrace.broker.telemetry.telemetry import Telemetry
from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode

#: The enabled level of each feature, which is also the highest known level.
FEATURES = {"group.version": 1, "transaction.version": 2}
_FEATURES_EPOCH = 0
_RANGES_FROM_0_SINCE = 4
_TELEMETRY = frozenset({Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY})
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(request: Request, served_apis: tuple[Api, ...], telemetry: Telemetry) -> Reply:
    table = _table(served_apis, has_telemetry=telemetry.is_offered)
    if request.codec is None:
        request.answer_in(0)
        return {"error_code": ErrorCode.unsupported_version, "api_keys": table}
    if request.version >= 3:
        software = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE.fullmatch(part) for part in software):
            return {"error_code": ErrorCode.invalid_request, "api_keys": ()}
        request.connection.client_software = software
    return {"api_keys": table, **_features(request.version)}


@cache
def _features(version: int) -> dict[str, Any]:
    supported = [
        {"name": name, "min_version": 0, "max_version": level}
        for name, level in FEATURES.items()
        if version >= _RANGES_FROM_0_SINCE
    ]
    finalized = [
        {"name": name, "max_version_level": level, "min_version_level": level} for name, level in FEATURES.items()
    ]
    return {
        "supported_features": supported,
        "finalized_features": finalized,
        "finalized_features_epoch": _FEATURES_EPOCH,
    }


@cache
def _table(served_apis: tuple[Api, ...], *, has_telemetry: bool) -> list[dict[str, Any]]:
    return [
        {
            "api_key": api,
            "min_version": 0 if api is Api.PRODUCE else versions_of(api).start,
            "max_version": versions_of(api).stop - 1,
        }
        for api in served_apis
        if has_telemetry or api not in _TELEMETRY
    ]
