"""aiokafka: the client for asyncio."""

from __future__ import annotations

from asyncio import create_task, gather, wait_for
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError, UnknownError
from interop_brokers import BROKERS
from interop_records import CODECS, FIRST_TIMESTAMP_MS, KINDS, LONG_POLL_MS, WITHIN_S, Sent, checksum, many

from headrace import Broker

pytestmark = pytest.mark.usefixtures("client_complaints")


async def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[int]:
    """Sends values to partition 0, and returns their offsets."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings) as producer:
        futures = [await producer.send(topic, value, partition=0) for value in values]
        sent = await wait_for(gather(*futures), WITHIN_S)
    return [-1 if each is None else each.offset for each in sent]


async def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, BROKERS, topic_configs=settings)])
    finally:
        await admin.close()


@asynccontextmanager
async def consuming(
    bootstrap: str, topic: str, partitions: int = 1, **settings: object
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that stands at the beginning."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **{**defaults, **settings}) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        yield consumer


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = await consumer.getmany(timeout_ms=WITHIN_S * 1000, max_records=count - len(found))
        assert records, f"only {len(found)} of {count} came"
        found += [record for batch in records.values() for record in batch]
    return found


async def values_of(bootstrap: str, topic: str, count: int, **settings: object) -> list[bytes | None]:
    async with consuming(bootstrap, topic, **settings) as consumer:
        return [record.value for record in await read(consumer, count)]


async def test_every_kind_of_record_comes_back_as_it_was_sent(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for sent in KINDS:
            await producer.send(topic, sent.value, sent.key, 0, sent.timestamp_ms, list(sent.headers))
        await producer.flush()
    async with consuming(bootstrap, topic) as consumer:
        found = await read(consumer, len(KINDS))
    assert [record.offset for record in found] == list(range(len(KINDS)))
    assert [Sent(each.key, each.value, tuple(each.headers), each.timestamp) for each in found] == list(KINDS)


async def test_the_broker_can_set_the_time(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = await producer.send_and_wait(topic, b"v", timestamp_ms=FIRST_TIMESTAMP_MS)
    async with consuming(bootstrap, topic) as consumer:
        [found] = await read(consumer, 1)
    assert (found.timestamp_type, sent.timestamp_type) == (1, 1)
    assert found.timestamp == sent.timestamp > FIRST_TIMESTAMP_MS


@pytest.mark.parametrize("codec", CODECS)
async def test_codecs(bootstrap: str, topic: str, codec: str, stored_codecs: Callable[[str], set[str]]) -> None:
    values = many(1000)
    await produce(bootstrap, topic, values, compression_type=codec)
    assert codec in stored_codecs(topic)  # a batch that would not shrink goes plain
    assert await values_of(bootstrap, topic, len(values)) == values


@pytest.mark.parametrize("asked", CODECS)
async def test_a_topic_that_asks_for_a_codec_recompresses(
    bootstrap: str, topic: str, asked: str, stored_codecs: Callable[[str], set[str]]
) -> None:
    await create(bootstrap, topic, compression_type=asked)
    values = many(300)
    for codec in (None, *CODECS):
        await produce(bootstrap, topic, values, compression_type=codec)
    assert stored_codecs(topic) == {asked}
    assert await values_of(bootstrap, topic, 5 * len(values)) == values * 5


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    await create(bootstrap, topic)
    values = many(300)
    offsets = await produce(bootstrap, topic, values, acks=acks)
    assert offsets == ([-1] * 300 if acks == 0 else list(range(300)))
    assert await values_of(bootstrap, topic, 300) == values


async def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    values = many(2000)
    assert await produce(bootstrap, topic, values, enable_idempotence=True, max_batch_size=500) == list(range(2000))
    assert await values_of(bootstrap, topic, 2000) == values


async def test_a_record_near_the_limit_passes_and_one_over_it_is_refused(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    big = {"max_request_size": 3_000_000, "max_batch_size": 3_000_000}
    assert await produce(bootstrap, topic, [b"x" * 1_048_400], **big) == [0]
    with pytest.raises(MessageSizeTooLargeError):
        await produce(bootstrap, topic, [b"x" * 1_048_600], **big)
    assert [len(value or b"") for value in await values_of(bootstrap, topic, 1)] == [1_048_400]


async def test_a_batch_larger_than_the_fetch_size_still_comes(bootstrap: str, topic: str) -> None:
    values = [bytes([number]) * 200_000 for number in range(3)]
    await produce(bootstrap, topic, values)
    assert await values_of(bootstrap, topic, 3, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) == values


async def test_a_compacted_topic_takes_no_record_without_a_key(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, cleanup_policy="compact")
    with pytest.raises(UnknownError):  # its name for every code that it does not know, as INVALID_RECORD
        await produce(bootstrap, topic, [b"no key"])


async def test_many_small_records_over_several_partitions(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, partitions=4)
    values = many(100_000)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=200_000) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % 4)
        await wait_for(producer.flush(), WITHIN_S)
    async with consuming(bootstrap, topic, partitions=4) as consumer:
        found = await read(consumer, len(values))
    assert checksum(record.value for record in found) == checksum(values)


async def test_a_batch_made_by_hand(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        batch = producer.create_batch()
        for number in range(10):
            batch.append(key=None, value=b"%d" % number, timestamp=FIRST_TIMESTAMP_MS + number)
        sent = await wait_for(await producer.send_batch(batch, topic, partition=0), WITHIN_S)
    assert sent.offset == 0
    assert await values_of(bootstrap, topic, 10) == [b"%d" % number for number in range(10)]


async def test_seeking(bootstrap: str, topic: str) -> None:
    values = many(50)
    await produce(bootstrap, topic, values)
    home = TopicPartition(topic, 0)
    async with consuming(bootstrap, topic) as consumer:
        consumer.seek(home, 40)
        assert [record.value for record in await read(consumer, 10)] == values[40:]
        assert await consumer.position(home) == 50
        await consumer.seek_to_beginning(home)
        assert (await read(consumer, 1))[0].value == values[0]
        await consumer.seek_to_end(home)
        assert await consumer.position(home) == 50
        assert await consumer.beginning_offsets([home]) == {home: 0}
        assert await consumer.end_offsets([home]) == {home: 50}
        assert consumer.highwater(home) == 50
        assert topic in await consumer.topics()


async def test_an_offset_that_is_not_there(bootstrap: str, topic: str) -> None:
    values = many(5)
    await produce(bootstrap, topic, values)
    home = TopicPartition(topic, 0)
    async with consuming(bootstrap, topic) as consumer:
        consumer.seek(home, 1_000_000)
        assert (await read(consumer, 1))[0].value == values[0]
    async with consuming(bootstrap, topic, auto_offset_reset="none") as consumer:
        consumer.seek(home, 1_000_000)
        with pytest.raises(OffsetOutOfRangeError):
            await wait_for(consumer.getone(), WITHIN_S)


async def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, timestamp_ms=FIRST_TIMESTAMP_MS + 10 * number)
    home = TopicPartition(topic, 0)

    async def at(timestamp_ms: int) -> tuple[int, int] | None:
        found = (await consumer.offsets_for_times({home: timestamp_ms}))[home]
        return None if found is None else (found.offset, found.timestamp)

    async with consuming(bootstrap, topic) as consumer:
        assert await at(0) == (0, FIRST_TIMESTAMP_MS)
        assert await at(FIRST_TIMESTAMP_MS + 30) == (3, FIRST_TIMESTAMP_MS + 30)
        assert await at(FIRST_TIMESTAMP_MS + 31) == (4, FIRST_TIMESTAMP_MS + 40)
        assert await at(FIRST_TIMESTAMP_MS + 91) is None


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_there(
    bootstrap: str, topic: str, isolation: str
) -> None:
    await produce(bootstrap, topic, [b"first"])
    async with consuming(bootstrap, topic, isolation_level=isolation, fetch_max_wait_ms=LONG_POLL_MS) as consumer:
        assert (await read(consumer, 1))[0].value == b"first"
        began = monotonic()
        later = create_task(consumer.getone())
        await produce(bootstrap, topic, [b"later"])
        assert (await wait_for(later, WITHIN_S)).value == b"later"
        assert monotonic() - began < LONG_POLL_MS / 2000


async def test_a_read_committed_consumer_sees_plain_records(bootstrap: str, topic: str) -> None:
    values = many(100)
    await produce(bootstrap, topic, values, enable_idempotence=True)
    async with consuming(bootstrap, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in await read(consumer, 100)] == values
        assert consumer.last_stable_offset(TopicPartition(topic, 0)) == 100


async def test_a_topic_is_made_when_it_is_first_written_to(bootstrap: str, topic: str) -> None:
    assert await produce(bootstrap, topic, [b"first"]) == [0]
    assert await values_of(bootstrap, topic, 1) == [b"first"]


async def test_the_shipped_fixture(headrace_broker: Broker, topic: str) -> None:
    values = many(100)
    await produce(headrace_broker.bootstrap_servers, topic, values)
    assert await values_of(headrace_broker.bootstrap_servers, topic, 100) == values
