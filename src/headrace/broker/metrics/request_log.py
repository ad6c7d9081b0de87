"""Writes the log of requests: one line per answered request, if ``kafka.request.logger`` has the level DEBUG.

The logger, the level and the fields of a line are Kafka's. The bodies of request and answer are left out, because they
may have secrets and records. As in the logging file that Kafka ships, the logger has the level WARN unless somebody
sets another one: with ``--log-level debug`` a broker does not write a line per request. To see the requests of a broker
that runs::

    headrace configs --alter --broker-logger 0 --add-config kafka.request.logger=DEBUG
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import NOTSET, WARNING, getLogger
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.network.request import Request

request_logger = getLogger("kafka.request.logger")
if request_logger.level == NOTSET:
    request_logger.setLevel(WARNING)

#: The times of a line, and the names of the same times in metrics.
_TIMES = {
    "totalTimeMs": "totaltimems",
    "requestQueueTimeMs": "requestqueuetimems",
    "localTimeMs": "localtimems",
    "remoteTimeMs": "remotetimems",
    "responseQueueTimeMs": "responsequeuetimems",
    "sendTimeMs": "responsesendtimems",
}


def log_request(request: Request, times_ms: Mapping[str, float]) -> None:
    """Writes the line of a request whose answer is sent."""
    from json import dumps  # only while somebody reads the requests

    connection = request.connection
    name, version = connection.client_software
    line = {
        "requestHeader": {
            "clientId": request.client_id,
            "correlationId": request.correlation_id,
            "requestApiKey": int(request.api),
            "requestApiVersion": request.version,
            "requestApiKeyName": request.api.name,
        },
        "requestSizeBytes": request.size_bytes,
        "connection": connection.peer,
        **{name: round(times_ms[metric], 3) for name, metric in _TIMES.items()},
        "principal": str(connection.principal),
        "listener": connection.listener_name,
        "clientInformation": {"softwareName": name, "softwareVersion": version},
    }
    request_logger.debug("Completed request:%s", dumps(line))
