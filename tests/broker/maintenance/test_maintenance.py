"""The periodic work of a broker, on a manual clock."""

import logging
import threading
from itertools import pairwise

import pytest
from broker_harness import Client, batch, headers, on_loop, values

from headrace import Broker
from headrace.log.retention import MOST_AT_ONCE
from headrace.protocol.api import Api
from headrace.testing import ManualClock, pass_time

pytestmark = pytest.mark.usefixtures("ours")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def start(tmp_path, clock):
    running = []

    def started(**config):
        settings = {name.replace("_", "."): value for name, value in config.items()}
        broker = Broker(data=tmp_path / "data", clock=clock, config=settings)
        broker.start()
        client = Client(broker.bootstrap_servers)
        running.append((broker, client))
        return broker, client

    yield started
    for broker, client in running:
        client.close()
        broker.stop()


def segments(broker, topic):
    return on_loop(broker, lambda: [each.base_offset for each in broker.core.logs.get(topic, 0).segments])


def size_bytes(broker, topic):
    return on_loop(broker, lambda: broker.core.logs.get(topic, 0).size_bytes)


def test_the_seeds_demonstration_of_retention(start, clock):
    """segment.bytes=1000, retention.bytes=2000, retention.ms=60000, and records sent one at a time."""
    broker, client = start(log_retention_check_interval_ms=10_000)
    topic = client.create_topic(segment_bytes=1000, retention_bytes=2000, retention_ms=60_000)
    one = batch(value=b"v" * 100, timestamp_ms=clock.wall_ms())
    assert 150 < len(one) < 200
    for number in range(30):
        assert client.produce(topic, one).base_offset == number
    assert segments(broker, topic) == [0, 5, 10, 15, 20, 25]

    pass_time(broker, clock, 9_999)
    assert len(segments(broker, topic)) == 6
    pass_time(broker, clock, 1)
    assert segments(broker, topic) == [15, 20, 25]
    assert 2000 <= size_bytes(broker, topic) < 3000
    assert client.offset(topic, -2).offset == 15
    assert client.read(topic, 14).error_code == 1
    assert headers(client.read(topic, 15).records)[0].base_offset == 15

    for _ in range(6):
        pass_time(broker, clock, 10_000)
    assert segments(broker, topic) == [30]
    assert (client.offset(topic, -2).offset, client.offset(topic, -1).offset) == (30, 30)
    assert client.produce(topic, batch(timestamp_ms=clock.wall_ms())).base_offset == 30


def test_retention_of_many_segments_lets_other_work_run_in_between(start, clock):
    broker, client = start(log_retention_check_interval_ms=1000)
    topic = client.create_topic(segment_bytes=200, retention_bytes=0)
    for _ in range(60):
        client.produce(topic, batch(value=b"v" * 100, timestamp_ms=clock.wall_ms()))
    loop, log, counts = broker.core.runtime.loop, broker.core.logs.get(topic, 0), []

    def count():
        counts.append(len(log.segments))
        if counts[-1] > 1:
            loop.call_soon(count)

    on_loop(broker, count)
    pass_time(broker, clock, 1000)
    assert (counts[0], segments(broker, topic)) == (60, [60])
    dropped = [before - after for before, after in pairwise(counts)]
    assert 0 < max(dropped) <= MOST_AT_ONCE


def test_dropped_segments_leave_the_disk(start, clock, tmp_path):
    broker, client = start(log_retention_check_interval_ms=1000)
    topic = client.create_topic(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=5000)
    for _ in range(12):
        client.produce(topic, batch(value=b"v" * 100, timestamp_ms=clock.wall_ms()))
    folder = tmp_path / "data" / f"{topic}-0"
    pass_time(broker, clock, 1000)
    assert len(list(folder.glob("*.log.deleted"))) >= 2
    pass_time(broker, clock, 5000)
    assert not list(folder.glob("*.deleted"))


def test_a_retention_that_is_changed_holds_at_the_next_pass(start, clock):
    broker, client = start(log_retention_check_interval_ms=1000)
    topic = client.create_topic(segment_bytes=1000)
    for _ in range(12):
        client.produce(topic, batch(value=b"v" * 100, timestamp_ms=clock.wall_ms()))
    pass_time(broker, clock, 1000)
    assert segments(broker, topic) == [0, 5, 10]
    assert client.alter(2, topic, ("retention.bytes", 0, "0")).error_code == 0
    pass_time(broker, clock, 1000)
    assert client.offset(topic, -2).offset > 0


