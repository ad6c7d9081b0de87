"""The promise of a Lambda view: at every moment it is the query over one exact prefix of the log.

A reader asks in a tight loop while micro-batches are committed and batches land, full and incremental ones, and
compares each answer with what the query says of exactly the offsets that it came with. ``HEADRACE_SOAK`` is how many
times as long it goes on.
"""

from __future__ import annotations

import os
import random
import threading

import pytest
from lambda_harness import LambdaHarness, until
from lambda_harness import first_batch_first as first_batch_first
from lambda_harness import quick as quick

from headrace.pipeline.lambda_.view import LambdaView

pytestmark = pytest.mark.timeout(600 * int(os.environ.get("HEADRACE_SOAK", "1")))
BATCHES = 3 * int(os.environ.get("HEADRACE_SOAK", "1"))


class Reader:
    """Asks until it is told to stop, or until an answer is wrong."""

    def __init__(self, harness: LambdaHarness) -> None:
        self._harness = harness
        self.is_told = threading.Event()
        self.wrong: BaseException | None = None
        self.micro_batches: set[int] = set()
        self.answers = 0
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_told.set()
        self._thread.join(60)

    def sees_more(self, view: LambdaView) -> None:
        """Waits for a few more micro-batches."""
        wanted = len(self.micro_batches) + 3
        until(lambda: bool(self.wrong or view.failure()) or len(self.micro_batches) >= wanted, "micro-batches")

    def _read(self) -> None:
        try:
            while not self.is_told.is_set():
                self.micro_batches.add(self._harness.check().batch_id)
                self.answers += 1
        except BaseException as error:  # noqa: BLE001  told where pytest sees it
            self.wrong = error


class Sender(threading.Thread):
    """Sends a few events at a time, as fast as they are acknowledged."""

    def __init__(self, harness: LambdaHarness, seed: int) -> None:
        super().__init__()
        self._harness = harness
        self._chance = random.Random(seed)
        self.is_told = threading.Event()

    def run(self) -> None:
        while not self.is_told.is_set():
            self._harness.send(*(self._event() for _ in range(self._chance.randrange(1, 6))))
            self.is_told.wait(0.05)

    def _event(self) -> tuple[str, int] | None:
        number = self._chance.randrange(40)
        return None if number == 0 else (f"page {int(self._chance.paretovariate(1)) % 30}", number)


def test_every_answer_is_the_query_over_its_own_prefix_of_the_log(spark, kafka, database, tmp_path):
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as harness:
        harness.send(*((f"page {number % 7}", number) for number in range(50)))
        view = LambdaView(harness.context, harness.version)
        view.start()
        sender = Sender(harness, seed=6)
        try:
            until(lambda: view.failure() is not None or view.has_caught_up(), "caught up")
            assert view.failure() is None
            harness.serve()
            sender.start()
            with Reader(harness) as reader:
                for number in range(BATCHES):
                    reader.sees_more(view)
                    batch(harness, view, full=number % 2 == 1)
                reader.sees_more(view)
        finally:
            sender.is_told.set()
            if sender.is_alive():
                sender.join(60)
            view.stop()
        assert view.failure() is None
        if reader.wrong is not None:
            raise reader.wrong
        assert reader.answers > 2 * BATCHES
        assert last_batch(harness) == 1 + BATCHES


def batch(harness: LambdaHarness, view: LambdaView, *, full: bool) -> None:
    catalog = harness.context.catalog
    number = catalog.add_request(harness.version.view, "batch", {"full": full})
    assert view.request(catalog.request(number))
    until(lambda: view.failure() is not None or catalog.request(number).done_ms is not None, "a batch")
    assert view.failure() is None
    assert catalog.request(number).error is None


def last_batch(harness: LambdaHarness) -> int:
    with harness.context.database.read() as connection:
        return harness.context.catalog.batches(connection, *harness.key)[-1].batch
