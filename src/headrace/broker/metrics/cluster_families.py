"""The metric families of replicas, of the controller and of the session with ZooKeeper."""

from __future__ import annotations

from headrace.broker.metrics.cluster_values import (
    controller_gauge,
    event_counts,
    event_quantiles,
    fetchers_value,
    leader_count,
    offline_replicas,
    partition_count,
    partition_gauge,
    partitions_value,
    queue_meters,
    replica_lag,
    replicas_value,
    session_counter,
    session_state,
    unanswered_requests,
    zookeeper_quantiles,
    zookeeper_requests,
)
from headrace.broker.metrics.family import counter, gauge, untyped
from headrace.broker.metrics.values import app_info, broker_state

REPLICAS = (
    gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.", partition_count),
    gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", leader_count),
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions that this broker leads and that have a replica that is not in sync.",
        partitions_value(lambda replicas: replicas.under_replicated()),
    ),
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led by this broker with fewer in-sync replicas than `min.insync.replicas`: acks=all is refused.",
        partitions_value(lambda replicas: replicas.under_min_isr()),
    ),
    gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions that this broker leads with exactly `min.insync.replicas` in-sync replicas.",
        partitions_value(lambda replicas: replicas.at_min_isr()),
    ),
    gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        "Partitions that this broker leads and that are being reassigned.",
        partitions_value(lambda replicas: replicas.reassigning()),
    ),
    gauge(
        "kafka_cluster_partition_underreplicated",
        "1 for a partition that this broker leads and that has a replica that is not in sync.",
        partition_gauge(lambda partition: partition.is_under_replicated),
        "topic",
        "partition",
    ),
    gauge(
        "kafka_cluster_partition_underminisr",
        "1 for a partition that this broker leads with fewer in-sync replicas than `min.insync.replicas`.",
        partition_gauge(lambda partition: partition.is_under_min_isr),
        "topic",
        "partition",
    ),
    gauge(
        "kafka_cluster_partition_insyncreplicascount",
        "In-sync replicas of a partition that this broker leads; 0 for a partition that this broker follows.",
        partition_gauge(lambda partition: partition.in_sync_count),
        "topic",
        "partition",
    ),
    counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Times that the leader removed replicas from the ISR, because they fell behind.",
        replicas_value(lambda replicas: replicas.isr_shrinks),
    ),
    counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Times that the leader added replicas to the ISR again, because they caught up.",
        replicas_value(lambda replicas: replicas.isr_expands),
    ),
    counter(
        "kafka_server_replicamanager_failedisrupdates_total",
        "Changes of an ISR that ZooKeeper refused, because the ISR had been written by another broker.",
        replicas_value(lambda replicas: replicas.failed_isr_updates),
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes of record batches that this broker has fetched from leaders.",
        replicas_value(lambda replicas: replicas.bytes_in),
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes of record batches that this broker has sent to followers.",
        replicas_value(lambda replicas: replicas.bytes_out),
    ),
    gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the replica with the largest lag still has to fetch.",
        fetchers_value(lambda fetchers: max(fetchers.lags().values(), default=0)),
        "clientId",
    ),
    gauge(
        "kafka_server_replicafetchermanager_minfetchrate",
        "Fetch requests per second of the slowest fetcher, over about the last minute.",
        fetchers_value(lambda fetchers: fetchers.min_fetch_rate()),
        "clientId",
    ),
    gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that are not fetched: the log failed, or the leader has a newer leader epoch.",
        fetchers_value(lambda fetchers: fetchers.failed_count()),
        "clientId",
    ),
    gauge(
        "kafka_server_replicafetchermanager_deadthreadcount",
        "Fetchers that have stopped because of an error.",
        fetchers_value(lambda fetchers: fetchers.dead_count()),
        "clientId",
    ),
    gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records that a replica on this broker still has to fetch from its leader.",
        replica_lag,
        "topic",
        "partition",
    ),
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas on this broker whose log dir failed.",
        offline_replicas,
    ),
)

