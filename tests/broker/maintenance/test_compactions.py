"""Compaction on threads, and the settings ``log.cleaner.*`` that change while it runs."""

import subprocess
import sys
from threading import current_thread
from time import monotonic, sleep

import pytest
from broker_harness import BROKER, Client, batch, headers, on_loop, values

from headrace import Broker
from headrace.log.disk import Disk
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing import ManualClock, pass_time

pytestmark = pytest.mark.usefixtures("ours")

SET = 0
DAY_MS = 86_400_000
_PATIENCE_S = 10


class CountingDisk(Disk):
    """Notes the sizes of reads and writes by the cleaner."""

    __slots__ = ("largest_read_bytes", "largest_write_bytes")

    def __init__(self):
        self.forget()

    def forget(self):
        self.largest_read_bytes = self.largest_write_bytes = 0

    def _is_of_cleaner(self):
        return current_thread().name.startswith("headrace-cleaner")

    def pread(self, fd, size_bytes, position):
        if self._is_of_cleaner():
            self.largest_read_bytes = max(self.largest_read_bytes, size_bytes)
        return super().pread(fd, size_bytes, position)

    def write(self, fd, buffers, position, size_bytes):
        if self._is_of_cleaner():
            self.largest_write_bytes = max(self.largest_write_bytes, size_bytes)
        super().write(fd, buffers, position, size_bytes)


class Compacting:
    """A broker whose clock moves by hand, and compacted topics."""

    def __init__(self, folder, **config):
        self.clock, self.disk = ManualClock(), CountingDisk()
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.broker = Broker(data=folder, clock=self.clock, disk=self.disk, config=settings)
        self.broker.start()
        self.client = Client(self.broker.bootstrap_servers)

    def close(self):
        self.client.close()
        self.broker.stop()

    def set(self, name, value):
        answer = self.client.alter(BROKER, "", (name, SET, str(value)))
        assert answer.error_code == 0, answer

    def topic(self, **configs):
        return self.client.create_topic(cleanup_policy="compact", segment_bytes=1000, **configs)

    def fill(self, topic, count=20, *, key=b"same"):
        for number in range(count):
            self.client.produce(topic, batch(key=key, value=b"%099d" % number, timestamp_ms=self.clock.wall_ms()))

    def pass_time(self, by_ms):
        pass_time(self.broker, self.clock, by_ms)

    def begin(self, by_ms):
        """Lets time pass, and does not wait for the end of what begins then."""

        def advance():
            self.clock.advance(by_ms)
            self.broker.core.runtime.timer.advance()

        on_loop(self.broker, advance)

    def being_cleaned(self):
        return {log.topic for log in tuple(self.broker.core.maintenance.cleaner._being_cleaned)}

    def first_offsets(self, topic):
        """The offsets of the batches that are left."""
        found, offset = [], 0
        end = self.client.offset(topic, -1).offset
        while offset < end:
            some = headers(self.client.read(topic, offset).records)
            found += [header.base_offset for header in some if header.record_count]
            offset = some[-1].next_offset
        return found

    def is_compacted(self, topic):
        return self.first_offsets(topic)[0] > 0


@pytest.fixture
def compacting(tmp_path):
    running = []

    def started(**config):
        running.append(Compacting(tmp_path / "data", **config))
        return running[-1]

    yield started
    for each in running:
        each.close()


def until(condition):
    deadline = monotonic() + _PATIENCE_S
    while not condition():
        assert monotonic() < deadline, "it did not happen"
        sleep(0.01)


def test_more_threads_compact_more_logs_at_the_same_time_and_a_higher_rate_ends_the_wait(compacting):
    """log.cleaner.threads, log.cleaner.io.max.bytes.per.second"""
    ours = compacting(log_cleaner_threads=1, log_cleaner_io_max_bytes_per_second=1)
    topics = [ours.topic(min_cleanable_dirty_ratio=0.01) for _ in range(3)]
    for topic in topics:
        ours.fill(topic)
    ours.begin(15_000)
    until(lambda: len(ours.being_cleaned()) == 1)
    ours.set("log.cleaner.threads", 2)
    until(lambda: len(ours.being_cleaned()) == 2)
    assert not any(map(ours.is_compacted, topics)), "at one byte per second"
    ours.set("log.cleaner.io.max.bytes.per.second", 1e9)
    ours.pass_time(1000)
    assert all(map(ours.is_compacted, topics))


def test_fewer_threads_complete_their_logs(compacting):
    """log.cleaner.threads"""
    ours = compacting(log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=1)
    topics = [ours.topic(min_cleanable_dirty_ratio=0.01) for _ in range(3)]
    for topic in topics:
        ours.fill(topic)
    ours.begin(15_000)
    until(lambda: len(ours.being_cleaned()) == 2)
    ours.set("log.cleaner.threads", 1)
    ours.set("log.cleaner.io.max.bytes.per.second", 1e9)
    ours.pass_time(1000)
    assert all(map(ours.is_compacted, topics))
    assert ours.being_cleaned() == set()


def test_a_broker_stops_while_compaction_waits_for_its_rate(compacting):
    ours = compacting(log_cleaner_io_max_bytes_per_second=1)
    ours.fill(ours.topic(min_cleanable_dirty_ratio=0.01))
    ours.begin(15_000)
    until(lambda: len(ours.being_cleaned()) == 1)
    cleaner = ours.broker.core.maintenance.cleaner
    ours.broker.stop()
    assert not cleaner._being_cleaned


