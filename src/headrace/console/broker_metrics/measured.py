"""Makes numbers of the series of brokers: versions, totals of the cluster, and the use of quotas. No I/O.

The names and labels are those of ``docs/metrics.md``, which the JMX exporter's example rules give Apache Kafka too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.security.sanitizer import desanitize

INFO = "kafka_server_app_info"
REQUESTS = "kafka_network_requestmetrics_requests_total"
TIMES = "kafka_network_requestmetrics_totaltimems"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
THROTTLE = "kafka_server_quota_throttle_time"
#: The metrics that tell the use of quotas, with the key of the quota that they count for, by their ``resource``.
USES: Mapping[tuple[str, str], str] = {
    ("kafka_server_quota_byte_rate", "Produce"): "producer_byte_rate",
    ("kafka_server_quota_byte_rate", "Fetch"): "consumer_byte_rate",
    ("kafka_server_quota_request_time", "Request"): "request_percentage",
    ("kafka_server_quota_mutation_rate", "ControllerMutation"): "controller_mutation_rate",
}
_KEYS = {resource: key for (_, resource), key in USES.items()}
#: The metrics that are read as they are; the others are counters, whose growth counts.
GAUGES = (INFO, TIMES, THROTTLE, *sorted({name for name, _ in USES}))
COUNTERS = (REQUESTS, BYTES_IN, BYTES_OUT)
#: A Fetch is counted once more by its kind.
COUNTED_TWICE = ("FetchConsumer", "FetchFollower")
#: The total that each counter adds to.
TOTALS = {REQUESTS: "requests", BYTES_IN: "bytes_in", BYTES_OUT: "bytes_out"}
#: The p99 of requests, by the label ``request``.
_P99 = {"Produce": "produce_p99", "FetchConsumer": "fetch_p99"}


class Point(NamedTuple):
    """The value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


class QuotaUse(NamedTuple):
    """Holds the use of a quota by a client. Quotas are per broker: it is that of the broker where the client uses most.

    :ivar user, client_id: empty if the quota counts all users, or all client ids, together.
    :ivar key: the name of the limit, such as ``producer_byte_rate``.
    :ivar throttle_ms: for how long the connections were muted, on average; None if they never were.
    """

    user: str
    client_id: str
    key: str
    value: float | None
    throttle_ms: float | None


@dataclass(frozen=True)
class Measured:
    """Holds the numbers that the metrics of the brokers tell at one moment.

    :ivar versions: the software of each broker that tells it.
    :ivar totals: ``requests``, ``bytes_in`` and ``bytes_out`` per second of all brokers, ``produce_p99`` and
        ``fetch_p99`` in milliseconds of the slowest broker. None for what is not known.
    :ivar problems: the addresses that do not answer, and why.
    """

    time_ms: int
    versions: Mapping[int, str] = field(default_factory=dict)
    totals: Mapping[str, float | None] = field(default_factory=dict)
    uses: tuple[QuotaUse, ...] = ()
    problems: tuple[str, ...] = ()


ALL_TOTALS = (*TOTALS.values(), *_P99.values())


def versions(points: Iterable[Point]) -> dict[int, str]:
    found = {}
    for point in points:
        broker_id = point.labels.get("broker_id", "")
        if point.name == INFO and broker_id.isascii() and broker_id.isdecimal() and point.labels.get("version"):
            found[int(broker_id)] = point.labels["version"][:100]
    return found


def slowest(points: Iterable[Point]) -> dict[str, float]:
    """The p99 of requests on the slowest broker, in milliseconds."""
    found: dict[str, float] = {}
    for point in points:
        total = _P99.get(point.labels.get("request", ""))
        if point.name == TIMES and point.labels.get("quantile") == "0.99" and total is not None:
            found[total] = max(point.value, found.get(total, 0.0))
    return found


def sums(points: Iterable[Point]) -> dict[str, float]:
    """The sums of counters: requests, and bytes of all topics together, which have no label ``topic``."""
    found: dict[str, float] = {}
    for point in points:
        is_part = point.labels.get("topic") or point.labels.get("request") in COUNTED_TWICE
        if point.name in TOTALS and not is_part:
            found[TOTALS[point.name]] = found.get(TOTALS[point.name], 0.0) + point.value
    return found


def uses(points: Iterable[Point]) -> tuple[QuotaUse, ...]:
    """The use of quotas, of the broker where it is highest."""
    used: dict[tuple[str, str, str], float] = {}
    throttled: dict[tuple[str, str, str], float] = {}
    for point in points:
        resource = point.labels.get("resource", "")
        if point.name == THROTTLE:
            key, into = _KEYS.get(resource), throttled
        else:
            key, into = USES.get((point.name, resource)), used
        if key is not None:
            at = (desanitize(point.labels.get("user", "")), point.labels.get("clientId", ""), key)
            into[at] = max(point.value, into.get(at, 0.0))
    return tuple(QuotaUse(*at, used.get(at), throttled.get(at)) for at in sorted(used.keys() | throttled.keys()))
