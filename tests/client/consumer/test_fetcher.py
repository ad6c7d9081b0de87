"""Fetching ahead, and through failures: a broker that goes and comes back, sessions that it has forgotten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from reader_harness import ReaderHarness, at, read, values

from headrace import AsyncConsumer, Broker, TopicPartition
from headrace.client.errors import BrokerError, BrokerUnreachable
from headrace.protocol.api import Api
from headrace.testing.ports import free_port


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that may be stopped and started again, at the same address."""
    made = Broker(data=tmp_path, listen=f"127.0.0.1:{free_port()}")
    made.start()
    yield made
    made.stop()


async def restart(broker: Broker) -> None:
    await asyncio.to_thread(broker.stop)
    await asyncio.to_thread(broker.start)


async def fetched(consumer: AsyncConsumer, partition: TopicPartition, *, lag: int) -> None:
    """Waits, without a poll, for what is fetched in the background."""
    while consumer.current_lag(partition) != lag:
        await consumer._poll_loop._notifier.wait(1000)


async def test_what_is_read_was_fetched_before_it_was_asked_for(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, range(10))
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0))
    await read(consumer, 1)
    await harness.fill(name, range(10, 20))
    await fetched(consumer, TopicPartition(name, 0), lag=19)
    assert values(await consumer.poll(0)) == [str(number) for number in range(1, 20)]


async def test_reading_goes_on_after_a_broker_came_back(broker: Broker):
    harness = ReaderHarness(broker.bootstrap_servers)
    name = await harness.topic(2)
    await harness.fill(name, range(5))
    consumer = harness.consumer(in_group=False, reconnect_backoff_ms=10)
    consumer.assign(at(name, 0, 1))
    assert len(await read(consumer, 5)) == 5
    await restart(broker)
    await harness.fill(name, range(5, 8))
    await harness.fill(name, ["other"], partition=1)
    assert sorted(values(await read(consumer, 4))) == ["5", "6", "7", "other"]
    await harness.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_goes_on_after_its_coordinator_came_back(broker: Broker, protocol: str):
    harness = ReaderHarness(broker.bootstrap_servers)
    name = await harness.topic(1)
    await harness.fill(name, range(5))
    consumer = harness.consumer(name, group_protocol=protocol, reconnect_backoff_ms=10, enable_auto_commit=False)
    seen = values(await read(consumer, 5))
    await consumer.commit()
    await restart(broker)
    await harness.fill(name, range(5, 8))
    seen += values(await read(consumer, 3))
    await consumer.commit()
    assert seen == [str(number) for number in range(8)]
    found = await consumer.committed(*at(name, 0))
    assert found[TopicPartition(name, 0)] is not None
    assert found[TopicPartition(name, 0)].offset == 8
    await harness.close()


async def test_sessions_are_closed_with_the_consumer(broker: Broker):
    harness = ReaderHarness(broker.bootstrap_servers)
    name = await harness.topic(1)
    await harness.fill(name, range(5))
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0))
    await read(consumer, 5)
    connection = await consumer._cluster.connection(0)
    assert connection.supports(Api.FETCH, 12)
    (session,) = consumer._fetcher._positions._sessions.values()
    assert session.session_id > 0
    await consumer.close()
    assert session.session_id == 0


async def test_no_broker_is_told_by_the_first_call():
    consumer = AsyncConsumer(bootstrap_servers=f"127.0.0.1:{free_port()}", default_api_timeout_ms=300)
    with pytest.raises(BrokerUnreachable, match="bootstrap_servers"):
        await consumer.poll(10)
    await consumer.close()


async def test_a_batch_that_cannot_be_read_is_told_and_can_be_passed_over(harness: ReaderHarness):
    name = await harness.topic(1)
    await harness.fill(name, ["bad"])
    await harness.fill(name, ["good"])
    (partition,) = at(name, 0)
    consumer = harness.consumer(in_group=False)
    consumer.assign([partition])
    await consumer.position(partition)
    await fetched(consumer, partition, lag=2)
    state = consumer._fetcher._positions._partitions[partition]
    first = state.batches[0]
    broken = bytearray(first.data)
    broken[-1] ^= 1
    state.batches[0] = first._replace(data=memoryview(broken))
    for _ in range(2):
        with pytest.raises(BrokerError, match=rf"{name}-0 at offsets 0 to 0 .*crc.*seek"):
            await consumer.poll(1000)
    consumer.seek(partition, 1)
    assert values(await read(consumer, 1)) == ["good"]
