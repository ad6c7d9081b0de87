"""Metrics become data points with the names of KIP-714, and the bytes that a broker reads."""

from math import nan
from uuid import UUID

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from headrace.client.config import ConsumerConfig, ProducerConfig
from headrace.client.membership.interfaces import MemberIdentity
from headrace.client.metrics.registry import Measured, MetricName
from headrace.client.metrics.table import GROUPS
from headrace.client.telemetry.labels import consumer_labels, producer_labels
from headrace.client.telemetry.otlp import encode
from headrace.client.telemetry.points import Point, PointCollector, telemetry_name
from headrace.client.telemetry.subscription import Subscription
from headrace.protocol.records import Codec

START, FIRST, SECOND, THIRD = 1_000, 2_000, 3_000, 4_000
ALL = Subscription(UUID(int=1), 1, 1000, (Codec.none,), is_delta=False, prefixes=("",))
DELTA = ALL._replace(is_delta=True)

#: The metrics that KIP-714 wants of every client.
STANDARD = {
    "producer": [
        "producer.connection.creation.rate", "producer.connection.creation.total", "producer.node.request.latency.avg",
        "producer.node.request.latency.max", "producer.produce.throttle.time.avg", "producer.produce.throttle.time.max",
        "producer.record.queue.time.avg", "producer.record.queue.time.max",
    ],
    "consumer": [
        "consumer.connection.creation.rate", "consumer.connection.creation.total", "consumer.node.request.latency.avg",
        "consumer.node.request.latency.max", "consumer.poll.idle.ratio.avg", "consumer.coordinator.commit.latency.avg",
        "consumer.coordinator.commit.latency.max", "consumer.coordinator.assigned.partitions",
        "consumer.coordinator.rebalance.latency.avg", "consumer.coordinator.rebalance.latency.max",
        "consumer.coordinator.rebalance.latency.total", "consumer.fetch.manager.fetch.latency.avg",
        "consumer.fetch.manager.fetch.latency.max",
    ],
}  # fmt: skip


def total(value: float, **tags: str) -> Measured:
    tags = {"client-id": "me", **tags}
    return Measured(MetricName("producer-topic-metrics", "byte-total", tuple(sorted(tags.items()))), value, is_sum=True)


def gauge(value: float) -> Measured:
    return Measured(MetricName("consumer-fetch-manager-metrics", "records-lag-max"), value, is_sum=False)


def test_the_standard_metrics_are_there():
    names = {
        telemetry_name(MetricName(group, row.name + ending))
        for groups, _, rows in GROUPS
        for group in groups.split(", ")
        for row in rows
        for ending in ([stat.ending for stat in row.stats] or [""])
    }
    for kind, wanted in STANDARD.items():
        missing = {f"org.apache.kafka.{name}" for name in wanted} - names
        assert not missing, kind


def test_tags_become_labels_without_the_client_id():
    points = PointCollector(START).collect([total(5, topic="orders", **{"node-id": "node-1"})], ALL, FIRST)
    labels = (("node_id", "node-1"), ("topic", "orders"))
    assert points == [Point("org.apache.kafka.producer.topic.byte.total", labels, 5, is_sum=True, since_wall_ms=START)]


def test_metrics_that_are_not_wanted_or_have_no_value_are_left_out():
    wanted = ALL._replace(prefixes=("org.apache.kafka.consumer",))
    assert PointCollector(START).collect([total(5), gauge(nan)], wanted, FIRST) == []
    assert [point.value for point in PointCollector(START).collect([total(5), gauge(3)], wanted, FIRST)] == [3]


def test_totals_count_from_the_start_or_from_the_last_push_that_was_not_refused():
    cumulative, delta = PointCollector(START), PointCollector(START)
    pushes = []
    for value, wall_ms, is_accepted in ((5, FIRST, True), (8, SECOND, False), (9, THIRD, True)):
        for collector, wanted in ((cumulative, ALL), (delta, DELTA)):
            (point,) = collector.collect([total(value)], wanted, wall_ms)
            pushes.append((point.value, point.since_wall_ms))
            if not is_accepted:
                collector.refused()
    assert pushes[::2] == [(5, START), (8, START), (9, START)]
    assert pushes[1::2] == [(5, START), (3, FIRST), (4, FIRST)], "a push that was refused is in the next one"


def test_a_gauge_is_never_a_difference():
    collector = PointCollector(START)
    for wall_ms in (FIRST, SECOND):
        assert [point.value for point in collector.collect([gauge(7)], DELTA, wall_ms)] == [7]


def test_another_kind_of_totals_begins_anew():
    collector = PointCollector(START)
    collector.collect([total(5)], DELTA, FIRST)
    collector.reset()
    (point,) = collector.collect([total(6)], DELTA, SECOND)
    assert (point.value, point.since_wall_ms) == (6, START)


def test_the_bytes_are_otlp_with_one_metric_per_name():
    points = PointCollector(START).collect([total(5, topic="a"), total(6, topic="b"), gauge(2.5)], DELTA, FIRST)
    data = MetricsData.FromString(encode(points, {"group_id": "g"}, FIRST, is_delta=True))
    (resource,) = data.resource_metrics
    assert [(one.key, one.value.string_value) for one in resource.resource.attributes] == [("group_id", "g")]
    (scope,) = resource.scope_metrics
    sums, gauges = scope.metrics
    assert sums.name == "org.apache.kafka.producer.topic.byte.total"
    assert sums.sum.is_monotonic
    assert sums.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert [
        (one.attributes[0].value.string_value, one.as_double, one.start_time_unix_nano, one.time_unix_nano)
        for one in sums.sum.data_points
    ] == [("a", 5, START * 10**6, FIRST * 10**6), ("b", 6, START * 10**6, FIRST * 10**6)]
    assert [one.as_double for one in gauges.gauge.data_points] == [2.5]


def test_the_labels_of_a_client_are_those_that_it_has():
    producer = ProducerConfig.load(bootstrap_servers="h:1", transactional_id="t")
    assert producer_labels(producer) == {"transactional_id": "t"}
    assert producer_labels(ProducerConfig.load(bootstrap_servers="h:1")) == {}
    consumer = ConsumerConfig.load(bootstrap_servers="h:1", group_id="g", group_instance_id="i", client_rack="r")

    class Membership:
        def identity(self) -> MemberIdentity:
            return MemberIdentity("m", 1)

    assert consumer_labels(consumer, Membership()) == {
        "group_id": "g", "group_instance_id": "i", "group_member_id": "m", "client_rack": "r",
    }  # fmt: skip
    assert consumer_labels(ConsumerConfig.load(bootstrap_servers="h:1"), None) == {}
