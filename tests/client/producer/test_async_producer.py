"""The asyncio producer against a real broker: what is sent can be read, and what cannot be sent says why."""

import asyncio
from itertools import pairwise

import pytest
from producer_harness import read, read_headers, read_values

from headrace import Broker
from headrace.client.encoded_batch import EncodedBatch
from headrace.client.errors import (
    BrokerUnreachable,
    BufferExhausted,
    ClientClosed,
    InvalidTopic,
    KafkaTimeout,
    RecordTooLarge,
    UnknownTopic,
)
from headrace.client.partitioners.murmur2 import partition_for_key
from headrace.client.partitioners.strategies import Partitioner
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.producer.delivery import AsyncDelivery
from headrace.client.producer.record_encoding import encode_records
from headrace.protocol.records import HEADER_BYTES, Codec


@pytest.fixture
async def broker():
    async with Broker(config={"num.partitions": 3}) as broker:
        yield broker


def producer_at(broker, **options):
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **({"linger_ms": 0} | options))


# ------------------------------------------------------------------------------------------------------------ sending


async def test_a_record_arrives_with_all_that_it_has(broker):
    async with producer_at(broker) as producer:
        delivery = await producer.send(
            "t", b"v", key=b"k", partition=1, timestamp_ms=1_600_000_000_000, headers={"a": b"1", "b": None}
        )
        assert await delivery == ("t", 1, 0, 1_600_000_000_000)
        assert await delivery == ("t", 1, 0, 1_600_000_000_000)
    (record,) = await read(broker.bootstrap_servers, partition=1)
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", 1_600_000_000_000)
    assert record.headers == (("a", b"1"), ("b", None))


async def test_a_key_decides_the_partition_as_in_java(broker):
    async with producer_at(broker) as producer:
        for key in (b"", b"one", b"two", b"three"):
            metadata = await producer.send_and_wait("t", b"v", key=key)
            assert metadata.partition == partition_for_key(key, 3)


async def test_many_records_keep_their_order_within_a_partition(broker):
    async with producer_at(broker, linger_ms=5) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(5000)]
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)
    found = []
    for partition in range(3):
        numbers = [int(value) for value in await read_values(broker.bootstrap_servers, partition=partition)]
        assert numbers == sorted(numbers)
        found += numbers
    assert sorted(found) == list(range(5000))


async def test_every_delivery_knows_its_own_offset(broker):
    async with producer_at(broker, linger_ms=5) as producer:
        deliveries = [await producer.send("t", b"%d" % number, partition=0) for number in range(1000)]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(1000))


async def test_records_with_and_without_keys_share_batches(broker):
    rows = [(b"k%d" % number if number % 3 else None, b"v%d" % number * (number % 40)) for number in range(500)]
    async with producer_at(broker, linger_ms=5) as producer:
        for key, value in rows:
            await producer.send("t", value, key=key, partition=0)
    assert [(record.key, record.value) for record in await read(broker.bootstrap_servers)] == rows


@pytest.mark.parametrize("codec", Codec)
async def test_every_codec_is_understood(broker, codec):
    async with producer_at(broker, compression_type=codec.name, linger_ms=50) as producer:
        for number in range(200):
            await producer.send("t", b"%d" % number * 10, partition=0)
    assert len(await read_values(broker.bootstrap_servers)) == 200
    assert {header.codec_number for header in await read_headers(broker.bootstrap_servers)} == {codec}


async def test_a_tombstone_and_an_empty_value_are_not_the_same(broker):
    async with producer_at(broker) as producer:
        await producer.send("t", None, key=b"k", partition=0)
        await producer.send("t", b"", key=b"k", partition=0)
    assert await read_values(broker.bootstrap_servers) == [None, b""]


async def test_serializers_make_bytes_and_what_is_none_is_refused(broker):
    async with producer_at(broker, value_serializer=str.encode, key_serializer=lambda key: b"%d" % key) as producer:
        await producer.send("t", "grüße", key=7, partition=0)
        with pytest.raises(TypeError):
            await producer.send("t", b"bytes")
    (record,) = await read(broker.bootstrap_servers)
    assert (record.key, record.value) == (b"7", "grüße".encode())
    async with producer_at(broker) as producer:
        with pytest.raises(TypeError, match="value_serializer"):
            await producer.send("t", "text")
        with pytest.raises(TypeError, match="header"):
            await producer.send("t", b"", headers={"a": "text"})
        await producer.send_and_wait("t", bytearray(b"copied"), partition=0)
    assert (await read_values(broker.bootstrap_servers))[-1] == b"copied"


