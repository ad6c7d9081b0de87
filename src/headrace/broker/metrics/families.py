"""THE table of metrics: name, kind, labels, meaning, and where the values come from.

The exporter serves what is here and ``docs/metrics.md`` is made from it. Names and labels are those that people's
dashboards have for Apache Kafka: what the JMX exporter's example rules (``kafka-2_0_0.yml``, lowercase names) make of
Kafka's MBeans, and for connections the rules of Confluent's dashboards. As those rules do, the times of requests are
gauges with a ``quantile`` label and a ``_count`` beside them, without a sum; a true summary's quantile "0.50" would be
rewritten to "0.5" by Prometheus 3, and the dashboards ask for the former.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from headrace.broker.metrics import cluster_values as cluster
from headrace.broker.metrics import values as of
from headrace.broker.metrics.values import Value, View


class Kind(Enum):
    """Prometheus' types. A counter's name ends in ``_total``; what counts under another name is untyped."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UNTYPED = "untyped"


class Family(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[View], Iterable[Value]]


_TOPIC_COUNTERS = {
    "messagesin": ("messages_in", "Records appended"),
    "bytesin": ("bytes_in", "Bytes of record batches appended, as they are on disk"),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers"),
    "totalproducerequests": ("produce_requests", "Partitions written to in Produce requests, successful or not"),
    "totalfetchrequests": ("fetch_requests", "Partitions read in Fetch requests, successful or not"),
    "failedproducerequests": ("failed_produce_requests", "Partitions for which a Produce request failed"),
    "failedfetchrequests": ("failed_fetch_requests", "Partitions for which a Fetch request failed"),
}

_STAGES = {
    "totaltimems": "from receiving it whole to having sent the answer",
    "requestqueuetimems": "waiting in the request queue",
    "localtimems": "in its handler, until it was answered or had to wait",
    "remotetimems": "waiting for something else: data for a Fetch, a flush",
    "responsequeuetimems": "encoding the answer, before its first byte was sent",
    "responsesendtimems": "sending the answer",
}


def _gauge(name: str, meaning: str, values: Callable[[View], Iterable[Value]], *labels: str) -> Family:
    return Family(name, Kind.GAUGE, labels, meaning, values)


def _counter(name: str, meaning: str, values: Callable[[View], Iterable[Value]]) -> Family:
    return Family(name, Kind.COUNTER, (), meaning, values)


_TOPICS = tuple(
    Family(
        f"kafka_server_brokertopicmetrics_{name}_total",
        Kind.COUNTER,
        ("topic",),
        f"{meaning}. Without a label: all topics together.",
        of.topic_counter(attribute),
    )
    for name, (attribute, meaning) in _TOPIC_COUNTERS.items()
)

_REQUEST_TIMES = tuple(
    family
    for stage, what in _STAGES.items()
    for family in (
        _gauge(
            f"kafka_network_requestmetrics_{stage}",
            f"Milliseconds that a request took {what}: quantiles of the last 2048 of its kind.",
            of.request_quantiles(stage),
            "request",
            "quantile",
        ),
        Family(
            f"kafka_network_requestmetrics_{stage}_count",
            Kind.UNTYPED,
            ("request",),
            f"Requests whose {stage} was measured: all that were answered.",
            of.request_count,
        ),
    )
)

_NETWORK = (
    Family(
        "kafka_network_requestmetrics_requests_total",
        Kind.COUNTER,
        ("request", "version"),
        "Requests answered. A Fetch counts as Fetch, and as FetchConsumer or FetchFollower.",
        of.requests,
    ),
    *_REQUEST_TIMES,
    _gauge("kafka_network_requestchannel_requestqueuesize", "Requests in the queue.", of.request_queue_size),
    _gauge(
        "kafka_server_socketservermetrics_connections",
        "Open connections by the client library, as it says itself (KIP-511).",
        of.connections_by_software,
        "client_software_name", "client_software_version", "listener",
    ),
    _gauge(
        "kafka_server_socketservermetrics_connection_count",
        "Open connections of a listener.",
        of.connections_by_listener,
        "listener",
    ),
)  # fmt: skip

_WAITING = (
    _gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Entries in the watch lists: an operation that waits for three partitions counts three times.",
        of.purgatory_size,
        "delayedOperation",
    ),
    _gauge(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "Operations that wait.",
        of.delayed_operations,
        "delayedOperation",
    ),
    _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", of.fetch_sessions),
    _gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in all fetch sessions.",
        of.fetch_session_partitions,
    ),
    Family(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        Kind.COUNTER,
        (),
        "Fetch sessions that had to make room for others.",
        of.fetch_session_evictions,
    ),
)

