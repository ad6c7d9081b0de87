"""Versions whose whole answer is computed again: each build is the query over an exact prefix of the log."""

from __future__ import annotations

import pytest
from lambda_harness import quick as quick
from lambda_harness import until
from touched_harness import TouchedHarness

from headrace.pipeline.serving.database import Database
from headrace.pipeline.touched.store import TouchedStore
from headrace.pipeline.whole.view import WholeVersion

pytestmark = pytest.mark.timeout(900)
LARGEST = (
    "SELECT o.id, o.amount, c.name FROM orders o LEFT JOIN customers c USING (customer) ORDER BY o.amount DESC LIMIT 2"
)


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with TouchedHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()


def order(number: int, amount: int) -> dict[str, object]:
    return {"id": number, "customer": 1, "item": "i", "amount": amount}


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_each_run_swaps_the_answer(harness, architecture):
    harness.customer(1, {"name": "Ann", "country": "DE"})
    harness.send("orders", order(1, 10), order(2, 30), order(3, 20), "{broken")
    harness.apply(LARGEST, architecture, ("orders", "customers"))
    WholeVersion(harness.context, harness.version).run_once()
    assert harness.check().dead_letters == 1
    assert [row[0] for row in harness.seen()[0]] == [2, 3]

    harness.send("orders", order(4, 25), order(5, 1))
    harness.customer(1, {"name": "Anna", "country": "DE"})
    WholeVersion(harness.context, harness.restarted()).run_once()
    assert harness.check().events == 8
    assert harness.seen()[0] == [(2, 30, "Anna"), (4, 25, "Anna")]


def test_a_running_version_builds_when_it_is_asked(harness):
    harness.send("orders", order(1, 10))
    harness.apply(LARGEST, "kappa", ("orders", "customers"))
    version = WholeVersion(harness.context, harness.version)
    version.start()
    try:
        until(version.has_caught_up, "the first build")
        harness.send("orders", order(2, 20))
        until(lambda: version.lag().records == 1, "the lag is known")
        wanted = harness.context.catalog.add_request(harness.version.view, "batch")
        (request,) = harness.context.catalog.open_requests()
        assert version.request(request)
        until(lambda: harness.context.catalog.request(wanted).done_ms is not None, "the build that was asked for")
        assert harness.context.catalog.request(wanted).error is None
    finally:
        version.stop()
    assert version.failure() is None
    assert len(harness.seen()[0]) == 2
    harness.check()
    store = TouchedStore(harness.context.database, harness.context.catalog, *harness.version.key)
    assert store.last_build().batch == 2
