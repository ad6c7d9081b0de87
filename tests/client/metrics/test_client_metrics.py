"""Clients count requests, batches and polls, and show them under the names of Java's clients."""

from math import isnan

import pytest

from headrace import Admin, AsyncConsumer, AsyncProducer, Broker, Consumer, Producer
from headrace.client.metrics.registry import Metrics, MetricsRegistry
from headrace.client.metrics.table import GAUGE, GROUPS, PRODUCER_TOPIC, Row
from headrace.testing import ManualClock


def test_names_have_the_group_of_the_client_and_its_tags():
    registry = MetricsRegistry("producer", "me", clock=ManualClock())
    sensors = {row.source: registry.sensor() for row in PRODUCER_TOPIC}
    registry.add("topic-metrics", PRODUCER_TOPIC, sensors, topic="orders")
    sensors["bytes"].record(500, 0)
    metrics = registry.metrics()
    name = next(one for one in metrics if one.name == "byte-total")
    assert name == ("producer-topic-metrics", "byte-total", (("client-id", "me"), ("topic", "orders")))
    assert str(name) == "producer-topic-metrics:byte-total{client-id=me, topic=orders}"
    assert metrics[name] == metrics.value("byte-total", topic="orders") == 500
    assert "compression-rate" in {one.name for one in metrics}, "Kafka's name of this average does not end with -avg"


def test_a_value_that_is_not_there_or_not_clear_is_an_error():
    registry = MetricsRegistry("producer", "me", clock=ManualClock())
    for topic in ("a", "b"):
        registry.add("topic-metrics", (Row("n", "n", GAUGE, ""),), {"n": lambda: 1.0}, topic=topic)
    metrics = registry.metrics()
    assert metrics.value("n", topic="b") == 1
    for wrong in ({}, {"topic": "c"}):
        with pytest.raises(KeyError, match=r"0 metrics are n"):
            metrics.value("n", **wrong)


def test_no_group_has_a_name_twice():
    for group, tags, rows in GROUPS:
        names = [row.name + stat.ending for row in rows for stat in row.stats or ()]
        names += [row.name for row in rows if row.stats is GAUGE]
        assert len(names) == len(set(names)), (group, tags)


@pytest.fixture(scope="module")
def servers():
    with Broker(config={"num.partitions": 1}) as broker:
        yield broker.bootstrap_servers


def counted(metrics: Metrics, *names: str) -> list[float]:
    return [metrics.value(name) for name in names]


async def test_a_producer_counts_records_batches_and_requests(servers):
    async with AsyncProducer(bootstrap_servers=servers, client_id="me", compression_type="gzip") as producer:
        for number in range(1000):
            await producer.send("counted", b"x" * 100, on_delivery=None)
            if number % 100 == 0:
                await producer.flush()
        await producer.flush()
        metrics = producer.metrics()
    assert metrics.value("record-send-total") == metrics.value("record-send-total", topic="counted") == 1000
    assert metrics.value("byte-total", topic="counted") < 100_000, "the bytes are those after compression"
    assert 0 < metrics.value("compression-rate-avg") < 0.5
    assert metrics.value("records-per-request-avg") > 1
    assert metrics.value("request-latency-avg") > 0
    assert metrics.value("record-queue-time-max") >= 0
    assert metrics.value("flush-time-ns-total") > 0
    assert counted(metrics, "record-error-total", "record-retry-total", "requests-in-flight") == [0, 0, 0]
    assert counted(metrics, "produce-throttle-time-avg", "produce-throttle-time-max") == [0, 0]
    assert metrics.value("buffer-available-bytes") == metrics.value("buffer-total-bytes") == 33_554_432
    assert metrics.value("connection-creation-total") == metrics.value("connection-count") == 2
    nodes = [one for one in metrics if one.group == "producer-node-metrics" and one.name == "request-total"]
    assert sum(metrics[one] for one in nodes) == metrics.value("request-total")


async def test_a_consumer_counts_what_poll_returned(servers):
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(10):
            producer.send("read", b"x" * 100)
    options = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest"}
    async with AsyncConsumer("read", **options) as consumer:
        count = 0
        while count < 10:
            count += len(await consumer.poll(1000, 4))
            if count == 4:
                assert consumer.metrics().value("records-lag-max") == 6
        await consumer.commit()
        metrics = consumer.metrics()
    assert metrics.value("records-consumed-total") == metrics.value("records-consumed-total", topic="read") == 10
    assert metrics.value("bytes-consumed-total") > 1000
    assert metrics.value("fetch-latency-avg") > 0
    assert metrics.value("fetch-total") >= 1
    assert counted(metrics, "assigned-partitions", "rebalance-total", "failed-rebalance-total") == [1, 1, 0]
    assert counted(metrics, "join-total", "sync-total", "commit-total") == [2, 1, 1]
    assert metrics.value("rebalance-latency-total") > 0
    assert 0 < metrics.value("poll-idle-ratio-avg") <= 1
    assert counted(metrics, "fetch-throttle-time-avg", "fetch-throttle-time-max") == [0, 0]
    assert metrics.value("last-poll-seconds-ago") == 0


def test_the_blocking_clients_have_the_same_metrics(servers):
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_and_wait("blocking", b"v")
        assert producer.metrics().value("record-send-total") == 1
    with Consumer("blocking", bootstrap_servers=servers, group_id="b", auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll(10_000)) == 1
        assert consumer.metrics().value("records-consumed-total") == 1
    with Admin(bootstrap_servers=servers) as admin:
        admin.list_topics()
        metrics = admin.metrics()
        assert metrics.value("request-total") >= 2
        assert counted(metrics, "throttle-time-avg", "throttle-time-max") == [0, 0]


async def test_a_consumer_without_a_group_has_no_metrics_of_a_coordinator(servers):
    async with AsyncConsumer(bootstrap_servers=servers) as consumer:
        metrics = consumer.metrics()
    assert not [one for one in metrics if one.group == "consumer-coordinator-metrics"]
    assert isnan(metrics.value("records-lag-max"))
    assert metrics.value("last-poll-seconds-ago") == -1


async def test_a_closed_client_still_tells_what_it_did(servers):
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("counted", b"v")
    metrics = producer.metrics()
    assert metrics.value("record-send-total") == 1
    assert metrics.value("connection-count") == 0
    assert metrics.value("connection-close-total") == metrics.value("connection-creation-total")