_LOGS = (
    _gauge(
        "kafka_log_log_size", "Bytes of a log's segments.", of.log_gauge(lambda log: log.size_bytes),
        "topic", "partition",
    ),
    _gauge(
        "kafka_log_log_logstartoffset", "A log's first offset.", of.log_gauge(lambda log: log.log_start_offset),
        "topic", "partition",
    ),
    _gauge(
        "kafka_log_log_logendoffset", "The offset that a log's next record gets.",
        of.log_gauge(lambda log: log.next_offset),
        "topic", "partition",
    ),
    _gauge(
        "kafka_log_log_numlogsegments", "A log's segments.", of.log_gauge(lambda log: len(log.segments)),
        "topic", "partition",
    ),
    _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log dirs that failed.", of.offline_log_dirs),
    _gauge(
        "kafka_log_logmanager_logdirectoryoffline", "1 for a log dir that failed.", of.log_dir_is_offline,
        "logDirectory",
    ),
    _gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that compaction leaves alone because something in them cannot be read.",
        of.uncleanable_logs,
        "logDirectory",
    ),
    _gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "How much of the filthiest compacted log is not compacted, when compaction last looked.",
        of.max_dirty_percent,
    ),
    _gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Milliseconds since compaction last looked at the logs. Growing beyond `log.cleaner.backoff.ms`: it is busy.",
        of.since_last_cleaning_ms,
    ),
)  # fmt: skip

