"""Measures the time from sending an event until a SQL query on the view returns it.

Events have numbers; a thousand per second go to a topic with one partition, and the view has the highest number of each
key. The view is always the answer over a prefix of the log, so an event is visible when the highest number of all keys
is not smaller. A reader asks SQLite every two milliseconds. One event goes ahead, so that no start-up is measured, and
the first three seconds only warm up the view.
"""

from __future__ import annotations

import sqlite3
import threading
import time

from loads import Latency
from numbered_events import delays_s, send
from pipeline_sides import Side
from servers import Server

_WARM_EVENTS = 3_000
_LOOK_EVERY_S = 0.002
_GIVE_UP_S = 120.0


def measure(server: Server, side: Side, topic: str, events: int) -> Latency:
    view = side.ask("follow", address=server.address, topic=topic)
    total = 1 + _WARM_EVENTS + events
    sent_s = [0.0] * total
    send(server.address, topic, sent_s, range(1))
    _watch(view["database"], view["query"], 0)
    sender = threading.Thread(target=send, args=(server.address, topic, sent_s, range(1, total)), daemon=True)
    sender.start()
    seen = _watch(view["database"], view["query"], total - 1)
    sender.join()
    side.ask("unfollow")
    times = delays_s(seen, sent_s, events)
    return Latency(times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


def _watch(database: str, query: str, last: int) -> list[tuple[float, int]]:
    """Returns the times at which the highest number rose, with the numbers, up to the last one."""
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
