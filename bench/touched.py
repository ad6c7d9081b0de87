"""How long a micro-batch takes in a view that is maintained by touched keys, and how that grows with the master data.

    .venv/bin/python bench/touched.py [--events 5000000 50000000] [--rounds 40] [--quick]

For each number of events: a topic with that many events, a Kappa view that counts distinct items and takes the median
per user (50 events per user), its first build, and then micro-batches of 200 events by random users. The time of a
micro-batch is from the first look at the log to the commit, in this process. There is no peer: Spark has no such view.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
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


def measure(address: str, folder: Path, topic: str, count: int, rounds: int) -> tuple[float, list[float]]:
    """The seconds of the build, and of each micro-batch."""
    from headrace.pipeline.project.loading import read_project
    from headrace.pipeline.serving.catalog import Catalog
    from headrace.pipeline.serving.database import Database
    from headrace.pipeline.spark.session import open_session
    from headrace.pipeline.touched.view import TouchedVersion
    from headrace.pipeline.version.context import RunContext
    from headrace.pipeline.version.metrics import PipelineMetrics
    from headrace.runtime.clock import SystemClock

    (folder / "views").mkdir(parents=True)
    (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "sqlite:///views.db"\n')
    view = f'topics = ["{topic}"]\nquery = "users.sql"\narchitecture = "kappa"\nmaintain = "touched"\n'
    (folder / "views" / "users.toml").write_text(
        f'{view}[decode]\nformat = "json"\nschema = "{SCHEMA}"\n[kappa]\ncaught_up_within = 0\n'
    )
    (folder / "views" / "users.sql").write_text(QUERY)
    project = read_project(folder).project
    database = Database(project.serving_url)
    catalog = Catalog(database)
    context = RunContext(
        open_session(project), project, database, catalog, SystemClock(), str(folder / "c"), PipelineMetrics()
    )
    (definition,) = project.views.values()
    catalog.create_view(definition.name, definition.architecture, definition.definition_hash)
    values = {**definition.as_dict(), "way": "touched"}
    version = TouchedVersion(context, catalog.add_version(definition.name, values, definition.definition_hash))
    began = time.perf_counter()
    version.start()
    _until(version, version.has_caught_up)
    built = time.perf_counter() - began
    counts = context.metrics.of(*version.version.key)
    took = []
    with Producer(bootstrap_servers=address) as producer:
        for number in range(rounds):
            before = counts.micro_batches
            producer.send_arrow(topic, events(BATCH, max(1, count // PER_USER), 1_000 + number)).result()
            _until(version, lambda before=before: counts.micro_batches > before)
            took.append(counts.last_micro_batch_seconds)
    version.stop()
    database.close()
    context.spark.stop()
    return built, took


def _until(version: object, is_so: object) -> None:
    assert callable(is_so)
    while not is_so():
        failure = version.failure()  # type: ignore[attr-defined]
        if failure is not None:
            raise failure
        time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[5_000_000])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="50,000 and 500,000 events, to try the script")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with servers.headrace(folder / "data") as server:
            for count in (50_000, 500_000) if options.quick else options.events:
                topic = f"events-{count}"
                loads.create_topic(server, topic)
                with Producer(bootstrap_servers=server.address) as producer:
                    for seed, portion in enumerate(portions(count)):
                        producer.send_arrow(topic, events(portion, max(1, count // PER_USER), seed)).result()
                built, took = measure(server.address, folder / topic, topic, count, options.rounds)
                warm = sorted(took[len(took) // 4 :])
                p90 = warm[len(warm) * 9 // 10]
                print(
                    f"{count:>11,} events: build {built:.1f} s, micro-batch of {BATCH} events p50 "
                    f"{statistics.median(warm) * 1000:.0f} ms, p90 {p90 * 1000:.0f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
