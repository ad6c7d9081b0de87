"""THE table of the clients' metrics: names, what they read, and one sentence for the docs.

The names are those of Kafka's Java clients. A metric that needs work per record (``record-size-avg``) or that an event
loop cannot measure (``io-wait-ratio``) is left out. ``throttle-time`` of the admin client is the only name of our own:
Java's admin client does not show its throttling.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.metrics.sensor import Stat

#: The statistics of a row that reads a function instead of a sensor.
GAUGE: tuple[Stat, ...] = ()
AVG_MAX = (Stat.AVG, Stat.MAX)
RATE_TOTAL = (Stat.RATE, Stat.TOTAL)
EVENTS = (Stat.EVENT_RATE, Stat.EVENTS)


class Row(NamedTuple):
    """One metric, or several that differ in their statistic."""

    source: str
    #: Without the ending of the statistic.
    name: str
    stats: tuple[Stat, ...]
    doc: str


#: The group ``KIND-metrics``, for each kind of client.
CONNECTIONS = (
    Row("opened", "connection-creation", EVENTS, "connections that were opened"),
    Row("closed", "connection-close", EVENTS, "connections that ended"),
    Row("count", "connection-count", GAUGE, "open connections"),
    Row("logged_in", "successful-authentication", EVENTS, "connections whose TLS handshake or login succeeded"),
    Row("rejected", "failed-authentication", EVENTS, "connections whose TLS handshake or login failed"),
    Row("sent", "request", EVENTS, "requests"),
    Row("sent", "request-size", AVG_MAX, "the size of a request, in bytes"),
    Row("sent", "outgoing-byte", RATE_TOTAL, "bytes of requests"),
    Row("received", "response", EVENTS, "responses"),
    Row("received", "incoming-byte", RATE_TOTAL, "bytes of responses"),
)

#: The group ``KIND-node-metrics``, per broker.
NODE = (
    Row("sent", "request", EVENTS, "requests to the broker"),
    Row("sent", "request-size", AVG_MAX, "the size of a request to the broker, in bytes"),
    Row("sent", "outgoing-byte", RATE_TOTAL, "bytes of requests to the broker"),
    Row("received", "response", EVENTS, "responses of the broker"),
    Row("received", "incoming-byte", RATE_TOTAL, "bytes of responses of the broker"),
    Row("latency", "request-latency", AVG_MAX, "milliseconds from a Produce or Fetch request to its response"),
)

#: The group ``producer-metrics``.
PRODUCER = (
    Row("throttle", "produce-throttle-time", AVG_MAX, "milliseconds that a broker has throttled a request"),
    Row("latency", "request-latency", AVG_MAX, "milliseconds from a Produce request to its response"),
    Row("records", "record-send", RATE_TOTAL, "records in requests"),
    Row("request_records", "records-per-request", (Stat.AVG,), "records in one request"),
    Row("bytes", "batch-size", AVG_MAX, "the size of a batch in a request, in bytes"),
    Row("queue_time", "record-queue-time", AVG_MAX, "milliseconds that a batch has waited before it was sent"),
    Row("compression", "compression-rate", (Stat.AVG,), "the compressed size of a batch, as a part of its full size"),
    Row("retries", "record-retry", RATE_TOTAL, "records that were sent again"),
    Row("errors", "record-error", RATE_TOTAL, "records that were not delivered"),
    Row("splits", "batch-split", EVENTS, "batches that were split because the broker found them too large"),
    Row("exhausted", "buffer-exhausted", EVENTS, "records that got no memory within max.block.ms"),
    Row("in_flight", "requests-in-flight", GAUGE, "Produce requests without a response"),
    Row("metadata_age", "metadata-age", GAUGE, "seconds since the last response to Metadata"),
    Row("buffer_total", "buffer-total-bytes", GAUGE, "buffer.memory"),
    Row("buffer_available", "buffer-available-bytes", GAUGE, "the part of buffer.memory that is free"),
    Row("waiting", "waiting-threads", GAUGE, "calls that wait for memory"),
    Row("memory_wait", "bufferpool-wait-time-ns", (Stat.TOTAL,), "nanoseconds that calls have waited for memory"),
    Row("metadata_wait", "metadata-wait-time-ns", (Stat.TOTAL,), "nanoseconds that calls have waited for metadata"),
    Row("flush", "flush-time-ns", (Stat.TOTAL,), "nanoseconds in flush()"),
    Row("txn_init", "txn-init-time-ns", (Stat.TOTAL,), "nanoseconds in init_transactions()"),
    Row("txn_begin", "txn-begin-time-ns", (Stat.TOTAL,), "nanoseconds in begin_transaction()"),
    Row("txn_offsets", "txn-send-offsets-time-ns", (Stat.TOTAL,), "nanoseconds in send_offsets_to_transaction()"),
    Row("txn_commit", "txn-commit-time-ns", (Stat.TOTAL,), "nanoseconds in commit_transaction()"),
    Row("txn_abort", "txn-abort-time-ns", (Stat.TOTAL,), "nanoseconds in abort_transaction()"),
)

#: The group ``producer-topic-metrics``, per topic.
PRODUCER_TOPIC = (
    Row("records", "record-send", RATE_TOTAL, "records in requests"),
    Row("bytes", "byte", RATE_TOTAL, "bytes of batches in requests"),
    Row("compression", "compression-rate", (Stat.PLAIN_AVG,), "the compressed size, as a part of the full size"),
    Row("retries", "record-retry", RATE_TOTAL, "records that were sent again"),
    Row("errors", "record-error", RATE_TOTAL, "records that were not delivered"),
)

#: The group ``consumer-metrics``.
CONSUMER = (
    Row("between_polls", "time-between-poll", AVG_MAX, "milliseconds between two calls of poll()"),
    Row("idle", "poll-idle-ratio", (Stat.AVG,), "the part of the time that poll() took, and not the program"),
    Row("last_poll", "last-poll-seconds-ago", GAUGE, "seconds since the last call of poll(); -1 before the first"),
    Row("commit_sync", "commit-sync-time-ns", (Stat.TOTAL,), "nanoseconds in commit()"),
    Row("committed", "committed-time-ns", (Stat.TOTAL,), "nanoseconds in committed()"),
)

#: The group ``consumer-fetch-manager-metrics``.
FETCH = (
    Row("throttle", "fetch-throttle-time", AVG_MAX, "milliseconds that a broker has throttled a request"),
    Row("latency", "fetch-latency", AVG_MAX, "milliseconds from a Fetch request to its response"),
    Row("latency", "fetch", EVENTS, "responses to Fetch"),
    Row("fetch_size", "fetch-size", AVG_MAX, "bytes of records in one response to Fetch"),
    Row("records", "records-consumed", RATE_TOTAL, "records that poll() has returned"),
    Row("bytes", "bytes-consumed", RATE_TOTAL, "bytes of the batches that poll() has read to their end"),
    Row("lag_max", "records-lag-max", GAUGE, "the largest lag of a partition now; NaN while no lag is known"),
)

#: The group ``consumer-fetch-manager-metrics``, per topic.
FETCH_TOPIC = (
    Row("records", "records-consumed", RATE_TOTAL, "records that poll() has returned"),
    Row("bytes", "bytes-consumed", RATE_TOTAL, "bytes of the batches that poll() has read to their end"),
)

#: The group ``consumer-coordinator-metrics``.
COORDINATOR = (
    Row("commit", "commit-latency", AVG_MAX, "milliseconds from an OffsetCommit request to its response"),
    Row("commit", "commit", EVENTS, "OffsetCommit requests"),
    Row("assigned", "assigned-partitions", GAUGE, "partitions that are assigned now"),
    Row("heartbeat", "heartbeat-response-time", (Stat.MAX,), "milliseconds from a heartbeat to its response"),
    Row("heartbeat", "heartbeat", EVENTS, "heartbeats"),
    Row("last_heartbeat", "last-heartbeat-seconds-ago", GAUGE, "seconds since the last heartbeat; -1 before it"),
    Row("join", "join-time", AVG_MAX, "milliseconds from a JoinGroup request to its response"),
    Row("join", "join", EVENTS, "JoinGroup requests"),
    Row("sync", "sync-time", AVG_MAX, "milliseconds from a SyncGroup request to its response"),
    Row("sync", "sync", EVENTS, "SyncGroup requests"),
    Row("rebalance", "rebalance-latency", (*AVG_MAX, Stat.TOTAL), "milliseconds that a successful rebalance took"),
    Row("rebalance", "rebalance", (Stat.EVENTS, Stat.EVENTS_PER_HOUR), "successful rebalances"),
    Row("failed", "failed-rebalance", (Stat.EVENTS, Stat.EVENTS_PER_HOUR), "rebalances that failed"),
    Row("last_rebalance", "last-rebalance-seconds-ago", GAUGE, "seconds since the last rebalance; -1 before it"),
    Row("on_assigned", "partition-assigned-latency", AVG_MAX, "milliseconds in the callback on_assigned"),
    Row("on_revoked", "partition-revoked-latency", AVG_MAX, "milliseconds in the callback on_revoked"),
    Row("on_lost", "partition-lost-latency", AVG_MAX, "milliseconds in the callback on_lost"),
)

#: The group ``admin-client-metrics``.
ADMIN = (Row("throttle", "throttle-time", AVG_MAX, "milliseconds that a broker has throttled a request"),)

#: All groups, for the docs: the name with its tags, the clients that have it, and its tables.
GROUPS: tuple[tuple[str, tuple[str, ...], tuple[Row, ...]], ...] = (
    ("producer-metrics", ("client-id",), PRODUCER),
    ("producer-topic-metrics", ("client-id", "topic"), PRODUCER_TOPIC),
    ("consumer-metrics", ("client-id",), CONSUMER),
    ("consumer-fetch-manager-metrics", ("client-id",), FETCH),
    ("consumer-fetch-manager-metrics", ("client-id", "topic"), FETCH_TOPIC),
    ("consumer-coordinator-metrics", ("client-id",), COORDINATOR),
    ("admin-client-metrics", ("client-id",), ADMIN),
    ("producer-metrics, consumer-metrics, admin-client-metrics", ("client-id",), CONNECTIONS),
    ("producer-node-metrics, consumer-node-metrics, admin-client-node-metrics", ("client-id", "node-id"), NODE),
)
