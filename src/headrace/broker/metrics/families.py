"""The table of all metrics of a broker.

The exporter serves this table, and ``docs/metrics.md`` is made from it. Names and labels are those of people's
dashboards for Apache Kafka: the names that the JMX exporter's example rules (``kafka-2_0_0.yml``, lowercase names) give
to Kafka's MBeans, and for connections the names of the rules of Confluent's dashboards. As in those rules, the times of
requests are gauges with a ``quantile`` label and a ``_count`` beside them, without a sum. A true summary would not do:
Prometheus 3 rewrites its quantile "0.50" to "0.5", and the dashboards ask for "0.50".
"""

from __future__ import annotations

from headrace.broker.metrics import values as of
from headrace.broker.metrics.cluster_families import BROKER, CONTROLLER, REPLICAS, ZOOKEEPER
from headrace.broker.metrics.family import Family, counter, gauge, untyped
from headrace.broker.metrics.quota_families import QUOTAS
from headrace.broker.metrics.telemetry_families import TELEMETRY

_TOPIC_COUNTERS = {
    "messagesin": ("messages_in", "Records appended"),
    "bytesin": ("bytes_in", "Bytes of record batches appended, as stored on disk"),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers"),
    "totalproducerequests": ("produce_requests", "Partitions written to in Produce requests, successful or not"),
    "totalfetchrequests": ("fetch_requests", "Partitions read in Fetch requests, successful or not"),
    "failedproducerequests": ("failed_produce_requests", "Partitions for which a Produce request failed"),
    "failedfetchrequests": ("failed_fetch_requests", "Partitions for which a Fetch request failed"),
}

_STAGES = {
    "totaltimems": "in all, from the last byte of the request to the last byte of the answer",
    "requestqueuetimems": "waiting in the request queue",
    "localtimems": "in its handler, until the handler answered or had to wait",
    "remotetimems": "waiting for something else: records for a Fetch, followers, a flush",
    "responsequeuetimems": "encoding the answer, before the first byte was sent",
    "responsesendtimems": "sending the answer",
}


_TOPICS = tuple(
    counter(
        f"kafka_server_brokertopicmetrics_{name}_total",
        f"{meaning}. Without a label: all topics together.",
        of.topic_counter(attribute),
        "topic",
    )
    for name, (attribute, meaning) in _TOPIC_COUNTERS.items()
)

_REQUEST_TIMES = tuple(
    family
    for stage, what in _STAGES.items()
    for family in (
        gauge(
            f"kafka_network_requestmetrics_{stage}",
            f"Milliseconds that a request spent {what}: quantiles of the last 2048 requests of its API.",
            of.request_quantiles(stage),
            "request",
            "quantile",
        ),
        untyped(
            f"kafka_network_requestmetrics_{stage}_count",
            f"Requests whose {stage} was measured: all requests that were answered.",
            of.request_count,
            "request",
        ),
    )
)

_LOGINS = tuple(
    counter(
        f"kafka_server_socketservermetrics_{name}_total", f"{meaning} on a listener.", of.logins(attribute), "listener"
    )
    for name, attribute, meaning in (
        ("successful_authentication", "succeeded", "Logins by SASL that succeeded"),
        ("failed_authentication", "failed", "Logins by SASL that failed"),
        ("successful_reauthentication", "succeeded_again", "Repeated logins (KIP-368) that succeeded"),
        ("failed_reauthentication", "failed_again", "Repeated logins (KIP-368) that failed"),
    )
)

_NETWORK = (
    counter(
        "kafka_network_requestmetrics_requests_total",
        "Requests answered. A Fetch counts as Fetch, and also as FetchConsumer or FetchFollower.",
        of.requests,
        "request", "version",
    ),
    *_REQUEST_TIMES,
    gauge("kafka_network_requestchannel_requestqueuesize", "Requests in the queue.", of.request_queue_size),
    gauge(
        "kafka_server_socketservermetrics_connections",
        "Open connections by client library, as the client names it (KIP-511).",
        of.connections_by_software,
        "client_software_name", "client_software_version", "listener",
    ),
    gauge(
        "kafka_server_socketservermetrics_connection_count",
        "Open connections of a listener.",
        of.connections_by_listener,
        "listener",
    ),
    *_LOGINS,
)  # fmt: skip

_WAITING = (
    gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Entries in the watch lists: an operation that waits for three partitions counts three times.",
        of.purgatory_size,
        "delayedOperation",
    ),
    gauge(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "Operations that wait in the purgatory.",
        of.delayed_operations,
        "delayedOperation",
    ),
    gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", of.fetch_sessions),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in all fetch sessions.",
        of.fetch_session_partitions,
    ),
    counter(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "Fetch sessions that were removed to make room for others.",
        of.fetch_session_evictions,
    ),
)

_LOGS = (
    gauge(
        "kafka_log_log_size", "Bytes of the segments of a log.", of.log_gauge(lambda log: log.size_bytes),
        "topic", "partition",
    ),
    gauge(
        "kafka_log_log_logstartoffset", "The first offset of a log.", of.log_gauge(lambda log: log.log_start_offset),
        "topic", "partition",
    ),
    gauge(
        "kafka_log_log_logendoffset", "The offset of the next record of a log.",
        of.log_gauge(lambda log: log.next_offset),
        "topic", "partition",
    ),
    gauge(
        "kafka_log_log_numlogsegments", "Segments of a log.", of.log_gauge(lambda log: len(log.segments)),
        "topic", "partition",
    ),
    gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log dirs that failed.", of.offline_log_dirs),
    gauge(
        "kafka_log_logmanager_logdirectoryoffline", "1 for a log dir that failed.", of.log_dir_is_offline,
        "logDirectory",
    ),
    gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that are not compacted, because a record in them cannot be read.",
        of.uncleanable_logs,
        "logDirectory",
    ),
    gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "The uncompacted share of the log with the largest such share, in percent, at the last check for compaction.",
        of.max_dirty_percent,
    ),
    gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Milliseconds since the last check for logs to compact. If above `log.cleaner.backoff.ms`, compaction is busy.",
        of.since_last_cleaning_ms,
    ),
)  # fmt: skip

#: By subject, as in the documentation.
SUBJECTS: dict[str, tuple[Family, ...]] = {
    "Topics": _TOPICS,
    "Requests and connections": _NETWORK,
    "Telemetry of clients": TELEMETRY,
    "Quotas": QUOTAS,
    "Waiting operations and fetch sessions": _WAITING,
    "Logs": _LOGS,
    "Replicas": REPLICAS,
    "The controller and the cluster": CONTROLLER,
    "The session with ZooKeeper": ZOOKEEPER,
    "The broker": BROKER,
}

FAMILIES = tuple(family for families in SUBJECTS.values() for family in families)
