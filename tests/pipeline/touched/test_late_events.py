"""Watermarks of views that are not Spark streams: the log alone says which events are late."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from touched_harness import TouchedHarness

from headrace.pipeline.decoding.late_events import late_rows, with_late
from headrace.pipeline.project.source_definition import Watermark
from headrace.pipeline.serving.database import Database
from headrace.pipeline.touched.view import TouchedVersion
from headrace.pipeline.whole.view import WholeVersion

pytestmark = pytest.mark.timeout(900)
HOUR = Watermark("at", "1 hour")
#: Partition, offset, hours; whether the event is late.
EVENTS = [
    (0, 0, 5.0, False), (0, 1, 4.5, False), (0, 2, 3.9, True), (0, 3, None, False), (0, 4, 7.0, False),
    (0, 5, 6.0, False), (0, 6, 5.9, True), (1, 0, 1.0, False), (1, 1, 0.5, False), (1, 2, -1.0, True),
]  # fmt: skip
START = datetime(2026, 11, 1)


def table(events) -> pa.Table:
    times = [None if hours is None else START + timedelta(hours=hours) for _, _, hours, _ in events]
    return pa.table({
        "at": pa.array(times, pa.timestamp("us", "UTC")), "_topic": ["t"] * len(events),
        "_partition": [each[0] for each in events], "_offset": [each[1] for each in events],
    })  # fmt: skip


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_late_events_do_not_depend_on_micro_batches(cut):
    first = late_rows(table(EVENTS[:cut]), HOUR, {})
    second = late_rows(table(EVENTS[cut:]), HOUR, first.largest)
    assert [*first.is_late, *second.is_late] == [late for *_, late in EVENTS]


def test_a_build_finds_the_same_late_events(spark):
    rows = with_late(spark.createDataFrame(table(EVENTS)), HOUR).collect()
    assert {(row["_partition"], row["_offset"]): row["_late"] for row in rows} == {
        (partition, offset): late for partition, offset, _, late in EVENTS
    }


# ------------------------------------------------------------------------------------------------------ with a broker

PER_ITEM = "SELECT o.item, count(DISTINCT o.id) AS n FROM orders o GROUP BY o.item"


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with TouchedHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        made.sources["orders"] = replace(made.sources["orders"], watermark=HOUR)
        yield made
    database.close()


def send(harness, events) -> None:
    for partition, offset, hours, late in events:
        at = "null" if hours is None else f'"{(START + timedelta(hours=hours)).isoformat()}"'
        value = f'{{"id": {100 * partition + offset}, "item": "{"late" if late else "on time"}", "at": {at}}}'
        harness.producer.send(f"{harness.prefix}-orders", value.encode(), partition=partition)
    harness.producer.flush()


@pytest.mark.parametrize(
    ("architecture", "version_class"),
    [("lambda", TouchedVersion), ("kappa", TouchedVersion), ("lambda", WholeVersion), ("kappa", WholeVersion)],
)
def test_late_events_are_left_out_and_counted_in_kappa_views_only(harness, architecture, version_class):
    late = {"kappa": 3, "lambda": 0}[architecture]
    expected = {"kappa": [("on time", 7)], "lambda": [("late", 3), ("on time", 7)]}[architecture]
    send(harness, EVENTS[:3])
    harness.apply(PER_ITEM, architecture, ("orders",))
    version_class(harness.context, harness.version).run_once()
    assert harness.seen()[1].dropped_late == late // 3
    send(harness, EVENTS[3:])
    version_class(harness.context, harness.restarted()).run_once()
    rows, progress = harness.seen()
    assert (rows, progress.dropped_late, progress.events) == (expected, late, 10)
    if late and version_class is TouchedVersion:
        harness.apply(PER_ITEM, architecture, ("orders",))
        version_class(harness.context, harness.version).run_once()
        assert (harness.seen()[0], harness.seen()[1].dropped_late) == (rows, late)
