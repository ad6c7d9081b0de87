"""AsyncConsumer without a group: positions, resets, seeking, pausing, iterating, and questions."""

import re
import time

import pytest
from reader_harness import ReaderHarness, at, read, unique, values

from headrace import AsyncProducer, TopicPartition
from headrace.client.errors import (
    ClientClosed,
    HeadraceError,
    KafkaTimeout,
    NoCommittedOffset,
    NotAssigned,
    NotDeserialized,
    OffsetOutOfRange,
    UnknownTopic,
)
from headrace.client.types import OffsetAndMetadata, TimestampType

HOUR_MS = 3_600_000


@pytest.fixture
async def topic(harness: ReaderHarness) -> str:
    """One partition with the values 0 to 9."""
    name = await harness.topic()
    await harness.fill(name, range(10))
    return name


async def test_a_record_has_all_that_was_sent(harness: ReaderHarness):
    name = await harness.topic()
    async with AsyncProducer(bootstrap_servers=harness.servers) as producer:
        await producer.send_and_wait(
            name, b"value", key=b"key", partition=0, timestamp_ms=1234, headers=[("a", b"1"), ("b", None)]
        )
        await producer.send_and_wait(name, None, partition=0)
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0))
    first, second = await read(consumer, 2)
    assert first[:8] == (name, 0, 0, 1234, TimestampType.create_time, b"key", b"value", (("a", b"1"), ("b", None)))
    assert (second.key, second.value, second.headers, second.offset) == (None, None, (), 1)


async def test_a_poll_gives_no_more_than_it_may(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False, max_poll_records=4)
    consumer.assign(at(topic, 0))
    assert values(await consumer.poll(5000)) == ["0", "1", "2", "3"]
    assert values(await consumer.poll(5000, 3)) == ["4", "5", "6"]
    assert await consumer.position(*at(topic, 0)) == 7
    assert values(await consumer.poll(5000, 100)) == ["7", "8", "9"]


async def test_a_poll_without_records_ends_with_its_time(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False, auto_offset_reset="latest")
    consumer.assign(at(topic, 0))
    assert await consumer.poll(0) == []
    assert await consumer.position(*at(topic, 0)) == 10
    assert await consumer.poll(10) == []


async def test_an_iteration_left_early_loses_nothing(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(topic, 0))
    async for record in consumer:
        if record.offset == 3:
            break
    assert await consumer.position(*at(topic, 0)) == 4
    assert consumer.current_lag(*at(topic, 0)) == 6
    async for record in consumer:
        assert record.offset == 4
        break
    assert values(await consumer.poll(1000, 2)) == ["5", "6"]
    assert values(await consumer.poll(1000)) == ["7", "8", "9"]


async def test_a_seek_within_an_iteration_counts_at_once(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(topic, 0))
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1]:
            consumer.seek(*at(topic, 0), 8)
        if record.offset == 9:
            break
    assert seen == [0, 1, 8, 9]


async def test_a_seek_leaves_what_was_taken_of_others(harness: ReaderHarness):
    name = await harness.topic(2)
    await harness.fill(name, range(3), partition=0)
    await harness.fill(name, "abc", partition=1)
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0, 1))
    await consumer.position(TopicPartition(name, 1))
    seen = []
    async for record in consumer:
        seen.append((record.partition, record.value.decode()))
        if len(seen) == 1:
            consumer.seek(TopicPartition(name, record.partition), 2)
        if len(seen) == 5:
            break
    first = seen[0][0]
    assert [value for index, value in seen if index != first] == (["a", "b", "c"] if first == 0 else ["0", "1", "2"])
    assert [value for index, value in seen if index == first] == (["0", "2"] if first == 0 else ["a", "c"])


@pytest.mark.parametrize(("reset", "first"), [("earliest", "0"), ("latest", "new"), ("by_duration:PT1H", "7")])
async def test_where_it_begins(harness: ReaderHarness, reset: str, first: str):
    name = await harness.topic()
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms - 2 * HOUR_MS] * 7 + [now_ms] * 3
    await harness.fill(name, range(10), timestamps_ms=times)
    consumer = harness.consumer(in_group=False, auto_offset_reset=reset)
    consumer.assign(at(name, 0))
    await consumer.position(*at(name, 0))
    await harness.fill(name, ["new"])
    assert values(await read(consumer, 1)) == [first]


