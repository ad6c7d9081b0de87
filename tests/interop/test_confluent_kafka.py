"""confluent-kafka, that is librdkafka: the client that most languages share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from interop_brokers import BROKERS
from interop_records import CODECS, FIRST_TIMESTAMP_MS, KINDS, LONG_POLL_MS, WITHIN_S, checksum, many

from headrace import Broker

pytestmark = pytest.mark.usefixtures("librdkafka_complaints")


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> list[Message]:
    """Sends values to partition 0, and returns the delivery reports."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    reports: list[Message] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, message: reports.append(message))
    assert producer.flush(WITHIN_S) == 0
    return reports


def send_kinds(bootstrap: str, topic: str, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for sent in KINDS:
        producer.produce(
            topic, sent.value, sent.key, partition=0, timestamp=sent.timestamp_ms, headers=list(sent.headers)
        )
    assert producer.flush(WITHIN_S) == 0


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(topic, partitions, BROKERS, config=settings)]).values()
    created.result(WITHIN_S)


@contextmanager
def consuming(
    bootstrap: str, topic: str, offset: int = 0, partitions: int = 1, **settings: object
) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
        | settings
    )
    consumer.assign([TopicPartition(topic, index, offset) for index in range(partitions)])
    try:
        yield consumer
    finally:
        consumer.close()


def poll(consumer: Consumer) -> Message:
    message = consumer.poll(WITHIN_S)
    assert message is not None, "nothing came"
    return message


def read_to_end(consumer: Consumer, partitions: int = 1) -> list[Message]:
    found: list[Message] = []
    while partitions:
        message = poll(consumer)
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            partitions -= 1
        else:
            raise KafkaException(error)
    return found


def values_of(bootstrap: str, topic: str, **settings: object) -> list[bytes | None]:
    with consuming(bootstrap, topic, **settings) as consumer:
        return [message.value() for message in read_to_end(consumer)]


def test_every_kind_of_record_comes_back_as_it_was_sent(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    send_kinds(bootstrap, topic)
    with consuming(bootstrap, topic) as consumer:
        found = read_to_end(consumer)
    assert [message.offset() for message in found] == list(range(len(KINDS)))
    for message, sent in zip(found, KINDS, strict=True):
        assert (message.key(), message.value()) == (sent.key, sent.value)
        assert tuple(message.headers() or ()) == sent.headers
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, sent.timestamp_ms)


def test_a_header_may_have_no_value(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", headers=[("nothing", None)])
    assert producer.flush(WITHIN_S) == 0
    with consuming(bootstrap, topic) as consumer:
        [message] = read_to_end(consumer)
    assert message.headers() == [("nothing", None)]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(bootstrap: str, topic: str, codec: str, stored_codecs: Callable[[str], set[str]]) -> None:
    values = many(1000)
    produce(bootstrap, topic, values, **{"compression.type": codec})
    assert codec in stored_codecs(topic)  # a batch that would not shrink goes plain
    assert values_of(bootstrap, topic) == values


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS])
@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_a_topic_that_asks_for_a_codec_recompresses(
    bootstrap: str, topic: str, codec: str, time: str, stored_codecs: Callable[[str], set[str]]
) -> None:
    create(bootstrap, topic, compression_type=codec, message_timestamp_type=time)
    for sent_as in ("none", *CODECS):
        send_kinds(bootstrap, topic, **{"compression.type": sent_as, "linger.ms": 20})
    assert stored_codecs(topic) == {"none" if codec == "uncompressed" else codec}
    with consuming(bootstrap, topic) as consumer:
        found = read_to_end(consumer)
    for message, sent in zip(found, KINDS * 5, strict=True):
        assert (message.key(), message.value(), tuple(message.headers() or ())) == (sent.key, sent.value, sent.headers)
        kind, timestamp_ms = message.timestamp()
        if time == "CreateTime":
            assert (kind, timestamp_ms) == (TIMESTAMP_CREATE_TIME, sent.timestamp_ms)
        else:
            assert kind == TIMESTAMP_LOG_APPEND_TIME
            assert timestamp_ms > sent.timestamp_ms


