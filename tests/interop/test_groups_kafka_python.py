"""kafka-python in classic groups: members share partitions, rebalance, and resume at committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic

import pytest
from interop_brokers import BROKERS
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

PARTITIONS = 4
WITHIN_S = 40.0
#: On a busy machine kafka-python gets stuck in the middle of a join if it is polled for much less, with Apache too.
POLL_MS = 500


@pytest.fixture
def bootstrap(fresh_bootstrap: str) -> str:
    return fresh_bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([NewTopic("orders", PARTITIONS, BROKERS)])
    return "orders"


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value.encode(), partition=number % PARTITIONS)
        producer.flush(WITHIN_S)


@contextmanager
def member(bootstrap: str, topic: str) -> Iterator[KafkaConsumer]:
    with closing(
        KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id="readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
        )
    ) as consumer:
        yield consumer


def poll_until(condition: Callable[[list[bytes]], bool], *consumers: KafkaConsumer) -> list[bytes]:
    """The values that the consumers get until the condition holds."""
    found: list[bytes] = []
    ends_at = monotonic() + WITHIN_S
    while not condition(found):
        assert monotonic() < ends_at, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            found += [record.value for records in consumer.poll(POLL_MS).values() for record in records]
    return found


def shares(*consumers: KafkaConsumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


def test_two_consumers_share_the_partitions(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [f"first {number}" for number in range(20)])
    with member(bootstrap, topic) as one:
        poll_until(lambda found: len(found) == 20, one)
        one.commit()
        with member(bootstrap, topic) as two:
            poll_until(lambda _: shares(one, two) == [2, 2], one, two)
            assert one.assignment() | two.assignment() == {TopicPartition(topic, index) for index in range(PARTITIONS)}
            produce(bootstrap, topic, [f"second {number}" for number in range(20)])
            values = poll_until(lambda found: len(found) >= 20, one, two)
            assert set(values) == {f"second {number}".encode() for number in range(20)}
            one.commit()
            two.commit()
        poll_until(lambda _: shares(one) == [PARTITIONS], one)
        assert [one.committed(TopicPartition(topic, index)) for index in range(PARTITIONS)] == [10] * PARTITIONS


def test_a_new_consumer_goes_on_where_the_group_was(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [str(number) for number in range(8)])
    with member(bootstrap, topic) as one:
        poll_until(lambda found: len(found) == 8, one)
        one.commit()
    produce(bootstrap, topic, ["later"])
    with member(bootstrap, topic) as two:
        assert poll_until(lambda found: bool(found), two) == [b"later"]


def test_the_admin_client_sees_groups(bootstrap: str, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, member(bootstrap, topic) as one:
        poll_until(lambda _: shares(one) == [PARTITIONS], one)
        assert "readers" in str(admin.list_groups())