_CLUSTER = (
    _gauge("kafka_server_replicamanager_partitioncount", "Partitions that this broker has.", cluster.partition_count),
    _gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", cluster.leader_count),
    _gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led by this broker of which a replica is not in sync.",
        cluster.under_replicated,
    ),
    _gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led by this broker with fewer in sync than `min.insync.replicas`: acks=all is refused.",
        cluster.under_min_isr,
    ),
    _gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led by this broker with just `min.insync.replicas` in sync.",
        cluster.at_min_isr,
    ),
    _gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        "Partitions led by this broker that are being reassigned.",
        cluster.member_value(lambda member: len(member.replicas.reassigning())),
    ),
    _gauge(
        "kafka_cluster_partition_underreplicated",
        "1 for a partition led by this broker of which a replica is not in sync.",
        cluster.partition_gauge(lambda partition: partition.is_under_replicated),
        "topic",
        "partition",
    ),
    _gauge(
        "kafka_cluster_partition_underminisr",
        "1 for a partition led by this broker with fewer in sync than `min.insync.replicas`.",
        cluster.partition_gauge(lambda partition: partition.is_under_min_isr),
        "topic",
        "partition",
    ),
    _gauge(
        "kafka_cluster_partition_insyncreplicascount",
        "Replicas in sync of a partition led by this broker; of others that it has 0.",
        cluster.partition_gauge(lambda partition: partition.in_sync_count),
        "topic",
        "partition",
    ),
    _counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Times that replicas fell behind and were taken out of the in-sync replicas.",
        cluster.member_value(lambda member: member.replicas.isr_shrinks),
    ),
    _counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Times that replicas have caught up and are in sync again.",
        cluster.member_value(lambda member: member.replicas.isr_expands),
    ),
    _counter(
        "kafka_server_replicamanager_failedisrupdates_total",
        "Changes of in-sync replicas that were refused, as somebody else had written.",
        cluster.member_value(lambda member: member.replicas.failed_isr_updates),
    ),
    _counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes of record batches that this broker has fetched from leaders.",
        cluster.member_value(lambda member: member.replicas.bytes_in),
    ),
    _counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes of record batches that this broker has sent to followers.",
        cluster.member_value(lambda member: member.replicas.bytes_out),
    ),
    _gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the replica furthest behind has to catch up.",
        cluster.fetchers_value(lambda fetchers: max(fetchers.lags().values(), default=0)),
        "clientId",
    ),
    _gauge(
        "kafka_server_replicafetchermanager_minfetchrate",
        "Fetches a second over about the last minute, of the fetcher that fetches least.",
        cluster.fetchers_value(lambda fetchers: fetchers.min_fetch_rate()),
        "clientId",
    ),
    _gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that are not fetched: their log failed, or their leader knows of a newer one.",
        cluster.fetchers_value(lambda fetchers: fetchers.failed_count()),
        "clientId",
    ),
    _gauge(
        "kafka_server_replicafetchermanager_deadthreadcount",
        "Fetchers that have ended and should not have.",
        cluster.fetchers_value(lambda fetchers: fetchers.dead_count()),
        "clientId",
    ),
    _gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records that a replica is behind its leader.",
        cluster.replica_lag,
        "topic",
        "partition",
    ),
    _gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions of this broker whose log dir failed.",
        cluster.offline_replicas,
    ),
    _gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 if this broker is the controller.",
        cluster.active_controller,
    ),
    _gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", cluster.topic_count),
    _gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions of the cluster.",
        cluster.global_partition_count,
    ),
    _gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions of the cluster that have no leader.",
        cluster.offline_partitions,
    ),
    _gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Brokers that live.",
        cluster.controller_gauge(lambda controller: controller.active_broker_count, alone=1),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions that are not led by their preferred replica.",
        cluster.controller_gauge(lambda controller: controller.preferred_replica_imbalance_count),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_topicstodeletecount",
        "Topics whose deletion has begun.",
        cluster.controller_gauge(lambda controller: controller.topics_to_delete_count),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_replicastodeletecount",
        "Replicas of those topics that are not deleted yet.",
        cluster.controller_gauge(lambda controller: controller.replicas_to_delete_count),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_topicsineligibletodeletecount",
        "Topics whose deletion waits: a replica is dead or could not be deleted, or a partition is being reassigned.",
        cluster.controller_gauge(lambda controller: controller.topics_ineligible_to_delete_count),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_replicasineligibletodeletecount",
        "Replicas of topics to delete that are dead or could not be deleted.",
        cluster.controller_gauge(lambda controller: controller.replicas_ineligible_to_delete_count),
    ),
    _counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Leaders elected by this broker's controller that were not in sync: what they lacked is lost.",
        cluster.controller_gauge(lambda controller: controller.unclean_elections_count),
    ),
    _gauge(
        "kafka_controller_kafkacontroller_controllerstate",
        "What this broker's controller does, by Kafka's number. 0: nothing.",
        cluster.controller_gauge(lambda controller: controller.state_number),
    ),
    _gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "Events that wait for this broker's controller.",
        cluster.controller_gauge(lambda controller: controller.event_queue_size),
    ),
    _gauge(
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "Milliseconds that an event waited for the controller: quantiles of the last 256 of its kind.",
        cluster.event_quantiles(lambda time: time.queued_ns),
        "event",
        "quantile",
    ),
    _gauge(
        "kafka_controller_controllerstats_rateandtimems",
        "Milliseconds that the controller took for an event: quantiles of the last 256 of its kind.",
        cluster.event_quantiles(lambda time: time.processed_ns),
        "event",
        "quantile",
    ),
    Family(
        "kafka_controller_controllerstats_rateandtimems_count",
        Kind.UNTYPED,
        ("event",),
        "Events that the controller has handled.",
        cluster.event_counts,
    ),
    _gauge(
        "kafka_controller_controllerchannelmanager_totalqueuesize",
        "Requests of the controller that brokers have not answered yet.",
        cluster.member_value(lambda member: member.channel.size),
    ),
    _gauge(
        "kafka_controller_controllerchannelmanager_queuesize",
        "The same, of one broker.",
        cluster.queue_meters(lambda meter: meter.size),
        "broker_id",
    ),
    Family(
        "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_count",
        Kind.UNTYPED,
        ("broker_id",),
        "Requests that the controller has sent to a broker.",
        cluster.queue_meters(lambda meter: meter.sent),
    ),
    Family(
        "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_sum",
        Kind.UNTYPED,
        ("broker_id",),
        "Milliseconds that those had waited before, all together.",
        cluster.queue_meters(lambda meter: meter.waited_ms),
    ),
    _counter(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "Times that the connection to ZooKeeper broke.",
        cluster.session_counter("disconnects"),
    ),
    _counter(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "Sessions with ZooKeeper that were lost.",
        cluster.session_counter("expires"),
    ),
    _counter(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        "Times that a connection to ZooKeeper was made again.",
        cluster.session_counter("connects"),
    ),
    _gauge(
        "kafka_server_sessionexpirelistener_sessionstate",
        "1 for the state that the session with ZooKeeper is in, 0 for the others.",
        cluster.session_state,
        "state",
    ),
    _gauge(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        "Milliseconds until ZooKeeper answered a request: quantiles of the last 256.",
        cluster.zookeeper_quantiles,
        "quantile",
    ),
    Family(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count",
        Kind.UNTYPED,
        (),
        "Requests that ZooKeeper has answered.",
        cluster.zookeeper_requests,
    ),
    _gauge("kafka_server_kafkaserver_brokerstate", "3: it runs.", of.broker_state),
    _gauge("kafka_server_app_info", "1; the version is Headrace's.", of.app_info, "broker_id", "version"),
)

#: By subject, as in the documentation.
SUBJECTS: dict[str, tuple[Family, ...]] = {
    "Topics": _TOPICS,
    "Requests and connections": _NETWORK,
    "What waits": _WAITING,
    "Logs": _LOGS,
    "Replicas and cluster": _CLUSTER,
}

FAMILIES = tuple(family for families in SUBJECTS.values() for family in families)
