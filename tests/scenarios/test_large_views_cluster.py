"""Large views on a real Spark cluster: executors on both workers copy the rows to PostgreSQL, and the driver commits.

The test stops a task that has copied its rows and not yet committed them, by an open transaction that has already
added the task's row to the list of parts. Then it kills all executors, or a whole worker, and lets the task go on.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from clicks_truth import PARTITIONS, make_topic
from lasting_server import Server
from psycopg import sql
from views_process import KAPPA, LAMBDA, TOPIC, ViewsProject, wait_until

from headrace import Producer
from headrace.testing.spark_cluster import SparkCluster

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("views-1")]
GROUPS = 30_000
#: Each third group has a second click.
CLICKS = GROUPS + GROUPS // 3
_SHUFFLES = 4
_PATIENCE_S = 120.0
#: Fewer bytes than any row of these views has. The results of tasks are smaller, as they have no rows.
_ROW_BYTES = 8


@pytest.fixture
def cluster(tmp_path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def broker(tmp_path) -> Iterator[Server]:
    server = Server(tmp_path / "broker")
    make_topic(server.address)
    with Producer(bootstrap_servers=server.address) as producer:
        for partition in range(PARTITIONS):
            values = [_click(number) for number in range(partition, CLICKS, PARTITIONS)]
            producer.send_arrow(TOPIC, pa.table({"value": pa.array(values, pa.binary())}), partition=partition)
    yield server
    server.close()


@pytest.fixture
def project(tmp_path, broker, cluster, mortal_postgresql) -> Iterator[ViewsProject]:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.task.maxFailures": "8",
        "spark.sql.shuffle.partitions": str(_SHUFFLES), "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
    }  # fmt: skip
    made = ViewsProject(
        tmp_path / "project", broker.address, url=mortal_postgresql.url, master=cluster.url, conf=conf,
        batch_every="1 hour",
    )  # fmt: skip
    settings = made.folder / "headrace.toml"
    settings.write_text(settings.read_text().replace("[serving]\n", "[serving]\nexecutors_from = 1000\n"))
    view = made.folder / "views" / f"{KAPPA}.toml"
    view.write_text(f'maintain = "stream"\n{view.read_text()}')
    yield made
    made.close()


def _click(number: int) -> bytes:
    group = number % GROUPS
    return b'{"visitor":"v%d","page":"p%d","ms":%d}' % (group, group, number)


def _answer(letter: str) -> dict[str, tuple[int, int, int]]:
    """What either view must say, by key: clicks, total_ms, slowest."""
    again = {group: group + GROUPS for group in range(CLICKS - GROUPS)}
    return {
        f"{letter}{group}": (2, group + again[group], again[group]) if group in again else (1, group, group)
        for group in range(GROUPS)
    }


@contextmanager
def _held_task(database: psycopg.Connection, seen: set[str]) -> Iterator[str]:
    """Waits until the first task of another stage has copied its rows, and holds it before its commit.

    The name of the stage's list of parts is returned.
    """

    def next_stage() -> str | None:
        listed = "SELECT relname FROM pg_class WHERE relname LIKE 'headrace_stage_%_parts' AND relkind = 'r' ORDER BY 1"
        return next((name for (name,) in database.execute(listed) if name not in seen), None)

    wait_until(lambda: next_stage() is not None, lambda: "no task copies rows", _PATIENCE_S)
    parts = next_stage()
    assert parts is not None
    seen.add(parts)
    with database.transaction(force_rollback=True):
        database.execute(sql.SQL("INSERT INTO {} VALUES (0, 0)").format(sql.Identifier(parts)))
        held = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        wait_until(lambda: _one(database, held) > 0, lambda: f"no task waits for {parts}", _PATIENCE_S)
        yield parts


def _one(database: psycopg.Connection, query: str) -> int:
    row = database.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _result_bytes(folder: Path) -> int:
    """How many bytes the tasks that copied rows to PostgreSQL have sent to the driver, by Spark's event log."""
    copying: set[tuple[str, int]] = set()
    total = 0
    for program, event in _events(folder):
        if event["Event"] == "SparkListenerStageSubmitted" and "MapInArrow" in json.dumps(event["Stage Info"]):
            copying.add((program, event["Stage Info"]["Stage ID"]))
        elif event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
            total += event["Task Metrics"]["Result Size"] if (program, event["Stage ID"]) in copying else 0
    return total


def _events(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of each driver."""
    for log in sorted(folder.rglob("events_*")):
        with log.open() as lines:
            yield from ((log.parent.name, json.loads(line)) for line in lines)


def test_executors_of_both_workers_write_and_may_be_killed(project, cluster, mortal_postgresql, tmp_path):
    project.apply()
    project.start("--once")
    seen: set[str] = set()
    with psycopg.connect(mortal_postgresql.url, autocommit=True) as database:
        with _held_task(database, seen) as parts:
            others = f"SELECT count(*) FROM {parts} WHERE part > 0"
            # An executor has one core, and one executor holds its task: so the other worker's executor copies these.
            wait_until(lambda: _one(database, others) > 0, lambda: "only one executor copies rows", _PATIENCE_S)
            for executor in cluster.executors:
                cluster.kill_executor(executor)
        with _held_task(database, seen):
            cluster.kill_worker(0)
            cluster.start_worker()
        assert project.ends() == 0, project.log()
        for view, letter in ((LAMBDA, "p"), (KAPPA, "v")):
            told = {row[0]: tuple(row[1:]) for row in project.ask(view).rows}
            assert told == _answer(letter), view
            assert project.counted(view) == CLICKS
        left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'headrace_stage_%' AND relkind = 'r'"
        assert _one(database, left) == 0, "staging tables are left"
    assert 0 < _result_bytes(tmp_path / "events") < GROUPS * _ROW_BYTES, "rows pass through the driver"
