"""Sends numbered events at a steady rate, and tells when each of them was first seen.

The view over the events has the highest number of each key, and is always the answer over a prefix of the log. So an
event is visible when the highest number of all keys is not smaller than the event's number.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise

import confluent_kafka

KEYS = 100
#: Events per second.
RATE = 1_000


def send(address: str, topic: str, sent_s: list[float], numbers: range) -> None:
    """Sends the events with these numbers, and notes the time of each."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    started = time.perf_counter()
    for number in numbers:
        wait_s = started + (number - numbers.start) / RATE - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        event = json.dumps({"page": f"page-{number % KEYS}", "number": number}).encode()
        sent_s[number] = time.perf_counter()
        producer.produce(topic, event)
        producer.poll(0)
    assert not producer.flush(30), "events were not acknowledged"


def delays_s(seen: list[tuple[float, int]], sent_s: list[float], events: int) -> list[float]:
    """Returns the times from sending to seeing the last ``events`` events, sorted.

    :param seen: the times at which the highest number rose, with the numbers, from (0.0, -1) on.
    """
    moments = [0.0] * len(sent_s)
    for (_, before), (at_s, highest) in pairwise(seen):
        moments[before + 1 : highest + 1] = [at_s] * (highest - before)
    return sorted(at_s - sent for at_s, sent in zip(moments[-events:], sent_s[-events:], strict=True))
