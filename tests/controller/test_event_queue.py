import asyncio

import pytest

from headrace.controller.event_queue import SAMPLE, EventQueue
from headrace.controller.events import BrokerChange, Expire, IsrChangeNotification, TopicChange


class EventQueueHarness:
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
async def harness():
    harness = EventQueueHarness()
    yield harness
    harness.gate.set()
    await harness.queue.stop()


async def test_first_in_first_out_and_one_that_fails_stops_nobody(harness, caplog):
    for event in (BrokerChange(), TopicChange(), IsrChangeNotification()):
        harness.queue.put(event)
    harness.queue.start()
    await harness.settle()
    assert harness.handled == ["BrokerChange", "TopicChange", "IsrChangeNotification"]
    assert "could not process the event TopicChange" in caplog.text
    harness.queue.put(BrokerChange())
    await harness.settle()
    assert harness.handled[-1] == "BrokerChange"
    assert harness.queue.current is None


async def test_times_in_the_queue_and_being_handled(harness):
    harness.queue.put(BrokerChange())
    harness.now_ns = 10
    harness.queue.start()
    await harness.settle()
    times = harness.queue.times["BrokerChange"]
    assert times.count == 1
    assert list(times.recent) == [(10, 3)]
    for _ in range(SAMPLE + 1):
        harness.queue.put(BrokerChange())
    await asyncio.sleep(0)
    await harness.settle()
    assert times.count == SAMPLE + 2
    assert len(times.recent) == SAMPLE


async def test_what_is_cleared_is_told_so(harness):
    harness.gate.clear()
    harness.queue.start()
    events = [BrokerChange(), TopicChange(), IsrChangeNotification()]
    for event in events:
        harness.queue.put(event)
    await harness.settle()
    harness.queue.clear_and_put(Expire())
    assert harness.preempted == events[1:]
    assert len(harness.queue) == 1
    assert harness.queue.current is events[0]
    harness.gate.set()
    await harness.settle()
    assert harness.handled == ["BrokerChange", "Expire"]


async def test_the_end(harness):
    harness.gate.clear()
    harness.queue.start()
    under_way, waiting, late = BrokerChange(), BrokerChange(), BrokerChange()
    harness.queue.put(under_way)
    harness.queue.put(waiting)
    await harness.settle()
    closing = asyncio.create_task(harness.queue.stop())
    await harness.settle()
    harness.queue.put(late)
    harness.gate.set()
    await closing
    assert harness.handled == ["BrokerChange"]
    assert harness.preempted == [waiting, late]
    await harness.queue.stop()


async def test_an_event_that_does_not_end_is_broken_off(harness, monkeypatch):
    monkeypatch.setattr("headrace.controller.event_queue._LAST_EVENT_S", 0.01)
    harness.gate.clear()
    harness.queue.start()
    event = BrokerChange()
    harness.queue.put(event)
    await harness.settle()
    await harness.queue.stop()
    assert harness.preempted == [event]
    assert harness.handled == []
