import asyncio

import pytest

from headrace.controller.events import BrokerChange, Expire, IsrChangeNotification, TopicChange
from headrace.controller.queue import SAMPLE, EventQueue


class Bed:
    def __init__(self):
        self.now_ns = 0
        self.handled = []
        self.preempted = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.queue = EventQueue(self.process, self.preempted.append, now_ns=lambda: self.now_ns)

    async def process(self, event):
        await self.gate.wait()
        self.now_ns += 3
        self.handled.append(event.name)
        if isinstance(event, TopicChange):
            raise ValueError("our own mistake")

    async def settle(self):
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def bed():
    bed = Bed()
    yield bed
    bed.gate.set()
    await bed.queue.close()


async def test_first_in_first_out_and_one_that_fails_stops_nobody(bed, caplog):
    for event in (BrokerChange(), TopicChange(), IsrChangeNotification()):
        bed.queue.put(event)
    bed.queue.start()
    await bed.settle()
    assert bed.handled == ["BrokerChange", "TopicChange", "IsrChangeNotification"]
    assert "could not handle TopicChange" in caplog.text
    bed.queue.put(BrokerChange())
    await bed.settle()
    assert bed.handled[-1] == "BrokerChange"
    assert bed.queue.current is None


async def test_times_in_the_queue_and_being_handled(bed):
    bed.queue.put(BrokerChange())
    bed.now_ns = 10
    bed.queue.start()
    await bed.settle()
    times = bed.queue.times["BrokerChange"]
    assert times.count == 1
    assert list(times.recent) == [(10, 3)]
    for _ in range(SAMPLE + 1):
        bed.queue.put(BrokerChange())
    await asyncio.sleep(0)
    await bed.settle()
    assert times.count == SAMPLE + 2
    assert len(times.recent) == SAMPLE


async def test_what_is_cleared_is_told_so(bed):
    bed.gate.clear()
    bed.queue.start()
    events = [BrokerChange(), TopicChange(), IsrChangeNotification()]
    for event in events:
        bed.queue.put(event)
    await bed.settle()
    bed.queue.clear_and_put(Expire())
    assert bed.preempted == events[1:]
    assert len(bed.queue) == 1
    assert bed.queue.current is events[0]
    bed.gate.set()
    await bed.settle()
    assert bed.handled == ["BrokerChange", "Expire"]


async def test_the_end(bed):
    bed.gate.clear()
    bed.queue.start()
    under_way, waiting, late = BrokerChange(), BrokerChange(), BrokerChange()
    bed.queue.put(under_way)
    bed.queue.put(waiting)
    await bed.settle()
    closing = asyncio.create_task(bed.queue.close())
    await bed.settle()
    bed.queue.put(late)
    bed.gate.set()
    await closing
    assert bed.handled == ["BrokerChange"]
    assert bed.preempted == [waiting, late]
    await bed.queue.close()


async def test_an_event_that_does_not_end_is_broken_off(bed, monkeypatch):
    monkeypatch.setattr("headrace.controller.queue._LAST_EVENT_S", 0.01)
    bed.gate.clear()
    bed.queue.start()
    event = BrokerChange()
    bed.queue.put(event)
    await bed.settle()
    await bed.queue.close()
    assert bed.preempted == [event]
    assert bed.handled == []
