"""Does the same work with each client library, and returns records per second, to and from one broker.

Settings are the same on all sides. They are librdkafka's defaults: ``acks=all``, ``linger.ms=5``, batches of
up to 1,000,000 bytes, no compression, no idempotence, fetches of 1 MiB per partition. Values have 100
bytes; records have no key.

Producers: the time from the first record to the last acknowledgement; the producer has the topic's metadata before.
Consumers: the time from the first records that arrive, which are not counted, to the last. Start-up is not measured.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from loads import RECORD_BYTES
from servers import Server, java

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition

BATCH_BYTES, LINGER_MS, FETCH_BYTES = 1_000_000, 5, 1 << 20
BUFFER_BYTES = 128 << 20
VALUE = b"x" * RECORD_BYTES
_HEADRACE = str(Path(sys.executable).parent / "headrace")
_DONE_S = 120

#: (broker, topic, partitions, records) to records per second.
Load = Callable[[Server, str, int, int], float]


def _rate(count: int, started: float) -> float:
    return count / (time.perf_counter() - started)


def _ready() -> float:
    """Collects the garbage of earlier loads, so that this load does not pay for it."""
    gc.collect()
    return time.perf_counter()


# -------------------------------------------------------------------------------------------------------- producers


def _our_options(server: Server) -> dict[str, Any]:
    return {
        "bootstrap_servers": server.address, "acks": "all", "linger_ms": LINGER_MS, "batch_size": BATCH_BYTES,
        "enable_idempotence": False, "buffer_memory": BUFFER_BYTES,
    }  # fmt: skip


def send_arrow(server: Server, topic: str, _partitions: int, count: int) -> float:
    table = pa.table({"value": pa.array([VALUE] * count, pa.binary())})

    async def run() -> float:
        async with AsyncProducer(**_our_options(server)) as producer:
            await (await producer.send_arrow(topic, table.slice(0, 100)))
            started = _ready()
            summary = await (await producer.send_arrow(topic, table))
            assert summary.record_count == count
            return _rate(count, started)

    return uvloop.run(run())


def send_async(server: Server, topic: str, _partitions: int, count: int) -> float:
    async def run() -> float:
        async with AsyncProducer(**_our_options(server)) as producer:
            await producer.send_and_wait(topic, VALUE)
            send = producer.send
            started = _ready()
            for _ in range(count):
                await send(topic, VALUE)
            await producer.flush()
            return _rate(count, started)

    return uvloop.run(run())


def send(server: Server, topic: str, _partitions: int, count: int) -> float:
    with Producer(**_our_options(server)) as producer:
        producer.send_and_wait(topic, VALUE)
        send = producer.send
        started = _ready()
        for _ in range(count):
            send(topic, VALUE)
        producer.flush()
        return _rate(count, started)


def confluent_produce(server: Server, topic: str, _partitions: int, count: int) -> float:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.address, "acks": "all", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
        }
    )  # fmt: skip
    producer.produce(topic, VALUE)
    assert not producer.flush(_DONE_S)
    produce, poll = producer.produce, producer.poll
    started = _ready()
    for number in range(count):
        while True:
            try:
                produce(topic, VALUE)
                break
            except BufferError:
                poll(0.01)
        if number % 10_000 == 0:
            poll(0)
    assert not producer.flush(_DONE_S), "records were not acknowledged"
    return _rate(count, started)


def aiokafka_produce(server: Server, topic: str, _partitions: int, count: int) -> float:
    async def run() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=server.address, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        try:
            await producer.send_and_wait(topic, VALUE)
            started = _ready()
            for _ in range(count):
                await producer.send(topic, VALUE)
            await producer.flush()
            return _rate(count, started)
        finally:
            await producer.stop()

    return uvloop.run(run())


# -------------------------------------------------------------------------------------------------------- consumers


def _counted(sizes: Iterable[int], count: int) -> float:
    """Records per second of lists that arrive one after another; the first list starts the clock."""
    first, started, got = 0, 0.0, 0
    for size in sizes:
        assert size, f"only {got} of {count} records came"
        got += size
        if not first:
            first, started = size, time.perf_counter()
        if got >= count:
            return _rate(got - first, started)
    raise AssertionError("the consumer ended")


async def _acounted(records: AsyncIterator[Any], count: int, value_of: Callable[[Any], bytes]) -> float:
    await anext(records)
    started, got = time.perf_counter(), 1
    async for record in records:
        value_of(record)
        got += 1
        if got == count:
            return _rate(got - 1, started)
    raise AssertionError("the consumer ended")


def _our_consumer_options(server: Server) -> dict[str, Any]:
    return {"bootstrap_servers": server.address, "max_partition_fetch_bytes": FETCH_BYTES}


def _partitions_of(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(partitions)]


def poll_arrow(server: Server, topic: str, partitions: int, count: int) -> float:
    async def run() -> float:
        async with AsyncConsumer(**_our_consumer_options(server)) as consumer:
            consumer.assign(_partitions_of(topic, partitions))
            consumer.seek_to_beginning()
            gc.collect()
            first, started, got = 0, 0.0, 0
            while got < count:
                batch = await consumer.poll_arrow(10_000)
                assert batch.num_rows, f"only {got} of {count} records came"
                got += batch.num_rows
                if not first:
                    first, started = got, time.perf_counter()
            return _rate(got - first, started)

    return uvloop.run(run())


def iterate(server: Server, topic: str, partitions: int, count: int) -> float:
    """A plain ``for`` over the blocking consumer, which reads each value."""
    with Consumer(**_our_consumer_options(server)) as consumer:
        consumer.assign(_partitions_of(topic, partitions))
        consumer.seek_to_beginning()
        gc.collect()
        records = iter(consumer)
        next(records)
        started, got = time.perf_counter(), 1
        for record in records:
            record.value  # noqa: B018  what confluent-kafka makes a call of
            got += 1
            if got == count:
                break
        return _rate(got - 1, started)


def iterate_async(server: Server, topic: str, partitions: int, count: int) -> float:
    async def run() -> float:
        async with AsyncConsumer(**_our_consumer_options(server)) as consumer:
            consumer.assign(_partitions_of(topic, partitions))
            consumer.seek_to_beginning()
            gc.collect()
            return await _acounted(aiter(consumer), count, lambda record: record.value)

    return uvloop.run(run())


#: librdkafka stops for a second when it has fetched 100,000 messages ahead, which at this pace is most of the time.
_TUNED = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 200_000, "fetch.queue.backoff.ms": 1}


def confluent_consume(
    server: Server, topic: str, partitions: int, count: int, *, reads_values: bool = False, is_tuned: bool = False
) -> float:
    """Reads by ``consume`` with a number of messages, with default settings or with the best that we found."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.address, "group.id": "bench", "enable.auto.commit": False,
            "max.partition.fetch.bytes": FETCH_BYTES, "check.crcs": True, **(_TUNED if is_tuned else {}),
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    gc.collect()

    def sizes() -> Iterable[int]:
        while True:
            messages = consumer.consume(1_000 if is_tuned else 10_000, timeout=30)
            if reads_values:
                for message in messages:
                    message.value()
            yield len(messages)

    try:
        return _counted(sizes(), count)
    finally:
        consumer.close()


