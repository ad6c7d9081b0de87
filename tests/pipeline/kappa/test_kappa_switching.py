"""Several versions of a Kappa view at once: readers see a whole switch, and versions do not affect each other."""

from __future__ import annotations

import threading

import pytest
from kappa_harness import KappaHarness, until

from headrace.pipeline.serving.catalog import VersionEvent, VersionState
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.version.failures import FailureKind, classify_failure

pytestmark = pytest.mark.timeout(300)


def counting(version: int) -> str:
    return f"SELECT page, count(*) AS n, {version} AS version FROM events GROUP BY page"


@pytest.fixture
def harness(spark, kafka, database_url, tmp_path):
    made = KappaHarness(spark, kafka.bootstrap_servers, database_url, tmp_path)
    yield made
    made.close()


class Reader(threading.Thread):
    """Asks in a tight loop, and checks each answer against the offsets that come with it."""

    def __init__(self, url: str) -> None:
        super().__init__(name="reader")
        self._service = QueryService(url)
        self._is_over = threading.Event()
        self.wrong: list[str] = []
        self.versions: list[int] = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        self.join()
        self._service.close()

    def run(self) -> None:
        while not self._is_over.is_set() and not self.wrong:
            try:
                self._ask()
            except BaseException as error:  # noqa: BLE001  the test looks at it
                self.wrong.append(repr(error))

    def _ask(self) -> None:
        answer = self._service.query("SELECT page, n, version FROM pages", limit=1000)
        (as_of,) = answer.as_of
        counted = sum(row[1] for row in answer.rows)
        offsets = sum(offset for partitions in as_of.offsets.values() for offset in partitions.values())
        if {row[2] for row in answer.rows} != {as_of.version} or counted != offsets:
            self.wrong.append(f"{len(answer.rows)} rows count {counted} records, as of {as_of}: {answer.rows[:3]}")
        self.versions.append(as_of.version)


def test_a_reader_in_a_tight_loop_does_not_notice_twenty_switches(harness):
    running = {}
    harness.clicks(100)
    for version in (1, 2):
        harness.apply(harness.definition(counting(version)))
        running[version] = harness.start(version)
    assert running[1].lag().total == 100
    harness.serve(1)
    harness.serve(2)
    with Reader(harness.project.serving_url) as reader:
        for number in range(20):
            harness.clicks(10)
            seen = len(reader.versions)
            harness.serve(1 + number % 2)
            until(lambda seen=seen: len(reader.versions) > seen + 1 or reader.wrong, "the reader reads")
    assert reader.wrong == []
    assert set(reader.versions) == {1, 2}

    for version, each in running.items():
        until(lambda version=version: harness.progress(version).events == 300, f"{version} reads what came meanwhile")
        harness.check(harness.definition(counting(version)), version)
        each.stop()
        assert each.failure() is None
        each.stop()
    assert harness.catalog.view("pages").serving_version == 2
    assert harness.catalog.view("pages").previous_version == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_version_that_fails_touches_nothing_but_itself(harness):
    harness.apply(harness.definition(counting(1)))
    harness.start(1)  # the log is empty, which is caught up
    harness.serve(1)
    harness.clicks(20)
    until(lambda: harness.rows(1), "the first batch")

    failing = "SELECT page, sum(CASE WHEN ms = 5 THEN raise_error('five') ELSE 1 END) AS n FROM events GROUP BY page"
    harness.apply(harness.definition(failing))
    bad = harness.start(2)
    assert "five" in str(bad.failure())
    assert classify_failure(bad.failure()) is FailureKind.PERMANENT
    harness.catalog.set_state("pages", 2, VersionEvent.FAILED, error="five")
    assert harness.rows(2) == []
    assert harness.progress(2) is None

    harness.clicks(20)
    until(lambda: harness.progress(1).events == 40, "the good one goes on")
    harness.check(harness.definition(counting(1)))
    assert harness.catalog.version("pages", 1).state is VersionState.SERVING
    bad.stop()
    bad.drop()
