"""librdkafka's consumer with ``group.protocol=consumer`` (KIP-848), where the coordinator assigns partitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from select import select
from subprocess import PIPE, Popen
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from interop_brokers import BROKERS, own_brokers

#: Members learn of changes in heartbeats: frequent ones keep these tests short.
CONFIG = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.min.session.timeout.ms": 2_000,
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
}
PATIENCE_S = 20


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with own_brokers(tmp_path_factory.mktemp("headrace"), CONFIG) as bootstrap:
        yield bootstrap


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    for made in admin.create_topics([NewTopic(name, 4, BROKERS)]).values():
        made.result()
    return str(name)


def produce(bootstrap: str, topic: str, count: int, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


class Reader:
    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: object) -> None:
        settings = {"group.protocol": "consumer", **{name.replace("_", "."): value for name, value in settings.items()}}
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        self.values: list[bytes] = []
        self.consumer.subscribe(topics)

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(message.value())

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted((part.topic, part.partition) for part in self.consumer.assignment())


@contextmanager
def readers(bootstrap: str, group: str, topics: list[str], count: int, **settings: object) -> Iterator[list[Reader]]:
    with ExitStack() as closing:
        made = [Reader(bootstrap, group, topics, **settings) for _ in range(count)]
        for reader in made:
            closing.callback(reader.consumer.close)
        yield made


def until(condition: Callable[[], bool], *reading: Reader) -> None:
    ends_at = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < ends_at, [(reader.partitions, len(reader.values)) for reader in reading]
        for reader in reading:
            reader.poll()


def share(*reading: Reader) -> list[int]:
    return sorted(len(reader.partitions) for reader in reading)


def test_one_reads_everything_and_finds_its_place_again(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 40)
    with readers(bootstrap, topic, [topic], 1) as (reader,):
        until(lambda: len(reader.values) == 40, reader)
        committed = reader.consumer.commit(asynchronous=False)
        assert [part.offset for part in committed] == [10] * 4
    produce(bootstrap, topic, 8)
    with readers(bootstrap, topic, [topic], 1) as (again,):
        until(lambda: len(again.values) == 8, again)
        assert [part.offset for part in again.consumer.committed([TopicPartition(topic, 0)])] == [10]


def test_two_share_and_the_one_that_stays_takes_over(bootstrap: str, topic: str, admin: AdminClient) -> None:
    with readers(bootstrap, topic, [topic], 2) as (first, second):
        until(lambda: share(first, second) == [2, 2], first, second)
        described = admin.describe_consumer_groups([topic])[topic].result()
        assert (described.state.name, described.type.name) == ("STABLE", "CONSUMER")
        assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2]
        produce(bootstrap, topic, 40)
        until(lambda: len(first.values) + len(second.values) == 40, first, second)
        assert not set(first.partitions) & set(second.partitions)
        second.consumer.close()
        until(lambda: len(first.partitions) == 4, first)
    listed = admin.list_consumer_groups().result().valid
    (found,) = [each for each in listed if each.group_id == topic]
    assert (found.state.name, found.type.name) == ("EMPTY", "CONSUMER")


def test_three_come_one_after_the_other(bootstrap: str, topic: str) -> None:
    with ExitStack() as closing:
        reading: list[Reader] = []
        for expected in ([4], [2, 2], [1, 1, 2]):
            reading += closing.enter_context(readers(bootstrap, topic, [topic], 1))
            until(partial(lambda expected: share(*reading) == expected, expected), *reading)  # noqa: B023


_CRASHING = """
import sys
from confluent_kafka import Consumer
bootstrap, topic = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": "consumer"})
consumer.subscribe([topic])
while len(consumer.assignment()) != 2:
    consumer.poll(0.05)
print("has its share", flush=True)
while True:
    consumer.poll(0.05)
"""


def test_the_partitions_of_a_reader_that_crashes_go_to_the_others(bootstrap: str, topic: str) -> None:
    with (
        readers(bootstrap, topic, [topic], 1) as (stays,),
        Popen([sys.executable, "-c", _CRASHING, bootstrap, topic], stdout=PIPE) as crashes,
    ):
        assert crashes.stdout is not None
        try:
            until(lambda: len(stays.partitions) == 2, stays)
            until(lambda: bool(select([crashes.stdout], [], [], 0)[0]), stays)
        finally:
            crashes.kill()
        until(lambda: len(stays.partitions) == 4, stays)


def test_an_expression_finds_topics_that_come_later(bootstrap: str, topic: str, admin: AdminClient) -> None:
    with readers(bootstrap, topic, [f"^{topic}.*"], 1, metadata_max_age_ms=1_000) as (reader,):
        until(lambda: len(reader.partitions) == 4, reader)
        for made in admin.create_topics(
            [NewTopic(f"{topic}-later", 2, BROKERS), NewTopic(f"other-{topic}", 2, BROKERS)]
        ).values():
            made.result()
        until(lambda: len(reader.partitions) == 6, reader)
        assert {name for name, _ in reader.partitions} == {topic, f"{topic}-later"}


def test_a_topic_that_grows(bootstrap: str, topic: str, admin: AdminClient) -> None:
    with readers(bootstrap, topic, [topic], 1) as (reader,):
        until(lambda: len(reader.partitions) == 4, reader)
        for made in admin.create_partitions([NewPartitions(topic, 6)]).values():
            made.result()
        until(lambda: len(reader.partitions) == 6, reader)


def test_a_static_member_comes_back_to_its_partitions(bootstrap: str, topic: str) -> None:
    with readers(bootstrap, topic, [topic], 1) as (other,):
        with readers(bootstrap, topic, [topic], 1, group_instance_id="one") as (static,):
            until(lambda: share(other, static) == [2, 2], other, static)
            had = static.partitions
        with readers(bootstrap, topic, [topic], 1, group_instance_id="one") as (again,):
            until(lambda: len(again.partitions) == 2, other, again)
            assert again.partitions == had


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_members_ask_for(bootstrap: str, topic: str, assignor: str) -> None:
    with readers(bootstrap, topic, [topic], 2, group_remote_assignor=assignor) as (first, second):
        until(lambda: share(first, second) == [2, 2], first, second)


def test_members_of_both_protocols_share_while_a_group_is_moved(bootstrap: str, topic: str) -> None:
    """Rolling upgrade and back: somebody always reads, and in the end everybody does."""
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 200,
    }
    with readers(bootstrap, topic, [topic], 1, **classic) as (old,):
        until(lambda: len(old.partitions) == 4, old)
        with readers(bootstrap, topic, [topic], 1) as (new,):
            until(lambda: share(old, new) == [2, 2], old, new)
            produce(bootstrap, topic, 40)
            until(lambda: len(old.values) + len(new.values) == 40, old, new)
            old.consumer.commit(asynchronous=False)
        until(lambda: len(old.partitions) == 4, old)