async def test_what_is_not_awaited_is_sent_when_the_producer_closes(broker):
    async with producer_at(broker, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await producer.send("t", b"v", partition=0)
    assert await read_values(broker.bootstrap_servers) == [b"v"]


async def test_idempotence_is_on_unless_acks_rule_it_out(broker):
    for acks, has_producer in (("all", True), ("1", False), ("0", False)):
        async with producer_at(broker, acks=acks) as producer:
            await producer.send_and_wait(f"t{acks}", b"v", partition=0)
            if acks == "0":  # nothing says when the broker has it, but an answer on the same connection does
                await producer._cluster.refresh()
        if acks != "0":
            headers = await read_headers(broker.bootstrap_servers, f"t{acks}")
            assert [header.has_producer for header in headers] == [has_producer]


class ByLength(Partitioner):
    def partition_for_key(self, topic, key, partition_count):
        return len(key) % partition_count


@pytest.mark.parametrize("name", ["RoundRobin", "org.apache.kafka.clients.producer.RoundRobinPartitioner", ByLength])
async def test_a_partitioner_may_look_at_no_key_or_choose_by_it(broker, name):
    async with producer_at(broker, partitioner_class=name) as producer:
        sent = [await producer.send("t", b"v", key=b"k" * size) for size in (1, 1, 1, 2)]
        partitions = [(await delivery).partition for delivery in sent]
    assert partitions == ([1, 1, 1, 2] if name is ByLength else [0, 1, 2, 0])


async def test_a_partitioner_of_ones_own(broker):
    class Last(Partitioner):
        def partition(self, topic, partition_count, available):
            return partition_count - 1

    for wanted, expected in ((Last, {2}), (Last(), {2}), ("RoundRobin", {0, 1, 2})):
        async with producer_at(broker, partitioner_class=wanted) as producer:
            deliveries = [await producer.send("t", b"v") for _ in range(6)]
            assert {(await delivery).partition for delivery in deliveries} == expected
    with pytest.raises(ValueError, match="RoundRobin"):
        async with producer_at(broker, partitioner_class="Nonsense"):
            pass


async def test_records_without_a_key_stay_with_a_partition_until_its_batch_is_full(broker):
    async with producer_at(broker, linger_ms=50, batch_size=2000) as producer:
        deliveries = [await producer.send("t", b"x" * 100) for _ in range(400)]
        partitions = [delivery.partition for delivery in deliveries]
        await producer.flush()
    runs = 1 + sum(before != after for before, after in pairwise(partitions))
    assert set(partitions) == {0, 1, 2}
    assert runs < 40


# ---------------------------------------------------------------------------------------------------------- refusals


async def test_a_record_larger_than_a_request_is_refused(broker):
    async with producer_at(broker, max_request_size=1000) as producer:
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            await producer.send("t", b"x" * 2000)


async def test_a_record_larger_than_the_buffer_is_refused(broker):
    async with producer_at(broker, buffer_memory=20_000) as producer:
        with pytest.raises(RecordTooLarge, match=r"buffer\.memory"):
            await producer.send("t", b"x" * 30_000)


async def test_a_record_larger_than_the_topic_takes_fails_and_the_next_is_delivered(broker):
    async with producer_at(broker, max_request_size=4_000_000) as producer:
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            await producer.send_and_wait("t", b"x" * 2_000_000, partition=0)
        assert (await producer.send_and_wait("t", b"small", partition=0)).offset == 0


async def test_a_batch_larger_than_the_topic_takes_is_split():
    async with Broker(config={"message.max.bytes": 2000}) as broker, producer_at(broker, linger_ms=50) as producer:
        deliveries = [await producer.send("t", b"%d" % number * 100) for number in range(100)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))


async def test_a_topic_that_is_not_there_and_does_not_come():
    async with (
        Broker(config={"auto.create.topics.enable": False}) as broker,
        producer_at(broker, max_block_ms=1000) as producer,
    ):
        with pytest.raises(UnknownTopic, match="'t'"):
            await producer.send("t", b"v")
        with pytest.raises(InvalidTopic):
            await producer.send("a/b", b"v")


async def test_a_partition_that_the_topic_has_not(broker):
    async with producer_at(broker) as producer:
        with pytest.raises(UnknownTopic, match="t has no partition 7, only 0 to 2"):
            await producer.send("t", b"v", partition=7)


async def test_a_full_buffer_is_waited_for_and_no_longer_than_max_block():
    async with Broker() as broker:
        options = {"buffer_memory": 16_384, "max_block_ms": 1000, "delivery_timeout_ms": 60_000}
        async with producer_at(broker, **options) as producer:
            for _ in range(1000):  # each fits once those before are delivered
                await producer.send("t", b"x" * 500)
            await producer.flush()
            await broker.core.stop()
            await producer.send("t", b"x" * 15_000)
            with pytest.raises(BufferExhausted, match=r"buffer.memory \(16384 bytes\).*1000 ms \(max.block.ms\)"):
                await producer.send("t", b"x" * 15_000)
            await producer.close(0)