def test_the_broker_can_set_the_time(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", timestamp=FIRST_TIMESTAMP_MS)
    assert producer.flush(WITHIN_S) == 0
    with consuming(bootstrap, topic) as consumer:
        [message] = read_to_end(consumer)
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp_ms > FIRST_TIMESTAMP_MS


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, topic: str, acks: str) -> None:
    create(bootstrap, topic)
    values = many(300)
    reports = produce(bootstrap, topic, values, acks=acks)
    assert [report.error() for report in reports] == [None] * 300
    if acks == "0":
        # Nothing says when they are there, so this one waits for each.
        with consuming(bootstrap, topic, **{"enable.partition.eof": False}) as consumer:
            assert [poll(consumer).value() for _ in values] == values
    else:
        assert [report.offset() for report in reports] == list(range(300))
        assert values_of(bootstrap, topic) == values


def test_an_idempotent_producer(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    values = many(2000)
    reports = produce(
        bootstrap, topic, values, **{"enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 0}
    )
    assert [report.offset() for report in reports] == list(range(2000))
    assert values_of(bootstrap, topic) == values


def test_a_record_near_the_limit_passes_and_one_over_it_is_refused(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    big = {"message.max.bytes": 3_000_000}
    [near] = produce(bootstrap, topic, [b"x" * 1_048_400], **big)
    assert near.error() is None
    [over] = produce(bootstrap, topic, [b"x" * 1_048_600], **big)
    assert over.error().code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert [len(value or b"") for value in values_of(bootstrap, topic)] == [1_048_400]


def test_several_megabytes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    values = [bytes([number]) * 900_000 for number in range(30)]
    produce(bootstrap, topic, values, **{"message.max.bytes": 1_000_000})
    assert values_of(bootstrap, topic) == values


def test_a_topic_has_its_own_limit(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, max_message_bytes="1000")
    [over] = produce(bootstrap, topic, [b"x" * 1000])
    assert over.error().code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_batch_larger_than_the_fetch_size_still_comes(bootstrap: str, topic: str) -> None:
    values = [bytes([number]) * 200_000 for number in range(3)]
    produce(bootstrap, topic, values)
    assert values_of(bootstrap, topic, **{"fetch.message.max.bytes": 1000}) == values


def test_a_compacted_topic_takes_no_record_without_a_key(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, cleanup_policy="compact")
    [report] = produce(bootstrap, topic, [b"no key"])
    assert report.error().code() == KafkaError.INVALID_RECORD


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_many_small_records_over_several_partitions(bootstrap: str, topic: str, codec: str) -> None:
    create(bootstrap, topic, partitions=4)
    values = many(100_000)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": codec})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 4)
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(WITHIN_S) == 0
    found: list[bytes] = []
    with consuming(bootstrap, topic, partitions=4, **{"enable.partition.eof": False}) as consumer:
        while len(found) < len(values):
            messages = consumer.consume(10_000, WITHIN_S)
            assert messages, f"only {len(found)} came"
            found += [message.value() for message in messages]
    assert checksum(found) == checksum(values)


def test_seeking(bootstrap: str, topic: str) -> None:
    values = many(50)
    produce(bootstrap, topic, values)
    with consuming(bootstrap, topic, 40) as consumer:
        assert [message.value() for message in read_to_end(consumer)] == values[40:]
        consumer.seek(TopicPartition(topic, 0, 7))
        assert poll(consumer).value() == values[7]
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S) == (0, 50)
    with consuming(bootstrap, topic, OFFSET_BEGINNING) as consumer:
        assert poll(consumer).value() == values[0]
    with consuming(bootstrap, topic, OFFSET_END) as consumer:
        assert read_to_end(consumer) == []
    with consuming(bootstrap, topic, 1_000_000, **{"auto.offset.reset": "earliest"}) as consumer:
        assert poll(consumer).value() == values[0]
    with consuming(bootstrap, topic, 1_000_000, **{"auto.offset.reset": "error"}) as consumer:
        assert poll(consumer).error().code() == KafkaError._AUTO_OFFSET_RESET


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=FIRST_TIMESTAMP_MS + 10 * number)
    assert producer.flush(WITHIN_S) == 0

    def offset_at(timestamp_ms: int) -> int:
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], WITHIN_S)
        assert found.error is None
        return found.offset

    with consuming(bootstrap, topic) as consumer:
        assert offset_at(0) == 0
        assert offset_at(FIRST_TIMESTAMP_MS + 30) == 3
        assert offset_at(FIRST_TIMESTAMP_MS + 31) == 4
        assert offset_at(FIRST_TIMESTAMP_MS + 90) == 9
        assert offset_at(FIRST_TIMESTAMP_MS + 91) == OFFSET_END


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_there(bootstrap: str, topic: str, isolation: str) -> None:
    produce(bootstrap, topic, [b"first"])
    settings = {"fetch.wait.max.ms": LONG_POLL_MS, "isolation.level": isolation, "socket.timeout.ms": 2 * LONG_POLL_MS}
    with consuming(bootstrap, topic, **settings) as consumer:
        assert poll(consumer).value() == b"first"
        began = monotonic()
        produce(bootstrap, topic, [b"later"])
        assert poll(consumer).value() == b"later"
        assert monotonic() - began < LONG_POLL_MS / 2000