async def test_without_a_reset_it_must_be_told_where_to_begin(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False, auto_offset_reset="none")
    consumer.assign(at(topic, 0))
    for _ in range(2):
        with pytest.raises(NoCommittedOffset, match=rf"{topic}-0.*seek"):
            await consumer.poll(5000)
    consumer.seek(*at(topic, 0), 5)
    assert values(await consumer.poll(5000, 1)) == ["5"]
    consumer.seek(*at(topic, 0), 99)
    with pytest.raises(OffsetOutOfRange, match=rf"{topic}-0 has no offset 99"):
        await consumer.poll(5000)
    consumer.seek_to_end()
    assert await consumer.position(*at(topic, 0)) == 10


async def test_an_offset_that_is_not_there_is_reset(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(topic, 0))
    consumer.seek(*at(topic, 0), 99)
    assert values(await read(consumer, 1)) == ["0"]


async def test_seeking(harness: ReaderHarness, topic: str):
    (partition,) = at(topic, 0)
    consumer = harness.consumer(in_group=False)
    consumer.assign([partition])
    await read(consumer, 5)
    consumer.seek_to_beginning(partition)
    assert values(await read(consumer, 1)) == ["0"]
    consumer.seek_to_end(partition)
    assert await consumer.position(partition) == 10
    consumer.seek(partition, OffsetAndMetadata(6, leader_epoch=0))
    assert values(await read(consumer, 1)) == ["6"]
    with pytest.raises(ValueError, match="an offset must not be negative"):
        consumer.seek(partition, -1)
    with pytest.raises(NotAssigned, match=rf"{topic}-3 is not assigned .* reads {topic}-0"):
        consumer.seek(TopicPartition(topic, 3), 0)


async def test_what_is_paused_is_not_handed_out(harness: ReaderHarness):
    name = await harness.topic(2)
    await harness.fill(name, range(3), partition=0)
    await harness.fill(name, "abc", partition=1)
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0, 1))
    consumer.pause(*at(name, 0))
    assert consumer.paused() == {TopicPartition(name, 0)}
    assert values(await read(consumer, 3)) == ["a", "b", "c"]
    assert await consumer.poll(50) == []
    consumer.resume(*at(name, 0))
    assert consumer.paused() == set()
    assert values(await read(consumer, 3)) == ["0", "1", "2"]


async def test_pausing_within_an_iteration(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(topic, 0))
    async for _ in consumer:
        consumer.pause(*at(topic, 0))
        break
    assert await consumer.poll(50) == []
    consumer.resume(*at(topic, 0))
    assert values(await read(consumer, 9)) == [str(number) for number in range(1, 10)]


async def test_assigning_again_keeps_positions(harness: ReaderHarness):
    name = await harness.topic(3)
    for index in range(3):
        await harness.fill(name, range(4), partition=index)
    consumer = harness.consumer(in_group=False)
    consumer.assign(at(name, 0, 1))
    await read(consumer, 8)
    consumer.assign(at(name, 1, 2))
    assert consumer.assignment() == set(at(name, 1, 2))
    assert {record.partition for record in await read(consumer, 4)} == {2}
    assert await consumer.position(TopicPartition(name, 1)) == 4
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    assert await consumer.poll(0) == []


