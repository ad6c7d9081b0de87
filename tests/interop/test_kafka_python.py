"""kafka-python: the client without any C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from time import monotonic

import pytest
from interop_brokers import BROKERS
from interop_records import CODECS, FIRST_TIMESTAMP_MS, KINDS, LONG_POLL_MS, WITHIN_S, Sent, checksum, many
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, codec
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import InvalidRecordError, MessageSizeTooLargeError, OffsetOutOfRangeError

from headrace import Broker

pytestmark = pytest.mark.usefixtures("client_complaints")

WITHIN_MS = WITHIN_S * 1000


@contextmanager
def producing(bootstrap: str, **settings: object) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
        yield producer


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[int]:
    """Sends values to partition 0, and returns their offsets."""
    with producing(bootstrap, linger_ms=5, **settings) as producer:
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(WITHIN_S)
        return [future.get(WITHIN_S).offset for future in futures]


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": BROKERS, "configs": settings}})


@contextmanager
def consuming(bootstrap: str, topic: str, partitions: int = 1, **settings: object) -> Iterator[KafkaConsumer]:
    """A consumer that stands at the beginning."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **{**defaults, **settings})) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        yield consumer


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(WITHIN_MS, max_records=count - len(found))
        assert records, f"only {len(found)} of {count} came"
        found += [record for batch in records.values() for record in batch]
    return found


def values_of(bootstrap: str, topic: str, count: int, **settings: object) -> list[bytes]:
    with consuming(bootstrap, topic, **settings) as consumer:
        return [record.value for record in read(consumer, count)]


def test_every_kind_of_record_comes_back_as_it_was_sent(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with producing(bootstrap) as producer:
        for sent in KINDS:
            producer.send(topic, sent.value, sent.key, list(sent.headers), 0, sent.timestamp_ms)
    with consuming(bootstrap, topic) as consumer:
        found = read(consumer, len(KINDS))
    assert [record.offset for record in found] == list(range(len(KINDS)))
    assert [Sent(each.key, each.value, tuple(each.headers), each.timestamp) for each in found] == list(KINDS)


def test_the_broker_can_set_the_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    with producing(bootstrap) as producer:
        sent = producer.send(topic, b"v", timestamp_ms=FIRST_TIMESTAMP_MS).get(WITHIN_S)
    with consuming(bootstrap, topic) as consumer:
        [found] = read(consumer, 1)
    assert found.timestamp == sent.timestamp > FIRST_TIMESTAMP_MS


@pytest.mark.parametrize("name", CODECS)
def test_codecs(bootstrap: str, topic: str, name: str, stored_codecs: Callable[[str], set[str]]) -> None:
    if not getattr(codec, f"has_{name}")():
        pytest.skip(f"kafka-python does {name} only with another package, which is not installed")
    values = many(1000)
    produce(bootstrap, topic, values, compression_type=name)
    assert name in stored_codecs(topic)
    assert values_of(bootstrap, topic, len(values)) == values


def test_a_topic_that_asks_for_a_codec_recompresses(
    bootstrap: str, topic: str, stored_codecs: Callable[[str], set[str]]
) -> None:
    create(bootstrap, topic, compression_type="gzip")
    values = many(300)
    produce(bootstrap, topic, values)
    assert stored_codecs(topic) == {"gzip"}
    assert values_of(bootstrap, topic, len(values)) == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, topic: str, acks: int | str) -> None:
    create(bootstrap, topic)
    values = many(300)
    offsets = produce(bootstrap, topic, values, acks=acks, enable_idempotence=False)
    if acks != 0:  # where nothing is answered, the client makes offsets up
        assert offsets == list(range(300))
    assert values_of(bootstrap, topic, 300) == values


def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    values = many(2000)
    assert produce(bootstrap, topic, values, enable_idempotence=True, batch_size=500) == list(range(2000))
    assert values_of(bootstrap, topic, 2000) == values


def test_a_record_near_the_limit_passes_and_one_over_it_is_refused(
    bootstrap: str, topic: str, client_complaints: list[str]
) -> None:
    client_complaints.append("MessageSizeTooLargeError")
    create(bootstrap, topic)
    assert produce(bootstrap, topic, [b"x" * 1_048_400], max_request_size=3_000_000) == [0]
    with pytest.raises(MessageSizeTooLargeError):
        produce(bootstrap, topic, [b"x" * 1_048_600], max_request_size=3_000_000)
    assert [len(value) for value in values_of(bootstrap, topic, 1)] == [1_048_400]


def test_a_batch_larger_than_the_fetch_size_still_comes(bootstrap: str, topic: str) -> None:
    values = [bytes([number]) * 200_000 for number in range(3)]
    produce(bootstrap, topic, values)
    assert values_of(bootstrap, topic, 3, max_partition_fetch_bytes=1000, fetch_max_bytes=1000) == values


