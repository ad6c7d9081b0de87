"""A driver of :mod:`large_views`: replays topics into PostgreSQL by the executors of a Spark cluster.

    python large_views_driver.py SETTINGS       a JSON object; one line of JSON per topic is printed

Each topic has every key twice, and a micro-batch reads half of it. So the first micro-batch inserts a row per key, and
the second one changes each of these rows.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from headrace.pipeline.kappa import stream
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.pipeline.spark.session import java_of, open_session
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT string(_key) AS customer, count(*) AS hits, max(_timestamp) AS latest FROM events GROUP BY 1"
PROJECT = """\
[log]
bootstrap = "{bootstrap}"
[serving]
url = "{url}"
executors_from = {executors_from}
[spark]
master = "{master}"
memory = "3g"
[spark.conf]
"spark.executor.memory" = "3g"
"spark.executor.cores" = "1"
"spark.sql.shuffle.partitions" = "4"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.driver.host" = "127.0.0.1"
"spark.pyspark.python" = "{python}"
"spark.executorEnv.PYTHONPATH" = "{packages}"
"""
VIEW = 'topics = ["{topic}"]\nquery = "customers.sql"\narchitecture = "kappa"\ndecode = {{ format = "raw" }}\n'
_SAMPLE_EVERY_S = 0.02


class Seconds(PipelineMetrics):
    """Keeps how long each micro-batch took."""

    def __init__(self) -> None:
        super().__init__()
        self.took: list[float] = []

    def micro_batch(self, *names: Any, seconds: float, **counts: Any) -> None:
        self.took.append(seconds)
        super().micro_batch(*names, seconds=seconds, **counts)


class Memory:
    """The resident memory of this process and of its Java process, now and at its peak."""

    def __init__(self, spark: SparkSession) -> None:
        java = java_of(spark)
        assert java is not None
        self._processes = (os.getpid(), java.pid)

    def now_mb(self) -> tuple[float, float]:
        return tuple(self._read(process) for process in self._processes)  # type: ignore[return-value]

    @staticmethod
    def _read(process: int) -> float:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmRSS"))

    @contextmanager
    def watched(self) -> Iterator[list[float]]:
        """Yields a list, which has the growth of both at their peaks when the context ends."""
        before, peak, ends = self.now_mb(), [0.0, 0.0], threading.Event()

        def look() -> None:
            while not ends.wait(_SAMPLE_EVERY_S):
                peak[:] = map(max, peak, self.now_mb())

        growth: list[float] = []
        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield growth
        finally:
            ends.set()
            thread.join()
        growth += [most - first for most, first in zip(peak, before, strict=True)]


def replay(spark: SparkSession, memory: Memory, settings: dict[str, Any], topic: str, groups: int) -> dict[str, Any]:
    folder = Path(settings["folder"], topic)
    write_project(folder, settings, topic)
    project = read_project(folder).project
    database = Database(project.serving_url)
    metrics = Seconds()
    context = RunContext(
        spark, project, database, Catalog(database), SystemClock(), str(folder / "checkpoints"), metrics
    )
    (definition,) = project.views.values()
    context.catalog.create_view(definition.name, definition.architecture, definition.definition_hash)
    version = context.catalog.add_version(definition.name, definition.as_dict(), definition.definition_hash)
    view = KappaView(context, version)
    stream._MAX_GROUPED_RECORDS = groups
    began_s = time.perf_counter()
    with memory.watched() as growth:
        view.run_once()
    seconds = time.perf_counter() - began_s
    with database.read() as connection:
        found = connection.exec_driver_sql(f"SELECT count(*), sum(hits), max(hits) FROM {version.table_name}").one()
    assert tuple(found) == (groups, 2 * groups, 2), found
    view.drop()
    with database.begin() as connection:
        for table in ("headrace_views", "headrace_versions", "headrace_progress"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    database.close()
    new, changed = metrics.took
    return {
        "groups": groups, "new": new, "changed": changed, "all": seconds, "python_mb": growth[0], "java_mb": growth[1],
    }  # fmt: skip


def write_project(folder: Path, settings: dict[str, Any], topic: str) -> None:
    (folder / "views").mkdir(parents=True)
    packages = Path(__file__).parents[1] / "src"
    (folder / "headrace.toml").write_text(PROJECT.format(**settings, python=sys.executable, packages=packages))
    (folder / "views" / "customers.toml").write_text(VIEW.format(topic=topic))
    (folder / "views" / "customers.sql").write_text(QUERY)


def main() -> None:
    settings = json.loads(sys.argv[1])
    folder = Path(settings["folder"], "session")
    write_project(folder, settings, next(iter(settings["topics"])))
    spark = open_session(read_project(folder).project)
    memory = Memory(spark)
    for topic, groups in settings["topics"].items():
        done = replay(spark, memory, settings, topic, groups)
        if groups != settings["warm"]:
            print("answer", json.dumps(done), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
