"""The metrics that clients push, as a scraper sees them."""

import pytest
from broker_harness import on_loop
from telemetry_harness import TelemetryClient, counter, gauge, histogram, otlp
from test_metrics import ANYWHERE, OPENMETRICS, Scraped, get, openmetrics_families

from headrace import Broker
from headrace.coordination.znodes import encode_uuid
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock, pass_time


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker(clock):
    with Broker(config={**ANYWHERE, "headrace.telemetry.max.series": 20}, clock=clock) as made:
        yield made


@pytest.fixture
def client(broker):
    with TelemetryClient(broker.bootstrap_servers) as made:
        made.subscribe(interval_ms=100)
        yield made


def labels_of(client, subscription, **more):
    return {
        "client_instance_id": encode_uuid(subscription.client_instance_id),
        "client_id": client.name,
        "client_software_name": "raw",
        "client_software_version": "1.0",
        "principal": "User:ANONYMOUS",
        **more,
    }


def test_pushed_metrics_have_the_labels_of_their_client(broker, client):
    subscription = client.get()
    metrics = otlp(
        gauge("org.apache.kafka.consumer.fetch.manager.lag", 7.5, topic="t"),
        counter("org.apache.kafka.producer.record.send.total", 4),
        histogram("own.latency", [0.5], [1, 2], 9.0),
        group_id="g",
    )
    assert client.push(subscription, metrics) == ErrorCode.none
    labels = labels_of(client, subscription, group_id="g")
    scraped = Scraped(broker)
    assert scraped("org_apache_kafka_consumer_fetch_manager_lag", topic="t", **labels) == 7.5
    assert scraped("org_apache_kafka_producer_record_send_total", **labels) == 4
    assert scraped("kafka_client_own_latency_bucket", le="0.5", **labels) == 1
    assert scraped("kafka_client_own_latency_bucket", le="+Inf", **labels) == 3
    assert scraped("kafka_client_own_latency_sum", **labels) == 9
    assert scraped("kafka_client_own_latency_count", **labels) == 3
    assert scraped("kafka_server_client_metrics_instance_count") == 1
    assert scraped("kafka_server_client_metrics_series") == 3
    assert scraped("kafka_server_client_metrics_plugin_export_total") == 1
    families = {family.name: family.type for family in openmetrics_families(get(broker, OPENMETRICS))}
    assert families["org_apache_kafka_producer_record_send"] == "counter"
    assert families["org_apache_kafka_consumer_fetch_manager_lag"] == "gauge"
    assert families["kafka_client_own_latency"] == "histogram"


def test_counters_grow_with_every_push(broker, client, clock):
    subscription = client.get()
    for _ in range(3):
        assert client.push(subscription, otlp(counter("c", 5))) == ErrorCode.none
        pass_time(broker, clock, 100)
    assert Scraped(broker)("kafka_client_c_total", **labels_of(client, subscription)) == 15


def test_metrics_that_nobody_has_subscribed_to_are_not_shown(broker):
    with TelemetryClient(broker.bootstrap_servers) as client:
        client.subscribe("wanted.")
        subscription = client.get()
        assert client.push(subscription, otlp(gauge("wanted.a", 1.0), gauge("other", 1.0))) == ErrorCode.none
        scraped = Scraped(broker)
        assert scraped.has("kafka_client_wanted_a", **labels_of(client, subscription))
        assert not scraped.has("kafka_client_other", **labels_of(client, subscription))


def test_the_metrics_of_silent_clients_disappear(broker, client, clock):
    subscription = client.get()
    assert client.push(subscription, otlp(gauge("g", 1.0))) == ErrorCode.none
    for _ in range(4):
        pass_time(broker, clock, 30_000)
    scraped = Scraped(broker)
    assert not scraped.has("kafka_client_g", **labels_of(client, subscription))
    assert scraped("kafka_server_client_metrics_instance_count") == 0
    assert scraped("kafka_server_client_metrics_series") == 0


def test_the_number_of_series_is_bounded_by_a_setting_that_can_change(broker, client, clock):
    subscription = client.get()
    metrics = otlp(*(gauge(f"m{number}", 1.0) for number in range(30)))
    assert client.push(subscription, metrics) == ErrorCode.none
    scraped = Scraped(broker)
    assert scraped("kafka_server_client_metrics_series") == 20
    assert scraped("kafka_server_client_metrics_dropped_points_total") == 10
    assert client.alter(4, "", ("headrace.telemetry.max.series", 0, "25")).error_code == 0
    pass_time(broker, clock, 100)
    assert client.push(subscription, metrics) == ErrorCode.none
    assert Scraped(broker)("kafka_server_client_metrics_series") == 25


def test_requests_that_break_a_rule_are_counted(broker, client):
    subscription = client.get()
    assert client.push(subscription, subscription_id=1) == ErrorCode.unknown_subscription_id
    assert client.push(subscription, b"garbage") == ErrorCode.throttling_quota_exceeded
    assert client.push(subscription, b"garbage", terminating=True) == ErrorCode.invalid_record
    counts = on_loop(broker, lambda: broker.core.telemetry.counts)
    assert (counts.unknown_subscriptions, counts.throttled, counts.failed_pushes) == (1, 1, 1)
    scraped = Scraped(broker)
    assert scraped("kafka_server_client_metrics_unknown_subscription_request_total") == 1
    assert scraped("kafka_server_client_metrics_throttle_total") == 1
    assert scraped("kafka_server_client_metrics_plugin_error_total") == 1
