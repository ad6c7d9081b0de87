"""The transactional producers of aiokafka and kafka-python."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from interop_records import WITHIN_S
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

pytestmark = pytest.mark.usefixtures("client_complaints")


async def aio_values(bootstrap: str, topic: str, count: int, **settings: object) -> list[bytes]:
    defaults = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    found: list[bytes] = []
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, **{**defaults, **settings}) as consumer:
        consumer.assign([AioPartition(topic, 0)])
        while len(found) < count:
            records = await consumer.getmany(timeout_ms=WITHIN_S * 1000)
            assert records, f"only {len(found)} of {count} came"
            found += [record.value for batch in records.values() for record in batch]
    return found


async def test_aiokafka_commits_and_aborts(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for number in range(5):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    assert await aio_values(bootstrap, topic, 3) == [b"0", b"2", b"4"]
    assert len(await aio_values(bootstrap, topic, 5, isolation_level="read_uncommitted")) == 5


async def test_aiokafka_is_fenced(bootstrap: str, topic: str, client_complaints: list[str]) -> None:
    client_complaints += ["fenced", "ProducerFenced", "Unexpected error in sender"]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as second:
        first = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await second.begin_transaction()
        await second.send_and_wait(topic, b"lost", partition=0)
        await first.start()
        with pytest.raises(ProducerFenced):
            await second.commit_transaction()
        async with first.transaction():
            await first.send_and_wait(topic, b"kept", partition=0)
        await first.stop()
    assert await aio_values(bootstrap, topic, 1) == [b"kept"]


async def test_aiokafka_commits_offsets(bootstrap: str, topic: str) -> None:
    group = f"group-{topic}"
    where = AioPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for offset in (5, 7):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"1", partition=0)
            await producer.send_offsets_to_transaction({where: offset}, group)
            await (producer.commit_transaction() if offset == 5 else producer.abort_transaction())
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([where])
        assert await consumer.committed(where) == 5


def test_kafka_python_commits_and_aborts(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    for number in range(5):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0).get(WITHIN_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WITHIN_S * 1000,
    )
    consumer.assign([PythonPartition(topic, 0)])
    values = [record.value for _, record in zip(range(3), consumer, strict=False)]
    consumer.close()
    assert values == [b"0", b"2", b"4"]