def test_a_shorter_backoff_is_in_force_at_once(compacting):
    """log.cleaner.backoff.ms"""
    ours = compacting(log_cleaner_backoff_ms=3_600_000)
    topic = ours.topic(min_cleanable_dirty_ratio=0.01)
    ours.fill(topic)
    ours.pass_time(5000)
    assert not ours.is_compacted(topic)
    ours.set("log.cleaner.backoff.ms", 5000)
    ours.pass_time(4999)
    assert not ours.is_compacted(topic)
    ours.pass_time(1)
    assert ours.is_compacted(topic)


@pytest.mark.parametrize(
    ("name", "value"), [("log.cleaner.dedupe.buffer.size", 2_097_152), ("log.cleaner.io.buffer.load.factor", 0.01)]
)
def test_a_smaller_map_of_keys_cleans_less_at_once(compacting, monkeypatch, name, value):
    """log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.load.factor"""
    ours = compacting()
    cleaner = ours.broker.core.maintenance.cleaner
    key_counts = []
    commit = cleaner.commit
    monkeypatch.setattr(
        cleaner, "commit", lambda log, cleaned: (key_counts.append(cleaned.key_count), commit(log, cleaned))[1]
    )
    keys = 30_000

    def compact():
        topic = ours.client.create_topic(cleanup_policy="compact", segment_bytes=100_000)
        now_ms = ours.clock.wall_ms()
        for start in range(0, keys, 1000):
            rows = [Record(at, now_ms, b"%d" % (start + at), b"v") for at in range(1000)]
            ours.client.produce(topic, build_batch(rows))
        key_counts.clear()
        ours.pass_time(15_000)
        return max(key_counts)

    assert compact() > 20_000
    ours.set(name, value)
    assert compact() < 12_000


def test_a_smaller_buffer_reads_and_writes_less_at_once(compacting):
    """log.cleaner.io.buffer.size"""
    ours = compacting()
    largest = []
    for size_bytes in (None, 20_000):
        if size_bytes is not None:
            ours.set("log.cleaner.io.buffer.size", size_bytes)
        topic = ours.client.create_topic(
            cleanup_policy="compact", segment_bytes=100_000, min_cleanable_dirty_ratio=0.01
        )
        for number in range(150):
            ours.client.produce(
                topic, batch(key=b"%d" % max(30, number), value=b"v" * 1000, timestamp_ms=ours.clock.wall_ms())
            )
        ours.disk.forget()
        ours.pass_time(15_000)
        assert ours.is_compacted(topic)
        largest.append((ours.disk.largest_read_bytes, ours.disk.largest_write_bytes))
    (read, written), (later_read, later_written) = largest
    assert min(read, written) > 50_000
    assert later_read == 10_000
    assert later_written < 12_000, "the last batch makes it more than half of the buffer"


def test_a_smaller_share_of_dirty_bytes_suffices(compacting):
    """log.cleaner.min.cleanable.ratio"""
    ours = compacting(log_cleaner_min_cleanable_ratio=1)
    topic = ours.topic()
    ours.fill(topic)
    ours.pass_time(15_000)
    assert not ours.is_compacted(topic)
    ours.set("log.cleaner.min.cleanable.ratio", 0.3)
    ours.pass_time(15_000)
    assert ours.is_compacted(topic)


def test_a_longer_lag_keeps_records_and_a_shorter_one_does_not(compacting):
    """log.cleaner.min.compaction.lag.ms"""
    ours = compacting(log_cleaner_min_compaction_lag_ms=DAY_MS)
    topic = ours.topic()
    ours.fill(topic)
    ours.pass_time(15_000)
    assert not ours.is_compacted(topic)
    ours.set("log.cleaner.min.compaction.lag.ms", 1000)
    ours.pass_time(15_000)
    assert ours.is_compacted(topic)


def test_a_log_is_compacted_after_the_maximum_lag_though_it_is_hardly_dirty(compacting):
    """log.cleaner.max.compaction.lag.ms"""
    ours = compacting(log_cleaner_min_cleanable_ratio=1)
    topic = ours.topic()
    ours.fill(topic)
    ours.pass_time(15_000)
    assert not ours.is_compacted(topic)
    ours.set("log.cleaner.max.compaction.lag.ms", 1000)
    ours.pass_time(15_000)
    assert ours.is_compacted(topic)


def test_tombstones_are_kept_for_the_new_time(compacting):
    """log.cleaner.delete.retention.ms"""
    ours = compacting(log_cleaner_min_cleanable_ratio=0.01)
    ours.set("log.cleaner.delete.retention.ms", 20_000)
    topic = ours.topic()
    ours.client.produce(topic, batch(key=b"gone", value=None, timestamp_ms=ours.clock.wall_ms()))

    def has_tombstone():
        return None in values(ours.client.read(topic, ours.first_offsets(topic)[0]).records)

    ours.fill(topic)
    ours.pass_time(15_000)
    assert has_tombstone()
    ours.fill(topic)
    ours.pass_time(25_000)
    assert not has_tombstone()


_FIRST_COMPACTION = """
import asyncio, sys
from threading import current_thread
from headrace.broker.broker import Broker
from headrace.broker.configs.broker_config import BrokerConfig

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name.startswith("headrace.log.compaction."):
            print(current_thread().name)

async def compact(folder):
    broker = Broker(BrokerConfig.load({"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await broker.start()
    sys.meta_path.insert(0, Finder)
    await broker.maintenance.compactions.run()
    await broker.stop()

asyncio.run(compact(sys.argv[1]))
"""


def test_the_loop_does_not_import_the_cleaner(tmp_path):
    """The imports take 20 ms, in which no request would be answered."""
    command = [sys.executable, "-c", _FIRST_COMPACTION, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    threads = set(done.stdout.splitlines())
    assert threads
    assert all(thread.startswith("headrace-background") for thread in threads)
