"""Measures the micro-batches of views that are kept by touched keys, and how their time grows with the master data.

    .venv/bin/python bench/touched.py [--events 5000000 50000000] [--rounds 40] [--quick]

For each number of events: a topic with that many events, and a Kappa view that counts distinct items and takes the
median per user (50 events per user). After all views are built, they take turns with micro-batches of 200 events by
random users. The time of a micro-batch is from the first look at the log to the commit, in this process. There is no
peer: Spark has no such view.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import loads
import numpy as np
import pyarrow as pa
import servers
from json_values import json_objects

from headrace import Producer

PER_USER = 50
BATCH = 200
QUERY = "SELECT user, count(DISTINCT item) AS items, percentile(ms, 0.5) AS half FROM events GROUP BY user"
SCHEMA = "user BIGINT, item BIGINT, ms BIGINT"


def events(count: int, users: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    highest = {"user": users, "item": 1_000, "ms": 10_000}
    columns = {name: random.integers(0, high, count) for name, high in highest.items()}
    return pa.table({"key": pa.nulls(count, pa.binary()), "value": json_objects(columns)})


def portions(count: int) -> Iterator[int]:
    return (min(250_000, count - first) for first in range(0, count, 250_000))


class View:
    """A view over a topic that has been built, and follows the topic.

    :ivar built_s: the seconds of the build.
    """

    def __init__(self, address: str, folder: Path, topic: str, count: int) -> None:
        from headrace.pipeline.project.loading import read_project
        from headrace.pipeline.serving.catalog import Catalog
        from headrace.pipeline.serving.database import Database
        from headrace.pipeline.spark.session import open_session
        from headrace.pipeline.touched.view import TouchedVersion
        from headrace.pipeline.version.context import RunContext
        from headrace.pipeline.version.metrics import PipelineMetrics
        from headrace.runtime.clock import SystemClock

        self._topic, self._users = topic, max(1, count // PER_USER)
        self._producer = Producer(bootstrap_servers=address)
        (folder / "views").mkdir(parents=True)
        settings = f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "sqlite:///views.db"\n'
        (folder / "headrace.toml").write_text(settings)
        view = f'topics = ["{topic}"]\nquery = "users.sql"\narchitecture = "kappa"\nmaintain = "touched"\n'
        (folder / "views" / "users.toml").write_text(
            f'{view}[decode]\nformat = "json"\nschema = "{SCHEMA}"\n[kappa]\ncaught_up_within = 0\n'
        )
        (folder / "views" / "users.sql").write_text(QUERY)
        project = read_project(folder).project
        self._database = Database(project.serving_url)
        catalog = Catalog(self._database)
        context = RunContext(
            open_session(project), project, self._database, catalog, SystemClock(), str(folder / "c"), PipelineMetrics()
        )
        (definition,) = project.views.values()
        catalog.create_view(definition.name, definition.architecture, definition.definition_hash)
        values = {**definition.as_dict(), "way": "touched"}
        self._version = TouchedVersion(
            context, catalog.add_version(definition.name, values, definition.definition_hash)
        )
        self._counts = context.metrics.of(*self._version.version.key)
        began = time.perf_counter()
        self._version.start()
        self._wait_until(self._version.has_caught_up)
        self.built_s = time.perf_counter() - began

    def micro_batch_s(self, seed: int) -> float:
        """Produces events, and returns the seconds of the micro-batch that reads them."""
        before = self._counts.micro_batches
        self._producer.send_arrow(self._topic, events(BATCH, self._users, seed)).result()
        self._wait_until(lambda: self._counts.micro_batches > before)
        return self._counts.last_micro_batch_seconds

    def close(self) -> None:
        self._version.stop()
        self._producer.close()
        self._database.close()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            if (failure := self._version.failure()) is not None:
                raise failure
            time.sleep(0.005)


def fill(server: servers.Server, topic: str, count: int) -> None:
    loads.create_topic(server, topic)
    with Producer(bootstrap_servers=server.address) as producer:
        for seed, portion in enumerate(portions(count)):
            producer.send_arrow(topic, events(portion, max(1, count // PER_USER), seed)).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[5_000_000])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="50,000 and 500,000 events, to try the script")
    options = parser.parse_args()
    counts = (50_000, 500_000) if options.quick else options.events
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = stack.enter_context(servers.headrace(folder / "data"))
        views: dict[int, View] = {}
        for count in counts:
            fill(server, f"events-{count}", count)
            views[count] = View(server.address, folder / f"{count}", f"events-{count}", count)
            stack.callback(views[count].close)
            print(f"{count:>11,} events: build {views[count].built_s:.1f} s", flush=True)
        took: dict[int, list[float]] = {count: [] for count in counts}
        for number in range(options.rounds):
            for count, view in views.items():
                took[count].append(view.micro_batch_s(1_000 + number))
        for count, seconds in took.items():
            warm = sorted(seconds[len(seconds) // 4 :])
            p50, p90 = statistics.median(warm), warm[len(warm) * 9 // 10]
            print(f"{count:>11,} events: micro-batch of {BATCH} p50 {p50 * 1000:.0f} ms, p90 {p90 * 1000:.0f} ms")


if __name__ == "__main__":
    main()
