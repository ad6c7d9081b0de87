"""Our clients with quotas of our broker: the rate holds, the metrics show it, and other clients are not disturbed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from headrace import AsyncAdmin, AsyncConsumer, AsyncProducer, Broker, TopicPartition
from headrace.client.errors import QuotaExceeded
from headrace.protocol.api import Api

_RATE = 200_000.0
_WINDOWS = {"quota.window.num": "3", "quota.window.size.seconds": "1"}
_MUTATION_WINDOWS = {"controller.quota.window.num": "2", "controller.quota.window.size.seconds": "1"}


@asynccontextmanager
async def broker_with(quotas: dict[str, float], **config: str) -> AsyncIterator[Broker]:
    """A broker with quotas for the client id "limited"."""
    async with Broker(config={"num.partitions": "1", **_WINDOWS, **config}) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            answer = await admin._requests.cluster.ask_any(
                Api.ALTER_CLIENT_QUOTAS,
                entries=[
                    {
                        "entity": [{"entity_type": "client-id", "entity_name": "limited"}],
                        "ops": [{"key": key, "value": value, "remove": False} for key, value in quotas.items()],
                    }
                ],
                validate_only=False,
            )
            assert answer.entries[0].error_code == 0, answer
        yield broker


async def test_a_producer_above_its_rate_is_slowed_down_and_loses_nothing():
    async with broker_with({"producer_byte_rate": _RATE}) as broker:
        options = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0}
        begun = monotonic()
        async with AsyncProducer(client_id="limited", **options) as producer:
            for _ in range(10):
                await producer.send("t", b"x" * 100_000)
                await producer.flush()
            took = monotonic() - begun
            metrics = producer.metrics()
        assert metrics.value("produce-throttle-time-max") > 0
        assert metrics.value("record-send-total") == 10
        assert metrics.value("record-retry-total") == 0, "a throttled client sends nothing twice"
        assert took > 1, "a megabyte at 200 kB per second, with a burst of some windows"
        async with AsyncProducer(client_id="free", **options) as free:
            await free.send_and_wait("t", b"x" * 100_000)
            assert free.metrics().value("produce-throttle-time-max") == 0


async def test_a_consumer_above_its_rate_reads_everything_later():
    async with broker_with({"consumer_byte_rate": _RATE}) as broker:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers) as producer:
            for _ in range(10):
                await producer.send("t", b"x" * 100_000)
        options = {"client_id": "limited", "auto_offset_reset": "earliest", "max_partition_fetch_bytes": 100_000}
        async with AsyncConsumer(bootstrap_servers=servers, **options) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            count, begun = 0, monotonic()
            while count < 10:
                count += len(await consumer.poll(1_000))
            assert monotonic() - begun > 1
            metrics = consumer.metrics()
            assert metrics.value("fetch-throttle-time-max") > 0
            assert metrics.value("records-consumed-total") == 10


async def test_topics_beyond_the_quota_are_created_later():
    async with (
        broker_with({"controller_mutation_rate": 4.0}, **_MUTATION_WINDOWS) as broker,
        AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, client_id="limited") as admin,
    ):
        for number in range(6):
            made = await admin.create_topics([f"burst-{number}-{one}" for one in range(3)], timeout_ms=30_000)
            assert len(made.ok) == 3, made.errors
        assert admin.metrics().value("throttle-time-max") > 0


async def test_without_retries_the_refused_topics_are_named():
    async with (
        broker_with({"controller_mutation_rate": 0.5}, **_MUTATION_WINDOWS) as broker,
        AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, client_id="limited") as admin,
    ):
        refused = None
        for number in range(30):
            topics = [f"a-{number}", f"b-{number}"]
            made = await admin.create_topics(topics, wait=False, retry_on_quota_violation=False, timeout_ms=60_000)
            refused = next(iter(made.errors.values()), None)
            if refused is not None:
                break
        assert isinstance(refused, QuotaExceeded)
        assert refused.throttle_time_ms > 0
