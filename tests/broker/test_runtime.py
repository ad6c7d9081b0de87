"""The threads of a broker for slow operations, whose number changes while they work."""

import asyncio
import threading
from contextlib import ExitStack

import pytest
from broker_harness import BROKER, Client, batch

from headrace import Broker
from headrace.broker.runtime import MANY_RECORDS, BrokerRuntime
from headrace.broker.thread_pool import ThreadPool
from headrace.log.disk import Disk
from headrace.testing import ManualClock

SET = 0
_PATIENCE_S = 10


async def test_operations_of_the_earlier_threads_are_completed():
    pool = ThreadPool(asyncio.get_running_loop(), "test", 1)
    release = threading.Event()
    slow = [asyncio.ensure_future(pool.run(lambda number=number: release.wait(10) and number))
            for number in (1, 2)]  # fmt: skip
    await asyncio.sleep(0)
    pool.resize(2)
    assert await pool.run(lambda: 3) == 3
    release.set()
    assert await asyncio.gather(*slow) == [1, 2]
    pool.stop()


async def test_a_batch_with_very_many_records_does_not_delay_others():
    """There was one thread: a batch with millions of records kept everybody's compressed batches waiting."""
    runtime = BrokerRuntime(asyncio.get_running_loop(), ManualClock(), io_threads=1)
    release = threading.Event()
    many = [asyncio.ensure_future(runtime.read_records(MANY_RECORDS + 1, release.wait, _PATIENCE_S)) for _ in range(2)]
    assert await runtime.read_records(MANY_RECORDS, lambda: "read") == "read"
    assert not any(one.done() for one in many)
    release.set()
    assert await asyncio.gather(*many) == [True, True]
    runtime.stop()


class Together:
    """A slow function that several threads run. It counts how many run it at the same time."""

    def __init__(self):
        self.running = 0
        self._changed = threading.Condition()
        self._is_released = False

    def __call__(self):
        with self._changed:
            self.running += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_released, _PATIENCE_S)
            self.running -= 1

    def comes_to(self, count):
        with self._changed:
            return self._changed.wait_for(lambda: self.running == count, _PATIENCE_S)

    def release(self):
        with self._changed:
            self._is_released = True
            self._changed.notify_all()


@pytest.mark.parametrize(
    ("name", "method"), [("num.io.threads", "run_blocking"), ("background.threads", "run_in_background")]
)
def test_more_and_fewer_operations_run_at_the_same_time(name, method):
    """num.io.threads and background.threads."""
    with Broker(config={name: 2}) as broker, Client(broker.bootstrap_servers) as client, ExitStack() as released:
        runtime = broker.core.runtime

        def begin(together, count):
            released.callback(together.release)
            run = getattr(runtime, method)
            return [asyncio.run_coroutine_threadsafe(run(together), runtime.loop) for _ in range(count)]

        for threads in (4, 2, 1):
            assert client.alter(BROKER, "0", (name, SET, str(threads))).error_code == 0
            together = Together()
            operations = begin(together, threads + 1)
            assert together.comes_to(threads)
            assert sum(each.done() for each in operations) == 0
            together.release()
            for each in operations:
                each.result(_PATIENCE_S)


class MeetingDisk(Disk):
    """From ``meet`` on, a snapshot of producers is complete only when a second thread writes one at the same time."""

    __slots__ = ("meeting", "met")

    def __init__(self):
        self.meeting = None
        self.met = []

    def meet(self):
        self.meeting = threading.Barrier(2)

    def write_file(self, path, *arguments, **options):
        if self.meeting is not None and path.endswith(".snapshot"):
            try:
                self.meeting.wait(1)
                self.met.append(path)
            except threading.BrokenBarrierError:
                pass
        super().write_file(path, *arguments, **options)


@pytest.mark.parametrize("threads", [1, 2])
def test_logs_are_closed_by_as_many_threads_as_the_setting_says_at_the_end(tmp_path, threads):
    """num.recovery.threads.per.data.dir"""
    disk = MeetingDisk()
    name = "num.recovery.threads.per.data.dir"
    broker = Broker(data=tmp_path / "data", disk=disk, config={name: 1})
    broker.start()
    with Client(broker.bootstrap_servers) as client:
        topic = client.create_topic(partitions=2)
        for partition in range(2):
            client.produce(topic, batch(), partition=partition)
        assert client.alter(BROKER, "", (name, SET, str(threads))).error_code == 0
    disk.meet()
    broker.stop()
    assert len(disk.met) == (2 if threads == 2 else 0)
