"""confluent-kafka's transactional producer, and its read_committed consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop_brokers import BROKERS
from interop_records import WITHIN_S

pytestmark = pytest.mark.usefixtures("librdkafka_complaints")


def producer_of(bootstrap: str, name: str, **settings: object) -> Producer:
    """One that has started."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1, **settings})
    made.init_transactions(WITHIN_S)
    return made


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, partitions, BROKERS)]).values()
    made.result(WITHIN_S)


@contextmanager
def consuming(bootstrap: str, topic: str, partitions: int = 1, **settings: object) -> Iterator[Consumer]:
    defaults = {
        "bootstrap.servers": bootstrap,
        "group.id": f"group-of-{topic}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**defaults, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    try:
        yield consumer
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int = 1, **settings: object) -> list[list[str]]:
    """The values of each partition, as far as the consumer gets."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    with consuming(bootstrap, topic, partitions, **settings) as consumer:
        while len(ended) < partitions:
            message = consumer.poll(WITHIN_S)
            assert message is not None, "neither a record nor the end came"
            error = message.error()
            if error is None:
                found[message.partition()].append(message.value().decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
    return found


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WITHIN_S) == 0


def test_commits_and_aborts(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    producer = producer_of(bootstrap, topic)
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            send(producer, topic, f"{number}a", f"{number}b", partition=partition)
        if number % 3 == 1:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)
    kept = [f"{number}{letter}" for number in (0, 2, 3, 5) for letter in "ab"]
    assert read_all(bootstrap, topic, 2) == [kept, kept]
    everything = [f"{number}{letter}" for number in range(6) for letter in "ab"]
    assert read_all(bootstrap, topic, 2, **{"isolation.level": "read_uncommitted"}) == [everything] * 2


@pytest.mark.parametrize("fetch_bytes", [1, 200, 1000, 50_000])
def test_open_and_aborted_records_are_never_seen_at_any_fetch_size(
    bootstrap: str, topic: str, fetch_bytes: int
) -> None:
    create(bootstrap, topic)
    committing, aborting, hanging = (producer_of(bootstrap, f"{topic}-{name}") for name in "cah")
    expected = []
    for number in range(8):
        committing.begin_transaction()
        aborting.begin_transaction()
        send(committing, topic, f"c{number}-1")
        send(aborting, topic, f"a{number}-1" * 50)
        send(committing, topic, f"c{number}-2")
        expected += [f"c{number}-1", f"c{number}-2"]
        aborting.abort_transaction(WITHIN_S)
        committing.commit_transaction(WITHIN_S)
    hanging.begin_transaction()
    send(hanging, topic, "open")
    committing.begin_transaction()
    send(committing, topic, "behind the open one")
    committing.commit_transaction(WITHIN_S)
    sizes = {
        "fetch.max.bytes": max(fetch_bytes, 1000),
        "message.max.bytes": 1000,
        "max.partition.fetch.bytes": fetch_bytes,
    }
    assert read_all(bootstrap, topic, **sizes) == [expected]
    hanging.commit_transaction(WITHIN_S)
    assert read_all(bootstrap, topic, **sizes) == [[*expected, "open", "behind the open one"]]


def test_a_waiting_reader_hears_of_the_commit(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = producer_of(bootstrap, topic)
    producer.begin_transaction()
    send(producer, topic, "1")
    with consuming(bootstrap, topic, **{"fetch.wait.max.ms": 300}) as consumer:
        first = consumer.poll(WITHIN_S)
        assert first is not None
        assert first.error().code() == KafkaError._PARTITION_EOF
        producer.commit_transaction(WITHIN_S)
        message = consumer.poll(WITHIN_S)
        assert message is not None
        assert message.value() == b"1"


def test_a_second_producer_fences_the_first(bootstrap: str, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    create(bootstrap, topic)
    first = producer_of(bootstrap, topic)
    first.begin_transaction()
    send(first, topic, "lost")
    second = producer_of(bootstrap, topic)
    second.begin_transaction()
    send(second, topic, "kept")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(WITHIN_S)
    assert caught.value.args[0].fatal()
    second.commit_transaction(WITHIN_S)
    assert read_all(bootstrap, topic) == [["kept"]]
    assert "fenced by a newer instance" in capfd.readouterr().err  # librdkafka says so itself


def test_consume_process_produce(bootstrap: str, topic: str) -> None:
    """Offsets are committed with the records that came of them: a restart finds each record processed once."""
    source, target = topic, f"{topic}-out"
    create(bootstrap, source)
    create(bootstrap, target)
    feeding = Producer({"bootstrap.servers": bootstrap})
    send(feeding, source, *(str(number) for number in range(20)))
    group = f"group-{topic}"
    settings = {"group.id": group, "enable.partition.eof": False}
    for attempt in range(4):
        producer = producer_of(bootstrap, f"copier-{topic}")
        with consuming(bootstrap, source, **settings) as consumer:
            [committed] = consumer.committed([TopicPartition(source, 0)], WITHIN_S)
            position = max(committed.offset, 0)
            assert position == (0, 5, 5, 10)[attempt]
            consumer.assign([TopicPartition(source, 0, position)])
            producer.begin_transaction()
            for message in consumer.consume(5, WITHIN_S):
                producer.produce(target, b"copy of " + message.value(), partition=0)
            positions = consumer.position([TopicPartition(source, 0)])
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WITHIN_S)
            if attempt == 1:
                producer.abort_transaction(WITHIN_S)
            else:
                producer.commit_transaction(WITHIN_S)
    assert read_all(bootstrap, target) == [[f"copy of {number}" for number in range(15)]]
