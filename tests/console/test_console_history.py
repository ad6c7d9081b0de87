"""Samples, their file, and the charts that are made of them."""

from __future__ import annotations

import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing

import pytest
from console_harness import Elements

from headrace import Admin, Producer
from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import ClusterReader
from headrace.console.history import store as store_module
from headrace.console.history.charts import chart
from headrace.console.history.sample import GroupSample, Sample, TopicSample
from headrace.console.history.sampler import Sampler
from headrace.console.history.series import MOST_POINTS, Point, Series, at_times, rates, time_lags, values
from headrace.console.history.store import Store
from headrace.properties import ConfigError
from headrace.testing import ManualClock


def sample(time_ms: int, end_offsets: int = 0, lag: int = 0, **topics: int) -> Sample:
    found = {name: TopicSample(count, 10 * count) for name, count in {"t": end_offsets, **topics}.items()}
    return Sample(time_ms, found, groups={("g", "t"): GroupSample(end_offsets - lag, lag)})


@pytest.fixture
def store():
    store = Store(None)
    yield store
    store.close()


def test_a_topic_has_a_row_per_change(store):
    for second, count in enumerate((5, 5, 5, 8, 8)):
        store.add(sample(second * 1_000, count))
    assert store.topic("t", 0) == [(0, 5, 50), (3_000, 8, 80)]
    assert store.topic("t", 2_000) == [(0, 5, 50), (3_000, 8, 80)]
    assert store.topic("other", 0) == []
    assert [row[:3] for row in store.totals(3_000)] == [(3_000, 8, 80), (4_000, 8, 80)]
    assert store.group("g", "t", 0) == [(0, 5, 0), (3_000, 8, 0)]
    assert at_times(store.times(1_000), store.topic("t", 1_000), 1) == [(1_000, 5), (2_000, 5), (3_000, 8), (4_000, 8)]


def test_samples_are_there_after_a_restart(tmp_path):
    for time_ms in (1_000, 2_000):
        store = Store(tmp_path)
        store.add(sample(time_ms, time_ms))
        store.close()
    store = Store(tmp_path)
    assert store.topic("t", 0) == [(1_000, 1_000, 10_000), (2_000, 2_000, 20_000)]
    store.close()


def test_the_rows_are_bounded(monkeypatch):
    monkeypatch.setattr(store_module, "MOST_ROWS_IN_MEMORY", 300)
    store = Store(None)
    for second in range(1_000):
        store.add(sample(second * 1_000, second, idle=7))
    assert 100 < len(store.topic("t", 0)) < 300
    assert store.topic("t", 0)[-1] == (999_000, 999, 9_990)
    assert store.topic("idle", 998_000) == [(0, 7, 70)]
    assert len(store.times(0)) == 1_000
    store.close()


def test_rows_are_kept_for_a_day_and_names_as_long_as_their_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(store_module, "MOST_ROWS_IN_FILE", 100)
    day_ms = 24 * 3_600_000
    store = Store(tmp_path)
    store.add(sample(0, 1, idle=7, gone=1))
    for second in range(100):
        store.add(sample(2 * day_ms + second * 1_000, second, idle=7))
    assert store.times(0)[0] == 2 * day_ms
    assert store.topic("gone", 0) == []
    assert store.topic("idle", 2 * day_ms) == [(0, 7, 70)]
    store.close()
    with closing(sqlite3.connect(tmp_path / "history.sqlite3")) as database:
        assert {name for (name,) in database.execute("SELECT name FROM names")} == {"t", "g", "idle"}


def test_internal_topics_are_in_no_total():
    topics = {"t": TopicSample(5, 50), "__internal": TopicSample(7, 70)}
    groups = {("g", "t"): GroupSample(4, 1), ("g", "__internal"): GroupSample(5, 2)}
    found = Sample(0, topics, frozenset({"__internal"}), groups)
    assert (found.records, found.size_bytes, found.read, found.lag) == (5, 50, 4, 1)


async def test_the_overview_tells_the_internal_topics(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("one-of-users")
        admin.alter_group_offsets("g", {TopicPartition("one-of-users", 0): 0})
        internal = sum(topic.is_internal for topic in admin.describe_topics().ok.values())
    assert internal >= 1
    assert (await console.json("/api/overview"))["internal_topics"] == internal
    page = Elements(await console.page("/"))
    assert "Internal topics" in page.text
    assert "/topics?internal=true" in [each["href"] for each in page.named("a")]


def test_a_measure_has_a_row_per_change_and_is_unknown_when_it_is_gone(tmp_path):
    store = Store(tmp_path)
    for time_ms, measures in ((0, {"a": 1.5, "b": 2}), (1, {"a": 1.5, "b": None}), (2, {"a": 3}), (3, {"a": 3})):
        store.add(Sample(time_ms, {}, measures=measures))
    assert store.measure("a", 0) == [(0, 1.5), (2, 3)]
    assert store.measure("b", 1) == [(0, 2), (1, None)]
    store.close()
    store = Store(tmp_path)
    store.add(Sample(4, {}))
    assert at_times([3, 4], store.measure("a", 3), 1) == [(3, 3), (4, None)]
    store.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, None])
