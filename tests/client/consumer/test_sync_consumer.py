"""Consumer, the blocking face: it crosses over to the loop's thread and back, and callbacks run where the user is."""

import threading

import pytest
from reader_harness import ReaderHarness, at, unique, values

from headrace import Consumer, OffsetAndMetadata, Producer, TopicPartition
from headrace.client.admin.sync_admin import Admin
from headrace.client.errors import ClientClosed, NotAssigned, UnknownTopic


class SyncReaderHarness(ReaderHarness):
    """The same without a loop of its own."""

    def make_topic(self, partitions: int = 1, records: int = 0) -> str:
        name = unique()
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topic(name, partitions, 1)
        with Producer(bootstrap_servers=self.servers, linger_ms=0) as producer:
            for number in range(records):
                producer.send(name, str(number).encode(), partition=number % partitions)
        return name

    def open(self, *topics: str, **options: object) -> Consumer:
        given = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 50, **options}
        return Consumer(*topics, bootstrap_servers=self.servers, **given)


@pytest.fixture
def sync_harness(servers: str) -> SyncReaderHarness:
    return SyncReaderHarness(servers)


def test_polling(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(2, records=10)
    with sync_harness.open(max_poll_records=4) as consumer:
        consumer.assign(at(name, 0, 1))
        found = []
        while len(found) < 10:
            records = consumer.poll(100)
            assert len(records) <= 4
            found += records
        assert sorted(values(found)) == [str(number) for number in range(10)]
        assert consumer.poll(10) == []
        assert consumer.assignment() == set(at(name, 0, 1))


def test_iterating_goes_on_where_it_was_left(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(records=10)
    with sync_harness.open(max_poll_records=4) as consumer:
        consumer.assign(at(name, 0))
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 1:
                break
        assert consumer.position(*at(name, 0)) == 2
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 9:
                break
        assert seen == list(range(10))


def test_a_seek_within_an_iteration_counts_at_once(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(records=10)
    with sync_harness.open() as consumer:
        consumer.assign(at(name, 0))
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1]:
                consumer.seek(*at(name, 0), 7)
            if record.offset == 9:
                break
        assert seen == [0, 1, 7, 8, 9]


def test_an_iteration_in_a_group_commits_what_was_seen(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(records=10)
    with sync_harness.open(name, group_id=sync_harness.group, enable_auto_commit=False) as consumer:
        for record in consumer:
            if record.offset == 6:
                consumer.commit()
                break
        assert consumer.committed() == {TopicPartition(name, 0): OffsetAndMetadata(7, leader_epoch=0)}
        assert consumer.lag() == {TopicPartition(name, 0): 3}
        assert consumer.group_metadata().group_id == sync_harness.group


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_callbacks_run_on_the_thread_that_polls_and_may_use_the_consumer(
    sync_harness: SyncReaderHarness, protocol: str
):
    name = sync_harness.make_topic(2, records=10)
    told = []

    def on_assigned(partitions: list[TopicPartition]) -> None:
        told.append(("assigned", len(partitions), threading.current_thread()))
        for partition in partitions:
            consumer.seek(partition, 4)

    def on_revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", len(partitions), threading.current_thread()))
        consumer.commit()

    options = {"group_id": sync_harness.group, "group_protocol": protocol, "enable_auto_commit": False}
    with sync_harness.open(**options) as consumer:
        consumer.subscribe([name], on_assigned=on_assigned, on_revoked=on_revoked)
        found = []
        while len(found) < 2:
            found += consumer.poll(100)
    here = threading.current_thread()
    assert told == [("assigned", 2, here), ("revoked", 2, here)]
    assert [record.offset for record in found] == [4, 4]
    with sync_harness.open(group_id=sync_harness.group) as other:
        assert {one.offset for one in other.committed(*at(name, 0, 1)).values() if one} == {5}


def test_a_busy_consumer_notices_new_topics_all_the_same(sync_harness: SyncReaderHarness):
    prefix = unique("many")
    with Admin(bootstrap_servers=sync_harness.servers) as admin:
        admin.create_topic(f"{prefix}-a", 1, 1)
        options = {"group_id": sync_harness.group, "enable_auto_commit": False, "metadata_max_age_ms": 50}
        with sync_harness.open(max_poll_records=1, **options) as consumer:
            consumer.subscribe(pattern=rf"{prefix}-.")
            with Producer(bootstrap_servers=sync_harness.servers) as producer:
                for _ in range(20_000):
                    producer.send(f"{prefix}-a", b"a")
                producer.flush()
                admin.create_topic(f"{prefix}-b", 1, 1)
            seen = 0
            for _ in consumer:
                seen += 1
                if len(consumer.assignment()) == 2:
                    break
            assert seen < 20_000


def test_what_a_callback_raises_the_poll_raises(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic()

    def on_assigned(_: list[TopicPartition]) -> None:
        raise RuntimeError("mine")

    with sync_harness.open(group_id=sync_harness.group) as consumer:
        consumer.subscribe([name], on_assigned=on_assigned)
        with pytest.raises(RuntimeError, match="mine"):
            consumer.poll(10_000)
        assert consumer.assignment() == set(at(name, 0))


def test_two_threads_with_a_consumer_each_share_a_topic(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(4, records=400)
    seen: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        with sync_harness.open(name, group_id=sync_harness.group, max_poll_records=20) as consumer:
            while len(seen) < 400:
                found = values(consumer.poll(50))
                with lock:
                    seen.extend(found)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, seen)) == list(range(400))


def test_a_commit_in_the_background_tells_at_the_next_poll(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(records=3)
    (partition,) = at(name, 0)
    told = []
    with sync_harness.open(group_id=sync_harness.group) as consumer:
        consumer.assign([partition])
        consumer.commit_nowait({partition: 2}, lambda *found: told.append((*found, threading.current_thread())))
        while not told:
            consumer.poll(10)
    assert told == [({partition: OffsetAndMetadata(2)}, None, threading.current_thread())]


def test_the_rest_of_the_methods(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(2, records=6)
    zero, one = at(name, 0, 1)
    with sync_harness.open(group_id=sync_harness.group) as consumer:
        consumer.assign([zero, one])
        assert consumer.beginning_offsets(zero, one) == {zero: 0, one: 0}
        assert consumer.end_offsets(zero) == {zero: 3}
        assert consumer.offsets_for_times({zero: 0})[zero].offset == 0
        assert len(consumer.partitions_for(name)) == 2
        assert name in consumer.list_topics()
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        consumer.seek_to_end(one)
        assert consumer.position(one) == 3
        consumer.resume(zero)
        consumer.seek_to_beginning()
        assert consumer.position(zero) == 0
        assert consumer.current_lag(zero) in (None, 3)
        consumer.unsubscribe()
        consumer.subscribe([name])
        assert consumer.subscription() == {name}
        with pytest.raises(NotAssigned):
            consumer.seek(TopicPartition(name, 9), 0)
        with pytest.raises(UnknownTopic):
            consumer.end_offsets(TopicPartition(name, 9), timeout_ms=300)
    with pytest.raises(ClientClosed):
        consumer.poll()
    with pytest.raises(TypeError, match=r"did you mean group\.id"):
        sync_harness.open(group_idd="x")


def test_batches_for_those_who_decode_by_themselves(sync_harness: SyncReaderHarness):
    name = sync_harness.make_topic(records=5)
    with sync_harness.open() as consumer:
        consumer.assign(at(name, 0))
        found = []
        while consumer.position(*at(name, 0)) < 5:
            found += consumer.poll_batches(100)
        assert sum(one.batch.header.record_count for one in found) == 5
