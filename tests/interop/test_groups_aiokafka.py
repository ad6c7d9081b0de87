"""aiokafka in classic groups: members share partitions, rebalance, and resume at committed offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from interop_brokers import BROKERS

PARTITIONS = 4
WITHIN_S = 20.0


@pytest.fixture
def bootstrap(fresh_bootstrap: str) -> str:
    return fresh_bootstrap


@pytest.fixture
async def topic(bootstrap: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("orders", PARTITIONS, BROKERS)])
    finally:
        await admin.close()
    return "orders"


async def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)


@asynccontextmanager
async def member(bootstrap: str, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=100,
        metadata_max_age_ms=1_000,
    ) as consumer:
        yield consumer


async def poll_until(condition: Callable[[list[bytes]], bool], *consumers: AIOKafkaConsumer) -> list[bytes]:
    """The values that the consumers get until the condition holds."""
    found: list[bytes] = []
    ends_at = monotonic() + WITHIN_S
    while not condition(found):
        assert monotonic() < ends_at, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            batches = await consumer.getmany(timeout_ms=20)
            found += [record.value for records in batches.values() for record in records]
    return found


def shares(*consumers: AIOKafkaConsumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


async def test_two_consumers_share_the_partitions(bootstrap: str, topic: str) -> None:
    await produce(bootstrap, topic, [f"first {number}" for number in range(20)])
    async with member(bootstrap, topic) as one:
        await poll_until(lambda found: len(found) == 20, one)
        await one.commit()
        async with member(bootstrap, topic) as two:
            await poll_until(lambda _: shares(one, two) == [2, 2], one, two)
            assert one.assignment() | two.assignment() == {TopicPartition(topic, index) for index in range(PARTITIONS)}
            await produce(bootstrap, topic, [f"second {number}" for number in range(20)])
            values = await poll_until(lambda found: len(found) >= 20, one, two)
            assert set(values) == {f"second {number}".encode() for number in range(20)}
            await one.commit()
            await two.commit()
        await poll_until(lambda _: shares(one) == [PARTITIONS], one)
        committed = [await one.committed(TopicPartition(topic, index)) for index in range(PARTITIONS)]
        assert committed == [10] * PARTITIONS


async def test_a_new_consumer_goes_on_where_the_group_was(bootstrap: str, topic: str) -> None:
    await produce(bootstrap, topic, [str(number) for number in range(8)])
    async with member(bootstrap, topic) as one:
        await poll_until(lambda found: len(found) == 8, one)
        await one.commit()
    await produce(bootstrap, topic, ["later"])
    async with member(bootstrap, topic) as two:
        assert await poll_until(lambda found: bool(found), two) == [b"later"]


async def test_the_admin_client_sees_groups(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        async with member(bootstrap, topic) as one:
            await poll_until(lambda _: shares(one) == [PARTITIONS], one)
            assert ("readers", "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups(["readers"])
            assert "Stable" in str(described)
    finally:
        await admin.close()
