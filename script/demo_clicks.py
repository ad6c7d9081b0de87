"""A click stream that knows what it has produced, so that every answer about it can be checked by counting.

Each partition gets its clicks in order from one idempotent producer, so the click at offset n of a partition is the
n-th that was given to it. The answer of a view says up to which offsets it counts; ``counted`` counts the same clicks
by hand.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from demo_steps import WAIT_SECONDS, RunningBroker, client_settings, expect

CLICKS = "clicks"
PARTITIONS = 4
PAGES = ("/", "/search", "/shoes", "/hats", "/cart", "/pay", "/help", "/about")
VISITORS = 500
_TICK_SECONDS = 0.05
_ERRORS_PERCENT = 3


class Click(NamedTuple):
    visitor: str
    page: str
    ms: int
    status: int


class Tally:
    """Clicks counted by hand. Answers mostly come in the order of the log, so that only what is new is counted."""

    def __init__(self, column: int) -> None:
        self._column = column
        self.next_offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.by_key: dict[str, tuple[int, int, int]] = {}

    def add(self, partition: int, clicks: Sequence[Click]) -> None:
        for click in clicks:
            key = str(click[self._column])
            count, total_ms, errors = self.by_key.get(key, (0, 0, 0))
            self.by_key[key] = count + 1, total_ms + click.ms, errors + (click.status >= 500)
        self.next_offsets[partition] += len(clicks)


class ClickStream:
    """Sends clicks: ``produce`` sends a number at once; ``start`` sends a number per second, until ``stop``."""

    def __init__(self, broker: RunningBroker) -> None:
        admin = AdminClient(client_settings(broker))
        admin.create_topics([NewTopic(CLICKS, PARTITIONS, 1)])[CLICKS].result(WAIT_SECONDS)
        self._producer = Producer({**client_settings(broker), "enable.idempotence": True, "linger.ms": 5})
        self._random = random.Random(8)
        self._produced: list[list[Click]] = [[] for _ in range(PARTITIONS)]
        self._refused: list[KafkaError] = []
        self._tallies: dict[str, Tally] = {}
        self._ends = Event()
        self._thread: Thread | None = None

    def __len__(self) -> int:
        return sum(map(len, self._produced))

    @property
    def next_offsets(self) -> dict[int, int]:
        return {partition: len(clicks) for partition, clicks in enumerate(self._produced)}

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._click()
        self._flush()

    def start(self, per_second: int) -> None:
        def run() -> None:
            began, given = time.perf_counter(), 0
            while not self._ends.wait(_TICK_SECONDS):
                due = int((time.perf_counter() - began) * per_second)
                for _ in range(due - given):
                    self._click()
                given = due

        self._thread = Thread(target=run, name="clicks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Nothing is produced any more, and all that was is acknowledged."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        self._flush()

    def counted(self, column: str, next_offsets: Mapping[int, int]) -> dict[str, tuple[int, int, int]]:
        """By page or by visitor: how many clicks, how many milliseconds, how many errors; of these offsets only."""
        tally = self._tallies.get(column)
        if tally is None or any(tally.next_offsets[at] > next_offset for at, next_offset in next_offsets.items()):
            tally = self._tallies[column] = Tally(Click._fields.index(column))
        for partition, next_offset in next_offsets.items():
            clicks = self._produced[partition]
            expect(next_offset <= len(clicks), "an answer counts clicks that were never produced")
            tally.add(partition, clicks[tally.next_offsets[partition] : next_offset])
        return tally.by_key

    def _click(self) -> None:
        draw = self._random.random
        click = Click(
            visitor=f"visitor-{int(draw() ** 2 * VISITORS):03}",
            page=PAGES[int(draw() ** 2 * len(PAGES))],
            ms=int(20 + draw() ** 4 * 900),
            status=500 if draw() * 100 < _ERRORS_PERCENT else 200,
        )
        partition = len(self) % PARTITIONS
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        value = (
            f'{{"visitor":"{click.visitor}","page":"{click.page}","ms":{click.ms},"status":{click.status},"at":"{at}"}}'
        )
        self._produced[partition].append(click)  # first: an answer may be quick
        self._send(partition, value.encode())

    def _send(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(CLICKS, value, partition=partition, on_delivery=self._told)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _told(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._refused.append(error)

    def _flush(self) -> None:
        left = self._producer.flush(WAIT_SECONDS)
        expect(left == 0 and not self._refused, f"{left} clicks were not acknowledged, {len(self._refused)} refused")
