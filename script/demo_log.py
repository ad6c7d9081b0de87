"""The first part of ``script/demo``: the log by itself, used by confluent-kafka as it comes.

Topics, records in and out, offsets by time, compaction, ``kill -9`` and a restart, metrics: about five seconds.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from demo_steps import WAIT_SECONDS, RunningBroker, client_settings, done, expect, title

RECORDS = 100_000
PARTITIONS = 4
TOPIC, PROFILES = "orders", "profiles"
USERS, VERSIONS = 100, 50
#: Records are a millisecond apart, and the last one is of now.
START_MS = int(time.time() * 1000) - RECORDS
MIDDLE = RECORDS // 2

#: By partition: how many records, and a checksum over their values in order.
Sums = dict[int, tuple[int, int]]


def show_the_log(broker: RunningBroker) -> None:
    admin = AdminClient(client_settings(broker))
    create_topics(admin)
    produced = produce(broker)
    consume_all(broker, produced)
    find_by_time(broker, admin)
    compact(broker)
    kill_and_restart(broker, produced)
    read_metrics(broker)


def create_topics(admin: AdminClient) -> None:
    title("Create topics, with any Kafka admin client")
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "10000",
    }
    topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(PROFILES, 1, 1, config=compacted)]
    began = time.perf_counter()
    for made in admin.create_topics(topics).values():
        made.result(WAIT_SECONDS)
    took = time.perf_counter() - began
    resource = ConfigResource(ResourceType.TOPIC, PROFILES)
    configs = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    expect(configs["cleanup.policy"].value == "compact", "the topic's settings are not those that it was made with")
    done(f"'{TOPIC}' with {PARTITIONS} partitions, and '{PROFILES}', which is compacted: {took * 1000:.0f} ms")


def produce(broker: RunningBroker) -> Sums:
    title(f"Produce {RECORDS:,} records, idempotently, acks=all")
    refused: list[KafkaError] = []
    producer = Producer({**client_settings(broker), "enable.idempotence": True, "linger.ms": 5})
    sums: Sums = dict.fromkeys(range(PARTITIONS), (0, 0))
    began = time.perf_counter()
    for number in range(RECORDS):
        value = b'{"order": %d, "cents": %d}' % (number, number * 7919 % 100_000)
        partition = number % PARTITIONS
        count, checksum = sums[partition]
        sums[partition] = count + 1, crc32(value, checksum)
        while True:
            try:
                producer.produce(
                    TOPIC, value, partition=partition, timestamp=START_MS + number,
                    on_delivery=lambda error, _: refused.append(error) if error else None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    took = time.perf_counter() - began
    expect(left == 0 and not refused, f"{left} records were not acknowledged, {len(refused)} were refused")
    done(f"all acknowledged after {took:.2f} s: {RECORDS / took:,.0f} records/s")
    return sums


def consume_all(broker: RunningBroker, produced: Sums) -> None:
    title("Consume them all, and compare")
    began = time.perf_counter()
    consumed = read_sums(broker)
    took = time.perf_counter() - began
    expect(consumed == produced, f"what was consumed is not what was produced: {consumed} and {produced}")
    done(f"{RECORDS:,} records after {took:.2f} s, {RECORDS / took:,.0f} records/s; counts and checksums are the same")


def find_by_time(broker: RunningBroker, admin: AdminClient) -> None:
    title("Ask where a partition stood at a given time")
    with consumer_of(broker, TOPIC) as consumer:
        moment_ms = START_MS + MIDDLE
        began = time.perf_counter()
        (found,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, moment_ms)], timeout=WAIT_SECONDS)
        took = time.perf_counter() - began
    expect(found.offset == MIDDLE // PARTITIONS, f"the record of that time is at {found.offset}")
    partition = TopicPartition(TOPIC, 0)
    latest = admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(WAIT_SECONDS)
    expect(latest.offset == RECORDS // PARTITIONS, f"the partition ends at {latest.offset}")
    ago = f"{RECORDS - MIDDLE:,} ms ago"
    done(f"{ago} it was at offset {found.offset:,}, now at {latest.offset:,} ({took * 1000:.1f} ms)")


def compact(broker: RunningBroker) -> None:
    title("Compaction: of each key, the last value stays")
    producer = Producer({**client_settings(broker), "batch.num.messages": USERS, "linger.ms": 0})
    for version in range(VERSIONS):
        for user in range(USERS):
            producer.produce(PROFILES, b"profile %d of user %d" % (version, user), b"user-%d" % user)
        expect(producer.flush(WAIT_SECONDS) == 0, "profiles were not acknowledged")
    written = USERS * VERSIONS
    began = time.perf_counter()
    left = written
    while left > written // 4:
        expect(time.perf_counter() - began < WAIT_SECONDS, f"{left} of {written} profiles are still there")
        time.sleep(0.1)
        profiles = read_profiles(broker)
        left = len(profiles)
    newest = dict(profiles)
    expect(len(newest) == USERS, f"{len(newest)} of {USERS} users are left")
    for user in range(USERS):
        value = newest[b"user-%d" % user]
        expect(value == b"profile %d of user %d" % (VERSIONS - 1, user), f"user {user} has {value!r}")
    took = time.perf_counter() - began
    done(f"of {written:,} records {left:,} are left after {took:.1f} s, the newest of all {USERS} users among them")


def kill_and_restart(broker: RunningBroker, produced: Sums) -> None:
    title("kill -9, and start again")
    broker.kill()
    broker.start("--metrics", "127.0.0.1:0")
    expect(read_sums(broker) == produced, "records are not what they were before the kill")
    done(f"all {RECORDS:,} records are there, the same at the same offsets")


def read_metrics(broker: RunningBroker) -> None:
    title("Metrics for Prometheus, under the names of Kafka's dashboards")
    with urllib.request.urlopen(broker.metrics_url, timeout=WAIT_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    wanted = f'kafka_log_log_logendoffset{{partition="0",topic="{TOPIC}"}}'
    shown = [line for line in lines if line.startswith(wanted)]
    expect(shown == [f"{wanted} {RECORDS // PARTITIONS}.0"], f"the metrics say {shown}")
    done(shown[0])


# -- small helpers ----------------------------------------------------------------------------------------------------


@contextmanager
def consumer_of(broker: RunningBroker, topic: str, partitions: int = 1) -> Iterator[Consumer]:
    """Reads from the beginning, without a group."""
    settings = {
        **client_settings(broker),
        "group.id": "demo",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        yield consumer
    finally:
        consumer.close()


def read(broker: RunningBroker, topic: str, partitions: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Partition, key and value of every record up to the end."""
    ended = 0
    give_up_at = time.perf_counter() + WAIT_SECONDS
    with consumer_of(broker, topic, partitions) as consumer:
        while ended < partitions:
            expect(time.perf_counter() < give_up_at, f"'{topic}' was not read to its end in {WAIT_SECONDS:.0f} s")
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    yield message.partition() or 0, message.key() or b"", message.value() or b""
                else:
                    expect(error.code() == KafkaError._PARTITION_EOF, f"the consumer says: {error}")
                    ended += 1


def read_sums(broker: RunningBroker) -> Sums:
    sums: Sums = dict.fromkeys(range(PARTITIONS), (0, 0))
    for partition, _, value in read(broker, TOPIC, PARTITIONS):
        count, checksum = sums[partition]
        sums[partition] = count + 1, crc32(value, checksum)
    return sums


def read_profiles(broker: RunningBroker) -> list[tuple[bytes, bytes]]:
    return [(key, value) for _, key, value in read(broker, PROFILES, 1)]
