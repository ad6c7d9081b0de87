"""The progress of a running batch, and the time of which an answer is complete: with Spark, in both architectures.

The decoder waits at one record until the test lets it go on, so the batch is half done for as long as the test looks.
"""

from __future__ import annotations

import time

import pytest
from kappa_harness import KappaHarness, until

from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.lambda_ import view as lambda_view
from headrace.pipeline.lambda_.view import LambdaView
from headrace.pipeline.project.definition import Decode, FileText
from headrace.pipeline.spark.job_progress import jobs_with_tag, records_read, running_jobs_of_group

pytestmark = pytest.mark.timeout(300)

WAITING_DECODER = """
import json, os, time

def decode(value):
    found = json.loads(value)
    while found["page"] == "wait" and not os.path.exists({update_trials!r}):
        time.sleep(0.05)
    return found
"""
EACH = 10


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    made = KappaHarness(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    # Two partitions of the same size; the last record of the second one is waited for.
    made.produce(*({"page": "p", "ms": one} for one in range(2 * EACH - 1)), {"page": "wait", "ms": 0})
    yield made
    update_trials(made)
    made.close()


def update_trials(harness: KappaHarness) -> None:
    (harness.folder / "go-on").touch()


def waiting_definition(harness: KappaHarness, **changes):
    decoder = WAITING_DECODER.format(update_trials=str(harness.folder / "go-on"))
    decode = Decode("python", "page STRING, ms BIGINT", function=FileText("decoders.py", decoder, "decode"))
    return harness.definition(decode=decode, **changes)


def test_a_kappa_version_tells_what_its_batch_has_read_and_when_it_was_complete(harness):
    harness.way = KappaStream
    harness.apply(waiting_definition(harness))
    running = harness.running()
    running.start()
    until(lambda: running.reading() == EACH or running.failure(), "the task of the first partition has ended")
    assert running.failure() is None
    assert running.lag().records == 2 * EACH, "nothing is committed"
    assert running.lag().complete_ms is None
    update_trials(harness)
    until(lambda: running.lag().records == 0 or running.failure(), "all is read")
    assert running.reading() == 0
    until(lambda: running.lag().complete_ms is not None, "it is compared with the log")
    first_ms = running.lag().complete_ms
    assert first_ms <= time.time() * 1000
    until(lambda: running.lag().complete_ms > first_ms, "a quiet topic is compared again and again")


def test_a_lambda_version_tells_how_far_its_first_batch_is_and_when_it_was_complete(harness, monkeypatch):
    monkeypatch.setattr(lambda_view, "SMALL_LOG", -1)
    harness.apply(waiting_definition(harness, architecture="lambda"))
    running = LambdaView(harness.context(), harness.catalog.version("pages", 1))
    running.start()
    try:
        # The archive has all by then, which are two of three reads of each record.
        until(lambda: running.reading() >= 2 * EACH * 2 // 3 or running.failure(), "the archive has all")
        assert running.failure() is None
        assert running.reading() < 2 * EACH
        assert harness.progress() is None, "nothing is committed"
        update_trials(harness)
        until(lambda: running.lag().complete_ms is not None or running.failure(), "it is compared with the log")
        assert running.reading() == 0
        first_ms = running.lag().complete_ms
        until(lambda: running.lag().complete_ms > first_ms, "a quiet topic is compared again and again")
    finally:
        running.stop()


def test_what_spark_does_not_know_is_nothing(spark):
    assert jobs_with_tag(spark, "nobody") == []
    assert running_jobs_of_group(spark, "nobody") == []
    assert records_read(spark, [10**6]) == 0