def test_checkpoints(start, clock, tmp_path):
    broker, client = start()
    topic = client.create_topic()
    client.produce(topic, batch(3, timestamp_ms=clock.wall_ms()))
    pass_time(broker, clock, 60_000)
    assert f"{topic} 0 3" in (tmp_path / "data" / "replication-offset-checkpoint").read_text().splitlines()


def test_flush_ms(start, clock):
    broker, client = start()
    topic = client.create_topic(flush_ms=1000)
    log = broker.core.logs.get(topic, 0)
    client.produce(topic, batch(3, timestamp_ms=clock.wall_ms()))
    pass_time(broker, clock, 60_000)
    pass_time(broker, clock, 60_000)
    assert log.recovery_point == 3


def test_flush_messages_is_flushed_before_the_answer(start, clock):
    broker, client = start()
    topic = client.create_topic(flush_messages=2)
    log = broker.core.logs.get(topic, 0)
    client.produce(topic, batch(1, timestamp_ms=clock.wall_ms()))
    assert log.recovery_point == 0
    client.produce(topic, batch(1, timestamp_ms=clock.wall_ms()))
    assert log.recovery_point == 2


def test_idle_producers_expire(start, clock):
    broker, client = start(producer_id_expiration_ms=5000)
    topic = client.create_topic()
    producer = {"producer_id": 5, "producer_epoch": 0}
    client.produce(topic, batch(timestamp_ms=clock.wall_ms(), base_sequence=0, **producer))

    def known():
        topics = [{"name": topic, "partition_indexes": [0]}]
        answer = client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=topics)
        return [each.producer_id for each in answer.topics[0].partitions[0].active_producers]

    assert known() == [5]
    pass_time(broker, clock, 600_000)
    assert known() == []


def test_a_deleted_topics_folder_is_removed_after_its_delay(start, clock, tmp_path):
    broker, client = start(log_segment_delete_delay_ms=5000)
    topic = client.create_topic()
    client.ask(Api.DELETE_TOPICS, 3, topic_names=[topic], timeout=1000)

    def left():
        return [path.name for path in (tmp_path / "data").glob(f"{topic}-0*")]

    (name,) = left()
    assert name.endswith("-delete")
    pass_time(broker, clock, 4000)
    assert left()
    pass_time(broker, clock, 1000)
    assert left() == []


def test_compaction(start, clock):
    broker, client = start()
    topic = client.create_topic(cleanup_policy="compact", segment_bytes=1000, min_cleanable_dirty_ratio=0.01)
    for number in range(20):
        client.produce(topic, batch(key=b"same", value=b"%099d" % number, timestamp_ms=clock.wall_ms()))
    pass_time(broker, clock, 15_000)
    found, offset = [], 0
    while offset < 20:
        records = client.read(topic, offset).records
        found += values(records)
        offset = headers(records)[-1].next_offset
    assert len(found) < 8
    assert found[-1] == b"%099d" % 19


def test_a_job_that_fails_runs_again(start, clock, caplog, monkeypatch):
    broker, client = start(log_retention_check_interval_ms=1000)
    topic = client.create_topic(segment_bytes=1000, retention_bytes=0)
    for _ in range(12):
        client.produce(topic, batch(value=b"v" * 100, timestamp_ms=clock.wall_ms()))
    logs = broker.core.logs
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(type(logs), "all", lambda self: 1 / 0)
        pass_time(broker, clock, 1000)
    assert "retention" in caplog.text
    pass_time(broker, clock, 1000)
    assert client.offset(topic, -2).offset > 0


def test_checkpoints_are_written_off_the_event_loop(start, clock, monkeypatch):
    """To replace a file may take long, if the disk is busy."""
    broker, _ = start(log_flush_offset_checkpoint_interval_ms=1000)
    threads = []
    checkpoint = broker.core.logs.checkpoint
    monkeypatch.setattr(
        broker.core.logs, "checkpoint", lambda: (threads.append(threading.current_thread()), checkpoint())
    )
    pass_time(broker, clock, 1000)
    assert [thread.name.startswith("headrace-background") for thread in threads] == [True]
