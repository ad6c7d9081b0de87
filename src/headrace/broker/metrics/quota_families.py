"""The table of the metrics of quotas. The names are those that the JMX exporter's example rules give to Kafka's."""

from __future__ import annotations

from headrace.broker.metrics import quota_values as of
from headrace.broker.metrics.family import Family, gauge

_LABELS = ("resource", "user", "clientId")
_WHO = "of an entity with a quota. The labels `user` and `clientId` are empty if the quota counts all of them together"

QUOTAS: tuple[Family, ...] = (
    gauge(
        "kafka_server_quota_byte_rate",
        f"Bytes per second {_WHO}. `resource` is Produce or Fetch.",
        of.client_rates(lambda quotas: quotas.throttling.produce, lambda quotas: quotas.throttling.fetch),
        *_LABELS,
    ),
    gauge(
        "kafka_server_quota_request_time",
        f"The time of requests {_WHO}, as a percentage of one thread.",
        of.client_rates(lambda quotas: quotas.throttling.request),
        *_LABELS,
    ),
    gauge(
        "kafka_server_quota_mutation_rate",
        f"Partitions created and deleted per second {_WHO}.",
        of.mutations(lambda each, now_ms: each.rate.per_second(now_ms)),
        *_LABELS,
    ),
    gauge(
        "kafka_server_quota_tokens",
        f"Partitions that may still be created or deleted {_WHO}. A negative number is a debt.",
        of.mutations(lambda each, now_ms: each.bucket.tokens(now_ms)),
        *_LABELS,
    ),
    gauge(
        "kafka_server_quota_throttle_time",
        f"Milliseconds for which connections were muted, on average over the last minute, {_WHO}.",
        of.throttle_times,
        *_LABELS,
    ),
    gauge(
        "kafka_server_quota_exempt_request_time",
        "The time of requests that are exempt from quotas, as a percentage of one thread. Counted if there is a quota "
        "on the time of requests.",
        of.exempt_time,
    ),
    gauge(
        "kafka_server_quota_queue_size",
        "Connections that are muted.",
        of.muted_connections,
        "resource",
    ),
    gauge(
        "kafka_server_socketservermetrics_broker_connection_accept_rate",
        "Connections accepted per second.",
        of.broker_accept_rate,
    ),
    gauge(
        "kafka_server_socketservermetrics_connection_accept_rate",
        "Connections accepted per second by a listener.",
        of.listeners(lambda listener, now_ms: listener.rate.per_second(now_ms)),
        "listener",
    ),
    gauge(
        "kafka_server_socketservermetrics_connection_accept_throttle_time",
        "Milliseconds for which a listener paused because of `max.connection.creation.rate`, on average.",
        of.listeners(lambda listener, now_ms: listener.throttle_times.average(now_ms)),
        "listener",
    ),
    gauge(
        "kafka_server_socketservermetrics_ip_connection_accept_throttle_time",
        "Milliseconds after which connections were closed because of the quota of their address, on average.",
        of.listeners(lambda listener, now_ms: listener.ip_throttle_times.average(now_ms)),
        "listener",
    ),
)
