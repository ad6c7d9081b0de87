"""Our clients push to our broker, which shows their metrics on its endpoint."""

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from headrace import AsyncAdmin, AsyncConsumer, AsyncProducer, Broker

_ENDPOINT = {"headrace.metrics.listener": "127.0.0.1:0", "num.partitions": "1"}


def samples(broker: Broker) -> list[tuple[str, dict[str, str], float]]:
    host, port = broker.core.metrics_exporter.endpoint
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return [(one.name, one.labels, one.value) for family in families for one in family.samples]


async def shown(broker: Broker, name: str, **labels: str) -> float:
    """The highest value of a metric with these labels; waits until there is one.

    A consumer has one series from before it has joined its group, and one with the label ``group_member_id``.
    """
    async with asyncio.timeout(60):
        while True:
            found = await asyncio.to_thread(samples, broker)
            values = [value for one, has, value in found if one == name and labels.items() <= has.items()]
            if values:
                return max(values)


async def subscribe(broker: Broker, metrics: str) -> None:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, enable_metrics_push=False) as admin:
        await admin.alter_config("client_metrics", "all", {"metrics": metrics, "interval.ms": "100"})


async def test_the_endpoint_of_the_broker_shows_what_our_clients_count():
    async with Broker(config=_ENDPOINT) as broker:
        await subscribe(broker, "org.apache.kafka.producer.,org.apache.kafka.consumer.")
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, client_id="p") as producer:
            assert (await producer.client_instance_id(timeout_ms=10_000)).int
            await shown(broker, "org_apache_kafka_producer_connection_creation_total", client_id="p")
            for _ in range(3):
                await producer.send_and_wait("orders", b"v")
        name = "org_apache_kafka_producer_topic_record_send_total"
        sent = await shown(broker, name, client_id="p", topic="orders")
        assert sent == 3, "the last push has what was sent after the last interval"

        options = {"group_id": "g", "auto_offset_reset": "earliest", "client_id": "c"}
        async with AsyncConsumer("orders", bootstrap_servers=servers, **options) as consumer:
            await consumer.client_instance_id(timeout_ms=10_000)
            assert len(await consumer.poll(10_000)) == 3
            await shows(3, broker, consumer, "fetch_manager_records_consumed_total", topic="orders")
            await shows(1, broker, consumer, "coordinator_assigned_partitions")


async def shows(value: float, broker: Broker, consumer: AsyncConsumer, name: str, **labels: str) -> None:
    """Polls until the endpoint shows a value of the consumer. A test's timeout ends it otherwise."""
    while await shown(broker, f"org_apache_kafka_consumer_{name}", client_id="c", **labels) != value:
        await consumer.poll(20)


async def test_a_broker_that_wants_nothing_gets_nothing():
    async with Broker(config=_ENDPOINT) as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.client_instance_id(timeout_ms=10_000)
            await producer.send_and_wait("orders", b"v")
        found = await asyncio.to_thread(samples, broker)
        assert not [one for one, _, _ in found if one.startswith("org_apache_kafka")]