confluent_consume_tuned = partial(confluent_consume, is_tuned=True)
confluent_iterate = partial(confluent_consume, reads_values=True)
confluent_iterate_tuned = partial(confluent_consume, reads_values=True, is_tuned=True)


def aiokafka_iterate(server: Server, topic: str, partitions: int, count: int) -> float:
    async def run() -> float:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=server.address, enable_auto_commit=False, max_partition_fetch_bytes=FETCH_BYTES
        )
        await consumer.start()
        try:
            assigned = [AiokafkaPartition(topic, partition) for partition in range(partitions)]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            gc.collect()
            return await _acounted(aiter(consumer), count, lambda record: record.value)
        finally:
            await consumer.stop()

    return uvloop.run(run())


# ------------------------------------------------------------------------------------------------------- perf tools


def _output(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def _producer_perf(command: list[str], server: Server, topic: str, count: int) -> float:
    flags = ["--bootstrap-server", server.address, "--topic", topic, "--num-records", str(count), "--throughput", "-1"]
    properties = ["acks=all", f"linger.ms={LINGER_MS}", "batch.size=16384"]
    output = _output([*command, *flags, "--record-size", str(RECORD_BYTES), "--producer-props", *properties])
    return float(re.findall(r"records sent, ([0-9.]+) records/sec", output)[-1])


def producer_perf_test(server: Server, topic: str, _partitions: int, count: int) -> float:
    return _producer_perf([_HEADRACE, "producer-perf-test"], server, topic, count)


def apache_producer_perf_test(server: Server, topic: str, _partitions: int, count: int) -> float:
    tool = java("org.apache.kafka.tools.ProducerPerformance", options=("-Xmx512m",))
    return _producer_perf(tool, server, topic, count)


def _consumer_perf(command: list[str], server: Server, topic: str, count: int) -> float:
    flags = ["--bootstrap-server", server.address, "--topic", topic, "--num-records", str(count), "--hide-header"]
    last = _output([*command, *flags]).strip().splitlines()[-1]
    return float(last.split(",")[-1])  # fetch.nMsg.sec: without the time that joining the group took


def consumer_perf_test(server: Server, topic: str, _partitions: int, count: int) -> float:
    return _consumer_perf([_HEADRACE, "consumer-perf-test"], server, topic, count)


def apache_consumer_perf_test(server: Server, topic: str, _partitions: int, count: int) -> float:
    tool = java("org.apache.kafka.tools.ConsumerPerformance", options=("-Xmx512m",))
    return _consumer_perf(tool, server, topic, count)