def test_a_compacted_topic_takes_no_record_without_a_key(
    bootstrap: str, topic: str, client_complaints: list[str]
) -> None:
    client_complaints.append("InvalidRecordError")
    create(bootstrap, topic, cleanup_policy="compact")
    with pytest.raises(InvalidRecordError):
        produce(bootstrap, topic, [b"no key"])


def test_many_small_records_over_several_partitions(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=4)
    values = many(100_000)
    with producing(bootstrap, linger_ms=20, batch_size=200_000) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 4)
        producer.flush(WITHIN_S)
    with consuming(bootstrap, topic, partitions=4, max_poll_records=10_000) as consumer:
        found = read(consumer, len(values))
    assert checksum(record.value for record in found) == checksum(values)


def test_keys_choose_partitions(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=4)
    with producing(bootstrap) as producer:
        futures = [producer.send(topic, b"v", b"key-%d" % (number % 10)) for number in range(100)]
        homes = [future.get(WITHIN_S).partition for future in futures]
    assert homes[:10] * 10 == homes
    assert len(set(homes)) > 1


def test_seeking(bootstrap: str, topic: str) -> None:
    values = many(50)
    produce(bootstrap, topic, values)
    home = TopicPartition(topic, 0)
    with consuming(bootstrap, topic) as consumer:
        consumer.seek(home, 40)
        assert [record.value for record in read(consumer, 10)] == values[40:]
        assert consumer.position(home) == 50
        consumer.seek_to_beginning(home)
        assert read(consumer, 1)[0].value == values[0]
        consumer.seek_to_end(home)
        assert consumer.position(home) == 50
        assert consumer.beginning_offsets([home]) == {home: 0}
        assert consumer.end_offsets([home]) == {home: 50}
        assert consumer.highwater(home) == 50
        assert consumer.partitions_for_topic(topic) == {0}
        assert topic in consumer.topics()


def test_an_offset_that_is_not_there(bootstrap: str, topic: str) -> None:
    values = many(5)
    produce(bootstrap, topic, values)
    home = TopicPartition(topic, 0)
    with consuming(bootstrap, topic) as consumer:
        consumer.seek(home, 1_000_000)
        assert read(consumer, 1)[0].value == values[0]
    with consuming(bootstrap, topic, auto_offset_reset="none") as consumer:
        consumer.seek(home, 1_000_000)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(WITHIN_MS)


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with producing(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=FIRST_TIMESTAMP_MS + 10 * number)
    home = TopicPartition(topic, 0)

    def at(timestamp_ms: int) -> tuple[int, int] | None:
        found = consumer.offsets_for_times({home: timestamp_ms})[home]
        return None if found is None else (found.offset, found.timestamp)

    with consuming(bootstrap, topic) as consumer:
        assert at(0) == (0, FIRST_TIMESTAMP_MS)
        assert at(FIRST_TIMESTAMP_MS + 30) == (3, FIRST_TIMESTAMP_MS + 30)
        assert at(FIRST_TIMESTAMP_MS + 31) == (4, FIRST_TIMESTAMP_MS + 40)
        assert at(FIRST_TIMESTAMP_MS + 91) is None


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_there(bootstrap: str, topic: str, isolation: str) -> None:
    produce(bootstrap, topic, [b"first"])
    with consuming(bootstrap, topic, isolation_level=isolation, fetch_max_wait_ms=LONG_POLL_MS) as consumer:
        assert read(consumer, 1)[0].value == b"first"
        consumer.poll(0)  # its fetch is on its way, and waits there
        began = monotonic()
        produce(bootstrap, topic, [b"later"])
        assert read(consumer, 1)[0].value == b"later"
        assert monotonic() - began < LONG_POLL_MS / 2000


def test_a_read_committed_consumer_sees_plain_records(bootstrap: str, topic: str) -> None:
    values = many(100)
    produce(bootstrap, topic, values)
    assert values_of(bootstrap, topic, 100, isolation_level="read_committed") == values


def test_fetch_sessions_over_many_partitions(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=30)
    with consuming(bootstrap, topic, partitions=30, fetch_max_wait_ms=20) as consumer, producing(bootstrap) as producer:
        for index in (29, 3, 17, 3):
            producer.send(topic, b"%d" % index, partition=index).get(WITHIN_S)
            [record] = read(consumer, 1)
            assert (record.value, record.partition) == (b"%d" % index, index)
        consumer.assign([TopicPartition(topic, 5)])
        producer.send(topic, b"5", partition=5).get(WITHIN_S)
        assert read(consumer, 1)[0].value == b"5"


def test_a_topic_is_made_when_it_is_first_written_to(bootstrap: str, topic: str) -> None:
    assert produce(bootstrap, topic, [b"first"]) == [0]
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        assert topic in admin.list_topics()


def test_the_shipped_fixture(headrace_broker: Broker, topic: str) -> None:
    values = many(100)
    produce(headrace_broker.bootstrap_servers, topic, values)
    assert values_of(headrace_broker.bootstrap_servers, topic, 100) == values
