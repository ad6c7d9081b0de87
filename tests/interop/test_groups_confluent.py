"""confluent-kafka (librdkafka) in classic groups: members share partitions, rebalance, resume at committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from time import monotonic

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop_brokers import BROKERS

PARTITIONS = 4
WITHIN_S = 20.0


@pytest.fixture
def bootstrap(fresh_bootstrap: str) -> str:
    return fresh_bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # an admin that is let go takes its requests along
    admin.create_topics([NewTopic("orders", PARTITIONS, BROKERS)])["orders"].result()
    return "orders"


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


@contextmanager
def member(bootstrap: str, topic: str, **settings: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    with closing(consumer):
        yield consumer


def poll_until(condition: Callable[[list[Message]], bool], *consumers: Consumer) -> list[Message]:
    """What the consumers get until the condition holds."""
    found: list[Message] = []
    ends_at = monotonic() + WITHIN_S
    while not condition(found):
        assert monotonic() < ends_at, [consumer.assignment() for consumer in consumers]
        found += [message for consumer in consumers if (message := consumer.poll(0.02)) is not None]
    assert not [message.error() for message in found if message.error()]
    return found


def read(count: int, *consumers: Consumer) -> list[Message]:
    return poll_until(lambda found: len(found) >= count, *consumers)


def shares(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_consumers_share_the_partitions(bootstrap: str, topic: str, strategy: str) -> None:
    produce(bootstrap, topic, [f"first {number}" for number in range(20)])
    settings = {"partition_assignment_strategy": strategy}
    with member(bootstrap, topic, **settings) as one:
        assert len(read(20, one)) == 20
        one.commit(asynchronous=False)
        with member(bootstrap, topic, **settings) as two:
            poll_until(lambda _: shares(one, two) == [2, 2], one, two)
            owned = {(each.topic, each.partition) for each in one.assignment() + two.assignment()}
            assert len(owned) == PARTITIONS
            produce(bootstrap, topic, [f"second {number}" for number in range(20)])
            values = {message.value() for message in read(20, one, two)}
            assert values == {f"second {number}".encode() for number in range(20)}
            for consumer in (one, two):
                consumer.commit(asynchronous=False)
        poll_until(lambda _: shares(one) == [PARTITIONS], one)
        committed = one.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], WITHIN_S)
        assert [each.offset for each in committed] == [10] * PARTITIONS


def test_a_new_consumer_goes_on_where_the_group_was(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [str(number) for number in range(8)])
    with member(bootstrap, topic) as one:
        poll_until(lambda _: shares(one) == [PARTITIONS], one)
        one.commit(offsets=[TopicPartition(topic, index, 1) for index in range(PARTITIONS)], asynchronous=False)
    with member(bootstrap, topic) as two:
        assert [message.offset() for message in read(4, two)] == [1, 1, 1, 1]


def test_static_members_come_back_without_a_rebalance(bootstrap: str, topic: str) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(member(bootstrap, topic, group_instance_id="one"))
        with member(bootstrap, topic, group_instance_id="two") as two:
            poll_until(lambda _: shares(one, two) == [2, 2], one, two)
            had = two.assignment()
        two = stack.enter_context(member(bootstrap, topic, group_instance_id="two"))
        poll_until(lambda _: shares(one, two) == [2, 2], one, two)
        assert [each.partition for each in two.assignment()] == [each.partition for each in had]


def test_the_admin_client_sees_groups(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with member(bootstrap, topic) as one:
        poll_until(lambda _: shares(one) == [PARTITIONS], one)
        (listed,) = admin.list_consumer_groups().result().valid
        assert (listed.group_id, listed.state) == ("readers", ConsumerGroupState.STABLE)
        described = admin.describe_consumer_groups(["readers"])["readers"].result()
        assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
        assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    assert admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result().valid == []
    admin.delete_consumer_groups(["readers"])["readers"].result()
    assert admin.list_consumer_groups().result().valid == []
