"""Measures the time from sending an event until a SQL query on the view returns it.

Events have numbers; a thousand per second go to a topic with one partition, and the view has the highest number of each
key. The view is always the answer over a prefix of the log, so an event is visible when the highest number of all keys
is not smaller. A reader asks SQLite every two milliseconds. One event goes ahead, so that no start-up is measured, and
the first three seconds only warm up the view.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from itertools import pairwise

import confluent_kafka
from loads import Latency
from pipeline_sides import Side
from servers import Server

PAGES = 100
_RATE = 1_000
_WARM_EVENTS = 3_000
_LOOK_EVERY_S = 0.002
_GIVE_UP_S = 120.0


def measure(server: Server, side: Side, topic: str, events: int) -> Latency:
    view = side.ask("follow", address=server.address, topic=topic)
    total = 1 + _WARM_EVENTS + events
    sent_s = [0.0] * total
    _send(server, topic, sent_s, range(1))
    _watch(view["database"], view["query"], 0)
    sender = threading.Thread(target=_send, args=(server, topic, sent_s, range(1, total)), daemon=True)
    sender.start()
    seen = _watch(view["database"], view["query"], total - 1)
    sender.join()
    side.ask("unfollow")
    delays_s = [at_s - sent for at_s, sent in zip(_first_seen(seen, total), sent_s, strict=True)]
    times = sorted(delays_s[-events:])
    return Latency(times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


def _send(server: Server, topic: str, sent_s: list[float], numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.address, "acks": "all", "linger.ms": 0})
    started = time.perf_counter()
    for number in numbers:
        wait_s = started + (number - numbers.start) / _RATE - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        event = json.dumps({"page": f"page-{number % PAGES}", "number": number}).encode()
        sent_s[number] = time.perf_counter()
        producer.produce(topic, event)
        producer.poll(0)
    assert not producer.flush(30), "events were not acknowledged"


def _watch(database: str, query: str, last: int) -> list[tuple[float, int]]:
    """When the highest number rose, and to what, until it is the last one."""
    seen = [(0.0, -1)]
    moved_s = time.perf_counter()
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)
    try:
        while seen[-1][1] < last:
            time.sleep(_LOOK_EVERY_S)
            (highest,) = connection.execute(query).fetchone()
            now_s = time.perf_counter()
            if highest is not None and highest > seen[-1][1]:
                seen.append((now_s, highest))
                moved_s = now_s
            assert now_s - moved_s < _GIVE_UP_S, f"the view stays at {seen[-1][1]}"
    finally:
        connection.close()
    return seen


def _first_seen(seen: list[tuple[float, int]], total: int) -> list[float]:
    """Of each event, the moment."""
    moments = [0.0] * total
    for (_, before), (at_s, highest) in pairwise(seen):
        moments[before + 1 : highest + 1] = [at_s] * (highest - before)
    return moments