CONTROLLER = (
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 if this broker is the active controller.",
        controller_gauge(lambda controller: controller.active_controller_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "Topics of the cluster.",
        controller_gauge(lambda controller: controller.global_topic_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions of the cluster.",
        controller_gauge(lambda controller: controller.global_partition_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions of the cluster that have no leader.",
        controller_gauge(lambda controller: controller.offline_partitions_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Live brokers.",
        controller_gauge(lambda controller: controller.active_broker_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions whose leader is not the preferred replica.",
        controller_gauge(lambda controller: controller.preferred_replica_imbalance_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_topicstodeletecount",
        "Topics whose deletion has begun.",
        controller_gauge(lambda controller: controller.topics_to_delete_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_replicastodeletecount",
        "Replicas that are still to be deleted, of topics whose deletion has begun.",
        controller_gauge(lambda controller: controller.replicas_to_delete_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_topicsineligibletodeletecount",
        "Topics whose deletion waits: a replica is offline or was not deleted, or a partition is being reassigned.",
        controller_gauge(lambda controller: controller.topics_ineligible_to_delete_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_replicasineligibletodeletecount",
        "Replicas of topics to delete that are offline or could not be deleted.",
        controller_gauge(lambda controller: controller.replicas_ineligible_to_delete_count),
    ),
    counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Leaders that this controller elected outside of the ISR. Records that such a leader did not have are lost.",
        controller_gauge(lambda controller: controller.unclean_elections_count),
    ),
    gauge(
        "kafka_controller_kafkacontroller_controllerstate",
        "The kind of event that this controller handles now, by Kafka's number. 0: none.",
        controller_gauge(lambda controller: controller.state_number),
    ),
    gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "Events in the queue of this controller.",
        controller_gauge(lambda controller: controller.event_queue_size),
    ),
    gauge(
        "kafka_controller_controllereventmanager_eventqueuetimems",
        "Milliseconds that an event waited in the queue: quantiles of the last 256 events of its kind.",
        event_quantiles(lambda time: time.queued_ns),
        "event",
        "quantile",
    ),
    gauge(
        "kafka_controller_controllerstats_rateandtimems",
        "Milliseconds that the controller needed for an event: quantiles of the last 256 events of its kind.",
        event_quantiles(lambda time: time.processed_ns),
        "event",
        "quantile",
    ),
    untyped(
        "kafka_controller_controllerstats_rateandtimems_count",
        "Events that the controller has handled.",
        event_counts,
        "event",
    ),
    gauge(
        "kafka_controller_controllerchannelmanager_totalqueuesize",
        "Requests of the controller that are not answered yet.",
        unanswered_requests,
    ),
    gauge(
        "kafka_controller_controllerchannelmanager_queuesize",
        "Requests of the controller to one broker that are not answered yet.",
        queue_meters(lambda meter: meter.size),
        "broker_id",
    ),
    untyped(
        "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_count",
        "Requests that the controller has sent to a broker.",
        queue_meters(lambda meter: meter.sent),
        "broker_id",
    ),
    untyped(
        "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_sum",
        "Milliseconds that these requests waited before the controller sent them, in all.",
        queue_meters(lambda meter: meter.waited_ms),
        "broker_id",
    ),
)

ZOOKEEPER = (
    counter(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "Times that the connection to ZooKeeper broke.",
        session_counter(lambda counts: counts.disconnects),
    ),
    counter(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "Sessions with ZooKeeper that expired.",
        session_counter(lambda counts: counts.expires),
    ),
    counter(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        "Times that the connection to ZooKeeper was restored.",
        session_counter(lambda counts: counts.connects),
    ),
    gauge(
        "kafka_server_sessionexpirelistener_sessionstate",
        "1 for the state that the session with ZooKeeper is in, 0 for the others.",
        session_state,
        "state",
    ),
    gauge(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        "Milliseconds until ZooKeeper answered a request: quantiles of the last 256 requests.",
        zookeeper_quantiles,
        "quantile",
    ),
    untyped(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count",
        "Requests that ZooKeeper has answered.",
        zookeeper_requests,
    ),
)

BROKER = (
    gauge("kafka_server_kafkaserver_brokerstate", "3: the broker runs.", broker_state),
    gauge("kafka_server_app_info", "1; the version is Headrace's.", app_info, "broker_id", "version"),
)
