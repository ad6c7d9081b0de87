"""A throttled connection sends nothing until the time is over, and nobody else waits for it (KIP-219)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_broker import SERVED, FakeBroker, running, serving_a_topic

from headrace import AsyncConsumer, TopicPartition
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable, KafkaTimeout
from headrace.client.throttle import must_wait, raw_throttle_ms
from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import load_response_schema

_ASK_METADATA = {
    "topics": [], "allow_auto_topic_creation": True, "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}  # fmt: skip
_METADATA = {"brokers": [], "topics": [], "cluster_id": "c", "controller_id": -1}
#: A time that a test waits for, and one that no test waits for.
SHORT_MS, LONG_MS = 120, 60_000


def throttling(*times_ms: int, api: Api = Api.METADATA, **more: object) -> FakeBroker:
    """A broker whose answers have these throttle times, and 0 after the last."""
    broker = FakeBroker(served={**SERVED, Api.METADATA: (0, 9), **more.pop("served", {})})
    left = list(times_ms)
    broker.answers[api] = lambda _: {**_METADATA, **more, "throttle_time": left.pop(0) if left else 0}
    return broker


@asynccontextmanager
async def connected(broker: FakeBroker, **options: object) -> AsyncIterator[Connection]:
    connection = await Connection.open(*broker.address, client_id="c", **options)
    yield connection
    await connection.close()


def ask(connection: Connection, version: int = 8, **options: object) -> asyncio.Future:
    return connection.send(Api.METADATA, version, _ASK_METADATA, **options)


async def test_the_next_request_is_sent_when_the_time_is_over():
    async with running(throttling(SHORT_MS)) as broker, connected(broker) as connection:
        await ask(connection)
        assert connection.is_throttled
        assert 0 < connection.throttle_left_ms <= SHORT_MS
        await asyncio.gather(ask(connection), ask(connection))
        first, second, third = broker.arrivals(Api.METADATA)
        assert second - first >= SHORT_MS / 1000 - 0.01
        assert third >= second
        assert not connection.is_throttled


async def test_a_version_from_before_kip_219_does_not_wait():
    async with running(throttling(LONG_MS)) as broker, connected(broker) as connection:
        await ask(connection, version=5)
        assert not connection.is_throttled
        await ask(connection, version=5)


async def test_other_connections_go_on():
    async with running(throttling(LONG_MS)) as broker, connected(broker) as first, connected(broker) as second:
        await ask(first)
        await ask(second)
        assert first.is_throttled
        assert not second.is_throttled


async def test_the_longest_time_counts():
    async with running(throttling(LONG_MS, SHORT_MS)) as broker, connected(broker) as connection:
        await asyncio.gather(ask(connection), ask(connection))
        assert connection.throttle_left_ms > LONG_MS / 2


async def test_requests_that_are_on_their_way_get_more_time():
    async with running(throttling(SHORT_MS)) as broker:
        late = broker.answers[Api.METADATA]

        def answer(request):
            if len(broker.of(Api.METADATA)) == 2:
                return None  # as if the broker did not read it
            return late(request)

        broker.answers[Api.METADATA] = answer
        async with connected(broker) as connection:
            begun = asyncio.get_running_loop().time()
            first, second = ask(connection), ask(connection, timeout_ms=50)
            await first
            with pytest.raises(KafkaTimeout):
                await second
            assert asyncio.get_running_loop().time() - begun >= (SHORT_MS + 50) / 1000 - 0.01
            assert connection.is_closed


async def test_a_request_that_times_out_while_it_waits_is_never_sent_and_the_connection_stays_open():
    async with running(throttling(SHORT_MS)) as broker, connected(broker) as connection:
        await ask(connection)
        expired, cancelled, sent = ask(connection, timeout_ms=20), ask(connection), ask(connection)
        cancelled.cancel()
        with pytest.raises(KafkaTimeout, match="because it throttles this client"):
            await expired
        await sent
        assert len(broker.of(Api.METADATA)) == 2
        assert not connection.is_closed
        await ask(connection)


async def test_closing_a_throttled_connection_fails_the_requests_that_wait():
    async with running(throttling(LONG_MS)) as broker:
        async with connected(broker) as connection:
            await ask(connection)
            waiting = ask(connection)
        with pytest.raises(BrokerUnreachable):
            await waiting


@pytest.mark.parametrize("version", [4, 7, 8, 11, 12, 17])
def test_the_throttle_time_of_a_fetch_is_read_from_its_frame(version):
    header = b"\0\0\0\1" + (b"\0" if version >= 12 else b"")
    frame = memoryview(header + (1234).to_bytes(4, "big") + b"...")
    assert raw_throttle_ms(Api.FETCH, version, frame) == 1234
    assert must_wait(Api.FETCH, version) == (version >= 8)
    assert raw_throttle_ms(Api.FETCH, version, frame[:6]) == 0, "a frame that is cut"


def test_every_api_with_a_throttle_time_has_versions_that_wait():
    for api in Api:
        newest = versions_of(api)[-1]
        if hasattr(load_response_schema(api, newest), "throttle_time"):
            assert must_wait(api, newest), api.name


# -- the clients


async def test_a_throttled_consumer_fetches_no_more_until_the_time_is_over_and_shows_it():
    async with (
        running(serving_a_topic(FakeBroker(), fetch=SHORT_MS)) as broker,
        AsyncConsumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        while len(broker.of(Api.FETCH)) < 2:
            await consumer.poll(10)
        first, second = broker.arrivals(Api.FETCH)[:2]
        assert second - first >= SHORT_MS / 1000 - 0.01
        assert consumer.metrics().value("fetch-throttle-time-max") == SHORT_MS


async def test_a_request_for_any_broker_goes_to_one_that_does_not_throttle():
    async with running(throttling(LONG_MS)) as throttled, running(throttling()) as free:
        cluster = Cluster(AdminConfig.load(bootstrap_servers=f"{throttled.servers},{free.servers}"))
        first, _ = await cluster.connection(-1), await cluster.connection(-2)
        await ask(first)
        await cluster.refresh(timeout_ms=5_000)
        assert (len(throttled.of(Api.METADATA)), len(free.of(Api.METADATA))) == (1, 1)
        await cluster.close()
