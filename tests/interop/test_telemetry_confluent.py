"""confluent-kafka pushes its metrics to a broker as it is: ``enable.metrics.push`` is on by default (KIP-714)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from interop_brokers import until
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from headrace import Admin, Broker

SOFTWARE = "confluent-kafka-python"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"headrace.metrics.listener": "127.0.0.1:0"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            settings = {"metrics": "*", "interval.ms": 100, "match": f"client_software_name={SOFTWARE}"}
            admin.alter_config("client_metrics", "all", settings)
        yield broker


def pushed(broker: Broker, client_id: str) -> dict[str, Sample]:
    """The samples of one client, by name."""
    host, port = broker.core.metrics_exporter.endpoint
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        sample.name: sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("client_id") == client_id and "client_instance_id" in sample.labels
    }


def test_producers_and_consumers_push_their_metrics(broker: Broker) -> None:
    common = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 4}
    producer = Producer({**common, "client.id": "writer"})
    reading = {**common, "client.id": "reader", "group.id": "readers", "auto.offset.reset": "earliest"}
    with closing(Consumer(reading)) as consumer:
        consumer.subscribe(["clicks"])

        def have_pushed() -> bool:
            producer.produce("clicks", b"one")
            producer.poll(0.1)
            consumer.poll(0.1)
            return all(
                any(sample.value > 0 for sample in pushed(broker, name).values()) for name in ("writer", "reader")
            )

        until(have_pushed)
        created = pushed(broker, "writer")["org_apache_kafka_producer_connection_creation_total"]
        assert created.labels["client_software_name"] == SOFTWARE
        assert created.labels["principal"] == "User:ANONYMOUS"
        assert len(created.labels["client_instance_id"]) == 22
        partitions = pushed(broker, "reader")["org_apache_kafka_consumer_coordinator_assigned_partitions"]
        assert partitions.labels["group_id"] == "readers"
    assert producer.flush(10) == 0


def test_a_client_that_does_not_want_to_push(broker: Broker) -> None:
    silent = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "silent", "enable.metrics.push": False}
    )
    loud = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "loud", "log_level": 4})

    def has_pushed() -> bool:
        silent.poll(0.1)
        loud.poll(0.1)
        return bool(pushed(broker, "loud"))

    until(has_pushed)
    assert not pushed(broker, "silent")


def test_the_admin_client_pushes_what_its_users_subscribe_to(broker: Broker) -> None:
    """A subscription of another program's metrics asks nothing of this client."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_config("client_metrics", "all", {"match": "client_software_name=other"})
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "client.id": "admin", "log_level": 4})
    assert client.list_topics(timeout=10).brokers
    assert not pushed(broker, "admin")