def test_a_file_that_cannot_be_used_is_an_error(tmp_path, content):
    path = tmp_path / "history.sqlite3"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"history\.sqlite3"):
        Store(tmp_path)


def test_rates_are_per_second_and_gaps_stay_gaps():
    line = rates("r", "records per second", [(0, 0), (10_000, 50), (20_000, 50), (30_000, 10), (900_000, 20)])
    assert [point.value for point in line.points] == [5.0, 0.0, 0.0, None]


@pytest.mark.parametrize(
    ("lag", "age"), [(0, 0.0), (5, 5_000.0), (10, 10_000.0), (25, 15_000.0), (40, 20_000.0), (41, None), (None, None)]
)
def test_a_time_lag_is_estimated_from_the_time_at_which_the_end_was_where_the_reader_is(lag, age):
    times = [0, 10_000, 20_000, 30_000]
    ends = [(0, 60), (10_000, 60), (20_000, 90), (30_000, 100)]
    # 40 behind is 60, which was the end at 10 s; 41 behind was written before the first sample.
    assert time_lags(times, ends, [(time_ms, lag) for time_ms in times])[-1] == (30_000, age)


def test_a_topic_that_was_created_again_has_no_older_times():
    times = [0, 10_000, 20_000]
    ends = [(0, 500), (10_000, 0), (20_000, 8)]
    assert time_lags(times, ends, [(0, 0), (10_000, None), (20_000, 4)])[-1] == (20_000, 5_000.0)


def test_long_lines_are_thinned():
    line = values("v", "bytes", [(time_ms, time_ms) for time_ms in range(10_000)])
    assert len(line.points) <= MOST_POINTS
    assert line.points[-1] == Point(9_999, 9_999.0)


@pytest.mark.parametrize(
    "points",
    [
        (),
        (Point(0, None),),
        (Point(0, 5.0),),
        (Point(0, 0.001), Point(5, None), Point(9, 1e15)),
        (Point(0, 0), Point(1, 0)),
    ],
)
def test_a_chart_is_well_formed_whatever_the_line(points):
    hostile = "<script>\"&'"
    found = ElementTree.fromstring(chart(Series(hostile, "bytes", points)))
    assert found.find("figcaption").text.startswith(hostile)
    svg = found.find("svg")
    assert hostile in svg.get("aria-label")
    for path in svg.iter("path"):
        numbers = [float(each) for each in re.findall(r"[\d.]+", path.get("d"))]
        assert all(0 <= number <= 401 for number in numbers)


async def test_the_sampler_reads_topics_groups_and_rates(broker):
    clock = ManualClock()
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topic("sampled", num_partitions=2)
        admin.alter_group_offsets("reader", {TopicPartition("sampled", 0): 0})
    reader, store = ClusterReader(servers, clock), Store(None)
    sampler = Sampler(reader, store, clock, 10)
    assert sampler.latest is None
    assert sampler.rates("sampled") is None
    await sampler.sample()
    with Producer(servers) as producer:
        for _ in range(30):
            producer.send("sampled", value=b"x", partition=0)
    clock.advance(10_000)
    await sampler.sample()
    assert sampler.latest.topics["sampled"].end_offsets == 30
    assert sampler.latest.topics["sampled"].size_bytes > 0
    assert sampler.latest.groups["reader", "sampled"] == GroupSample(0, 30)
    assert sampler.rates("sampled").records == 3.0
    assert sampler.rates("sampled").bytes > 0
    assert [row[1] for row in store.topic("sampled", 0)] == [0, 30]
    await reader.close()
    store.close()


async def test_hostile_names_of_groups_are_only_text(console, broker):
    hostile = "<script>alert(1)</script>\"'<img src=x onerror=alert(1)>"
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("read-by-a-hostile-group")
        admin.alter_group_offsets(hostile, {TopicPartition("read-by-a-hostile-group", 0): 0})
    await console.services.history.sampler.sample()
    page = Elements(await console.page("/topics/read-by-a-hostile-group"))
    assert hostile in page.text
    assert any(hostile in (each.get("aria-label") or "") for each in page.named("svg"))
    assert [each["src"] for each in page.named("script")] == ["/static/console.js"]
    assert page.named("img") == []


async def test_pages_show_the_last_sample(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("shown")
        admin.alter_group_offsets("shown-reader", {TopicPartition("shown", 0): 0})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("shown", value=b"x")
    assert (await console.json("/api/overview"))["lines"][0]["points"] == []
    await console.services.history.sampler.sample()
    (row,) = (await console.json("/api/topics?q=shown"))["topics"]["rows"]
    assert (row["groups"], row["lag"], row["size_bytes"] > 0) == (1, 1, True)
    topic = await console.json("/api/topics/shown")
    assert topic["readers"] == [{"group": "shown-reader", "lag": 1}]
    assert topic["lines"][2]["points"][-1]["value"] == row["size_bytes"]
    assert "<svg" in await console.page("/topics/shown?span=24h")
