"""Measures how long the threads of a broker in this process are busy at a time.

The unit is processor time of the thread: that is how long another client waits on an idle machine, and a busy machine
changes it little.
"""

import gc
import threading
import time
from contextlib import contextmanager

from headrace.broker.network.processor import Processor
from headrace.runtime.memory import collect_rarely


def collect_garbage_as_a_broker():
    """Exempts the present objects from garbage collection, as ``headrace start`` does.

    With all the objects of a process of tests, one collection takes 30 to 60 ms, on any of its threads.
    """
    gc.collect()
    collect_rarely()


class LoopWatch:
    """Notes the longest time that an event loop spends in one iteration."""

    def __init__(self, loop):
        self._loop = loop
        self._longest_s = 0.0
        self._last_s = None

    def _beat(self):
        now_s = time.thread_time()
        if self._last_s is not None:
            self._longest_s = max(self._longest_s, now_s - self._last_s)
            self._last_s = now_s
            self._loop.call_soon(self._beat)

    @contextmanager
    def watching(self):
        began = threading.Event()

        def begin():
            self._last_s = time.thread_time()
            self._beat()
            began.set()

        self._loop.call_soon_threadsafe(begin)
        assert began.wait(10)
        try:
            yield
        finally:
            ended = threading.Event()
            self._loop.call_soon_threadsafe(lambda: (self._beat(), setattr(self, "_last_s", None), ended.set()))
            assert ended.wait(60)

    @property
    def longest_ms(self):
        return self._longest_s * 1_000


class TurnWatch:
    """Notes the longest turn of the network threads. Between two turns a thread serves its other connections."""

    def __init__(self, monkeypatch):
        self._longest_s = 0.0
        take_turn = Processor._take_turn

        def timed(processor):
            began_s = time.thread_time()
            take_turn(processor)
            self._longest_s = max(self._longest_s, time.thread_time() - began_s)

        monkeypatch.setattr(Processor, "_take_turn", timed)

    @property
    def longest_ms(self):
        return self._longest_s * 1_000
