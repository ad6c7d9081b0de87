"""Changes while clients run: topics are deleted and created again, a broker is killed and started again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop_records import WITHIN_S, checksum, many
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from headrace import Broker

pytestmark = pytest.mark.usefixtures("librdkafka_complaints")


def create(admin: AdminClient, topic: str) -> None:
    [made] = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    made.result(WITHIN_S)


def make_anew(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_topics([topic]).values()
    deleted.result(WITHIN_S)
    create(admin, topic)


def send(producer: Producer, topic: str, value: bytes) -> int:
    """Sends one record, and returns its offset."""
    offsets: list[int] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, sent: offsets.append(error or sent.offset()))
    assert producer.flush(WITHIN_S) == 0
    return offsets[0]


def next_value(consumer: Consumer) -> bytes:
    while True:
        message = consumer.poll(WITHIN_S)
        assert message is not None, "nothing came"
        if message.error() is None:
            value: bytes = message.value()
            return value
        # Seen on the way, while it finds the new topic.
        assert message.error().code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka_finds_a_topic_made_anew(bootstrap: str, topic: str, idempotent: bool) -> None:
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    for number in range(3):
        assert send(producer, topic, b"old") == number
        assert next_value(consumer) == b"old"
    make_anew(bootstrap, topic)
    assert send(producer, topic, b"new") == 0
    assert next_value(consumer) == b"new"
    consumer.close()


def test_kafka_python_finds_a_topic_made_anew(bootstrap: str, topic: str) -> None:
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    with (
        closing(KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)) as producer,
        closing(KafkaConsumer(bootstrap_servers=bootstrap, **settings)) as consumer,
    ):
        consumer.assign([KafkaPythonPartition(topic, 0)])

        def read() -> list[bytes]:
            polled = consumer.poll(WITHIN_S * 1000)
            return [record.value for records in polled.values() for record in records]

        for number in range(3):
            assert producer.send(topic, b"old").get(WITHIN_S).offset == number
            assert read() == [b"old"]
        make_anew(bootstrap, topic)
        assert producer.send(topic, b"new").get(WITHIN_S).offset == 0
        # It may take the new topic for a truncated log (KIP-320), and then goes to where the two part: the new end.
        consumer.seek_to_beginning()
        assert read() == [b"new"]


async def test_aiokafka_finds_a_topic_made_anew(bootstrap: str, topic: str) -> None:
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50}
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **settings) as consumer,
    ):
        for number in range(3):
            assert (await producer.send_and_wait(topic, b"old")).offset == number
            assert (await consumer.getone()).value == b"old"
        await asyncio.to_thread(make_anew, bootstrap, topic)
        assert (await asyncio.wait_for(producer.send_and_wait(topic, b"new"), WITHIN_S)).offset == 0
        assert (await asyncio.wait_for(consumer.getone(), WITHIN_S)).value == b"new"


@contextmanager
def running(data: Path, listen: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    headrace = Path(sys.executable).with_name("headrace")
    command = [headrace, "start", "--data", str(data), "--listen", listen, "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said, _, bootstrap = process.stdout.readline().strip().partition(" ")
            assert said == "ready"
            yield process, bootstrap
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_idempotent_producer_loses_and_doubles_nothing_over_a_restart(tmp_path: Path, topic: str, how: str) -> None:
    values = many(20_000)
    with running(tmp_path, "127.0.0.1:0") as (process, bootstrap):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 50,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        done: list[int] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            assert error is None, error
            done.append(1)

        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        while not done:
            assert producer.poll(WITHIN_S)
        process.kill() if how == "killed" else process.terminate()
        process.wait(WITHIN_S)
        assert len(done) < len(values), "it was over before the broker ended"
    with running(tmp_path, bootstrap) as (process, again):
        assert again == bootstrap
        assert producer.flush(WITHIN_S) == 0
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [consumer.poll(WITHIN_S) for _ in values]
        assert [message.value() for message in found] == values
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S) == (0, len(values))
        consumer.close()


def test_many_producers_on_one_partition(headrace_broker: Broker, new_topic: Callable[[], str]) -> None:
    bootstrap, topic = headrace_broker.bootstrap_servers, new_topic()
    create(AdminClient({"bootstrap.servers": bootstrap}), topic)
    values = many(10_000)

    def work(mine: list[bytes], idempotent: bool) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "linger.ms": 1})
        for value in mine:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WITHIN_S) == 0

    workers = [Thread(target=work, args=(values[index::10], index % 2 == 0)) for index in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WITHIN_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [consumer.poll(WITHIN_S) for _ in values]
    consumer.close()
    assert [message.offset() for message in found] == list(range(len(values)))
    assert checksum(message.value() for message in found) == checksum(values)