async def test_beginnings_ends_and_lag(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    (partition,) = at(topic, 0)
    assert await consumer.beginning_offsets(partition) == {partition: 0}
    assert await consumer.end_offsets(partition) == {partition: 10}
    consumer.assign([partition])
    assert consumer.current_lag(partition) is None
    await read(consumer, 4)
    assert consumer.current_lag(partition) == 6
    await harness.fill(topic, "ab")
    assert await consumer.lag() == {partition: 8}


async def test_offsets_for_times(harness: ReaderHarness):
    name = await harness.topic(2)
    await harness.fill(name, range(3), timestamps_ms=[1000, 2000, 3000])
    consumer = harness.consumer(in_group=False)
    zero, one = at(name, 0, 1)
    found = await consumer.offsets_for_times({zero: 1500, one: 0})
    assert found[one] is None
    assert found[zero] is not None
    assert (found[zero].offset, found[zero].timestamp_ms) == (1, 2000)
    assert await consumer.offsets_for_times({zero: 3001}) == {zero: None}
    with pytest.raises(ValueError, match="the timestamp must not be negative"):
        await consumer.offsets_for_times({zero: -1})


async def test_topics_and_partitions(harness: ReaderHarness):
    name = await harness.topic(2)
    consumer = harness.consumer(in_group=False, allow_auto_create_topics=False)
    assert [info.partition for info in await consumer.partitions_for(name)] == [0, 1]
    assert len((await consumer.list_topics())[name].partitions) == 2
    with pytest.raises(UnknownTopic):
        await consumer.partitions_for(unique(), timeout_ms=500)
    with pytest.raises(UnknownTopic):
        await consumer.end_offsets(TopicPartition(name, 7), timeout_ms=500)


async def test_a_lookup_whose_last_refresh_times_out_tells_why_the_earlier_attempts_failed(harness: ReaderHarness):
    name = await harness.topic()
    consumer = harness.consumer(in_group=False, allow_auto_create_topics=False)
    cluster = consumer._cluster
    refresh, answers = cluster.refresh, iter([True, True, False])  # the consumer itself asks first

    async def refresh_once(*topics, **options):
        if next(answers):
            await refresh(*topics, **options)
        else:
            raise KafkaTimeout("Metadata was not answered")

    cluster.refresh = refresh_once
    with pytest.raises(UnknownTopic, match="has no partition 7"):
        await consumer.end_offsets(TopicPartition(name, 7), timeout_ms=5000)


async def test_deserializers(harness: ReaderHarness):
    name = await harness.topic()
    await harness.fill(name, [1, 2, "three", 4])
    consumer = harness.consumer(in_group=False, value_deserializer=int)
    consumer.assign(at(name, 0))
    assert [record.value for record in await consumer.poll(5000)] == [1, 2]
    for _ in range(2):
        with pytest.raises(NotDeserialized, match=rf"{name}-0 at offset 2 .*three.*seek"):
            await consumer.poll(5000)
    assert await consumer.position(*at(name, 0)) == 2
    consumer.seek(*at(name, 0), 3)
    assert [record.value for record in await consumer.poll(5000)] == [4]


async def test_whole_batches(harness: ReaderHarness, topic: str):
    consumer = harness.consumer(in_group=False)
    (partition,) = at(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 3)
    found = []
    while await consumer.position(partition) < 10:
        found += await consumer.poll_batches(1000)
    assert {one.partition for one in found} == {partition}
    assert found[0].from_offset == 3
    assert found[-1].batch.header.last_offset == 9


async def test_read_committed_sees_no_open_and_no_aborted_transactions(harness: ReaderHarness):
    name = await harness.topic()
    (partition,) = at(name, 0)
    committed = harness.consumer(in_group=False, isolation_level="read_committed")
    everything = harness.consumer(in_group=False)
    for consumer in (committed, everything):
        consumer.assign([partition])
    async with AsyncProducer(bootstrap_servers=harness.servers, transactional_id=unique("id")) as producer:
        await producer.init_transactions()
        for value, is_committed in [(b"gone", False), (b"kept", True)]:
            await producer.begin_transaction()
            await producer.send_and_wait(name, value, partition=0)
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"open", partition=0)
        assert values(await read(committed, 1)) == ["kept"]
        assert values(await read(everything, 3)) == ["gone", "kept", "open"]
        assert await committed.end_offsets(partition) == {partition: 4}
        assert await committed.poll(50) == []
        assert committed.current_lag(partition) == 0
        await producer.commit_transaction()
    assert values(await read(committed, 1)) == ["open"]
    assert await committed.end_offsets(partition) == {partition: 6}


async def test_a_topic_that_comes_later(harness: ReaderHarness):
    name = unique()
    consumer = harness.consumer(in_group=False, allow_auto_create_topics=False)
    consumer.assign(at(name, 0))
    assert await consumer.poll(50) == []
    await harness.create(name)
    await harness.fill(name, ["late"])
    assert values(await read(consumer, 1)) == ["late"]


async def test_bad_use_is_told(harness: ReaderHarness, topic: str):
    alone = harness.consumer(in_group=False)
    with pytest.raises(ValueError, match="needs the option group_id"):
        alone.subscribe([topic])
    with pytest.raises(HeadraceError, match="has no group_id"):
        await alone.commit()
    consumer = harness.consumer()
    with pytest.raises(ValueError, match="topics or a pattern"):
        consumer.subscribe()
    with pytest.raises(ValueError, match="topics or a pattern"):
        consumer.subscribe([topic], pattern="a")
    with pytest.raises(ValueError, match="not a regular expression"):
        consumer.subscribe(pattern="(")
    consumer.assign(at(topic, 0))
    with pytest.raises(HeadraceError, match=re.escape("assign()")):
        consumer.subscribe([topic])
    await consumer.unsubscribe()
    consumer.subscribe([topic])
    with pytest.raises(HeadraceError, match="subscribed"):
        consumer.assign(at(topic, 0))
    await consumer.close()
    await consumer.close()
    with pytest.raises(ClientClosed):
        await consumer.poll()
    with pytest.raises(ClientClosed):
        consumer.subscribe([topic])