def test_a_fetch_waits_for_its_min_bytes(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    settings = {"fetch.wait.max.ms": LONG_POLL_MS, "fetch.min.bytes": 10_000, "socket.timeout.ms": 2 * LONG_POLL_MS}
    with consuming(bootstrap, topic, **settings) as consumer:
        found: list[Message] = []
        reader = Thread(target=lambda: found.extend(poll(consumer) for _ in range(3)))
        produce(bootstrap, topic, [b"little"])
        reader.start()
        produce(bootstrap, topic, [b"x" * 9000])
        produce(bootstrap, topic, [b"y" * 9000])
        reader.join(WITHIN_S)
        assert [message.value()[:1] for message in found] == [b"l", b"x", b"y"]


def test_a_read_committed_consumer_sees_plain_records(bootstrap: str, topic: str) -> None:
    values = many(100)
    produce(bootstrap, topic, values, **{"enable.idempotence": True})
    assert values_of(bootstrap, topic, **{"isolation.level": "read_committed"}) == values


def test_a_topic_is_made_when_it_is_first_written_to(bootstrap: str, topic: str) -> None:
    [report] = produce(bootstrap, topic, [b"first"])
    assert (report.error(), report.offset()) == (None, 0)
    assert topic in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WITHIN_S).topics


def test_a_consumer_of_no_topic_is_told_so(bootstrap: str, topic: str) -> None:
    with consuming(bootstrap, topic, **{"allow.auto.create.topics": False}) as consumer:
        for _ in range(2):
            found = consumer.list_topics(topic, timeout=WITHIN_S).topics[topic]
            assert (found.error.code(), found.partitions) == (KafkaError.UNKNOWN_TOPIC_OR_PART, {})


def test_several_consumers_with_fetch_sessions_over_many_partitions(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=30)
    with consuming(bootstrap, topic, partitions=30) as consumer:
        assert read_to_end(consumer, 30) == []
        producer = Producer({"bootstrap.servers": bootstrap})
        for index in (29, 3, 17):
            producer.produce(topic, b"%d" % index, partition=index)
        assert producer.flush(WITHIN_S) == 0
        assert {message.value() for message in read_to_end(consumer, 3)} == {b"29", b"3", b"17"}


def test_the_shipped_fixture(headrace_broker: Broker, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    values = many(100)
    produce(headrace_broker.bootstrap_servers, topic, values)
    assert values_of(headrace_broker.bootstrap_servers, topic) == values
