"""A broker for the tests of the consumer, records to read, and ways to wait for what a group does.

``HEADRACE_TEST_KAFKA=host:port`` runs them against a running broker; Apache Kafka 4.3 passes them, with
``group.initial.rebalance.delay.ms=0`` and ``group.consumer.heartbeat.interval.ms`` low.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from uuid import uuid4

from headrace import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from headrace.client.types import ConsumedRecord

OTHER_KAFKA = os.environ.get("HEADRACE_TEST_KAFKA")
BROKER_CONFIG = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.min.session.timeout.ms": 100,
}

_numbers = count()
_run = uuid4().hex[:6]


def unique(prefix: str = "topic") -> str:
    return f"{prefix}-{_run}-{next(_numbers)}"


class ReaderHarness:
    """What a test needs around its consumers; closes them at the end."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.group = unique("group")
        self._consumers: list[AsyncConsumer] = []

    async def topic(self, partitions: int = 1) -> str:
        name = unique()
        await self.create(name, partitions)
        return name

    async def create(self, name: str, partitions: int = 1) -> None:
        async with AsyncAdmin(bootstrap_servers=self.servers) as admin:
            await admin.create_topic(name, partitions, 1)

    async def widen(self, name: str, partitions: int) -> None:
        async with AsyncAdmin(bootstrap_servers=self.servers) as admin:
            await admin.create_partitions({name: partitions})

    async def fill(self, topic: str, values: Iterable[object], *, partition: int = 0, **options: object) -> None:
        """Records whose values are these as text."""
        timestamps = options.pop("timestamps_ms", None)
        async with AsyncProducer(bootstrap_servers=self.servers, linger_ms=0, **options) as producer:
            for number, value in enumerate(values):
                timestamp_ms = None if timestamps is None else timestamps[number]
                await producer.send(topic, str(value).encode(), partition=partition, timestamp_ms=timestamp_ms)

    def consumer(self, *topics: str, in_group: bool = True, **options: object) -> AsyncConsumer:
        given = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 50, **options}
        if in_group:
            given.setdefault("group_id", self.group)
        consumer = AsyncConsumer(*topics, bootstrap_servers=self.servers, **given)
        self._consumers.append(consumer)
        return consumer

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.close()


def at(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def values(records: Iterable[ConsumedRecord]) -> list[str]:
    return [record.value.decode() for record in records]


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumedRecord]:
    """Reads ``count`` records, and no more."""
    found: list[ConsumedRecord] = []
    while len(found) < count:
        found += await consumer.poll(100, count - len(found))
    return found


async def poll_until(done: Callable[[], object], *consumers: AsyncConsumer) -> list[ConsumedRecord]:
    """Polls them all, side by side, until it is so."""
    found: list[ConsumedRecord] = []

    async def go_on(consumer: AsyncConsumer) -> None:
        while not done():
            found.extend(await consumer.poll(20))

    await asyncio.gather(*map(go_on, consumers))
    return found


async def settle(topic_partitions: int, *consumers: AsyncConsumer) -> None:
    """Polls until each has something and together they have all, each partition once."""

    def settled() -> bool:
        shares = [consumer.assignment() for consumer in consumers]
        return all(shares) and sum(map(len, shares)) == len(set().union(*shares)) == topic_partitions

    await poll_until(settled, *consumers)


async def meanwhile(work: Awaitable[object], *consumers: AsyncConsumer) -> None:
    """Polls them while something is done."""
    task = asyncio.ensure_future(work)
    await poll_until(task.done, *consumers)
    await task