async def test_who_gives_up_waiting_for_memory_leaves_it_to_others(broker):
    options = {"buffer_memory": 16_384, "linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    async with producer_at(broker, **options) as producer:
        await producer.send("t", b"x", partition=0)
        waiting = asyncio.create_task(producer.send("t", b"y", partition=1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await producer.flush()
        assert producer.record_buffer.pool.available_bytes == 16_384


async def test_a_closed_producer_says_so(broker):
    producer = producer_at(broker)
    with pytest.raises(ClientClosed, match="not started"):
        await producer.flush()
    await producer.start()
    await producer.send("t", b"v")
    await producer.close()
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send("t", b"v")
    with pytest.raises(ClientClosed):
        await producer.flush()
    assert "closed" in repr(producer)


async def test_no_broker_is_told_within_max_block():
    async with Broker() as broker:
        address = broker.bootstrap_servers
    producer = AsyncProducer(bootstrap_servers=address, max_block_ms=200)
    with pytest.raises(BrokerUnreachable, match=address):
        await producer.start()


# ------------------------------------------------------------------------------------------------------------- faults


async def test_a_broker_that_is_restarted_loses_and_doubles_nothing(tmp_path):
    async with Broker(data=tmp_path) as broker:
        address = broker.bootstrap_servers
        producer = AsyncProducer(bootstrap_servers=address, linger_ms=1, retry_backoff_ms=10, reconnect_backoff_ms=10)
        await producer.start()
        before = [await producer.send("t", b"%d" % number) for number in range(500)]
        await before[-1]
    during = [await producer.send("t", b"%d" % number) for number in range(500, 1000)]
    async with Broker(data=tmp_path, listen=address):
        after = [await producer.send("t", b"%d" % number) for number in range(1000, 1500)]
        offsets = [(await delivery).offset for delivery in (*before, *during, *after)]
        assert offsets == list(range(1500))
        assert await read_values(address) == [b"%d" % number for number in range(1500)]
        await producer.close()


async def test_a_broker_that_stays_away_is_given_up_after_the_delivery_timeout(tmp_path):
    async with Broker(data=tmp_path) as broker:
        producer = producer_at(broker, request_timeout_ms=200, delivery_timeout_ms=400, retry_backoff_ms=20)
        await producer.start()
        await producer.send_and_wait("t", b"v")
    delivery = await producer.send("t", b"v")
    with pytest.raises(KafkaTimeout, match=r"a record for t-0 not delivered within 400 ms \(delivery.timeout.ms\)"):
        await delivery
    await producer.close()


async def test_closing_with_a_timeout_fails_what_is_left(tmp_path):
    async with Broker(data=tmp_path) as broker:
        producer = producer_at(broker)
        await producer.start()
        await producer.send_and_wait("t", b"v")
    delivery = await producer.send("t", b"v")
    await producer.close(timeout_ms=50)
    with pytest.raises(ClientClosed):
        await delivery
    assert producer.record_buffer.pool.available_bytes == producer.record_buffer.pool.total_bytes


# ------------------------------------------------------------------------------------------------------ whole batches


def encoded(values):
    return EncodedBatch(0, bytes(HEADER_BYTES) + encode_records(values, None, {}, [(0, 7)]), len(values), 7, 7)


async def test_a_batch_that_is_encoded_already_is_sent_like_others(broker):
    async with producer_at(broker) as producer:
        await producer.send("t", b"before", partition=0)
        batch = await producer.send_encoded("t", encoded([b"a", b"b", b"c"]))
        await producer.send("t", b"after", partition=0)
        assert await AsyncDelivery.of(batch, 2) == ("t", 0, 3, 7)
    assert await read_values(broker.bootstrap_servers) == [b"before", b"a", b"b", b"c", b"after"]


async def test_an_encoded_batch_waits_for_memory_and_is_refused_where_it_never_fits(broker):
    async with producer_at(broker, buffer_memory=20_000) as producer:
        await producer.partitions_of("t")
        batches = [await producer.send_encoded("t", encoded([b"x" * 15_000])) for _ in range(5)]
        assert [(await AsyncDelivery.of(batch, 0)).offset for batch in batches] == [0, 1, 2, 3, 4]
        with pytest.raises(RecordTooLarge, match=r"buffer\.memory"):
            await producer.send_encoded("t", encoded([b"x" * 30_000]))
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
            await producer.send_encoded("t", encoded([b"x" * 2_000_000]))
    with pytest.raises(ClientClosed):
        await producer.send_encoded("t", encoded([b"x"]))


async def test_an_encoded_batch_that_is_too_large_is_split():
    async with Broker(config={"message.max.bytes": 2000}) as broker, producer_at(broker) as producer:
        await producer.partitions_of("t")
        values = [b"%d" % (number % 10) * 100 for number in range(100)]
        batch = await producer.send_encoded("t", encoded(values))
        assert [(await AsyncDelivery.of(batch, at)).offset for at in range(100)] == list(range(100))
        assert await read_values(broker.bootstrap_servers) == values
