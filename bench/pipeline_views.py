"""The views of the pipeline's benchmark, for :mod:`pipeline_worker`: with a project of ours, and without one.

The peer is the program that a user of Spark's connector would write: a stream, an aggregate, and ``foreachBatch``,
which upserts the changed rows by SQLAlchemy in one transaction into SQLite in WAL mode. Ours are a Kappa view (replay)
and a Lambda view (follow), as ``headrace views run`` runs them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_worker import Worker
    from pyspark.sql import DataFrame
    from sqlalchemy import Engine, Table

    from headrace.pipeline.serving.catalog import Version
    from headrace.pipeline.version.context import RunContext
    from headrace.pipeline.version.running_version import RunningVersion

COUNTED = "SELECT string({key}) AS page, count(*) AS hits FROM events GROUP BY 1"
LATEST = "SELECT page, count(*) AS hits, max(number) AS latest FROM events GROUP BY page"
EVENT = "page STRING, number BIGINT"
_MOST_SECONDS = 120

Answer = dict[str, Any]


@contextmanager
def timed() -> Iterator[Answer]:
    took: Answer = {}
    started = time.perf_counter()
    yield took
    took["seconds"] = time.perf_counter() - started


@dataclass
class Following:
    """A view that runs: where it is kept, and what tells the highest number in it."""

    database: Path
    query: str
    stop: Callable[[], None]


def replay(worker: Worker, address: str, topic: str, number: int) -> Answer:
    do = _replay_ours if worker.side == "headrace" else _replay_theirs
    return do(worker, address, topic, worker.folder / f"{worker.side}-replay-{number}")


def follow(worker: Worker, address: str, topic: str) -> Following:
    do = _follow_ours if worker.side == "headrace" else _follow_theirs
    return do(worker, address, topic, worker.folder / f"{worker.side}-follow")


# -------------------------------------------------------------------------------------------------------------- theirs


def _replay_theirs(worker: Worker, address: str, topic: str, folder: Path) -> Answer:
    engine, table = _table(folder.with_suffix(".db"))
    with timed() as took, tempfile.TemporaryDirectory(dir=worker.folder) as checkpoint:
        counted = _query(worker, worker.stream_of(address, topic), COUNTED.format(key="key"))
        writer = counted.writeStream.outputMode("update").foreachBatch(upsert(engine, table))
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
    with engine.connect() as connection:
        keys, records = connection.exec_driver_sql("SELECT count(*), sum(hits) FROM counted").one()
    engine.dispose()
    return {**took, "keys": keys, "records": records}


def _follow_theirs(worker: Worker, address: str, topic: str, folder: Path) -> Following:
    path = folder.with_suffix(".db")
    engine, table = _table(path)
    decoded = worker.stream_of(address, topic).selectExpr(f"from_json(string(value), '{EVENT}') AS event")
    latest = _query(worker, decoded.select("event.*"), LATEST)
    writer = latest.writeStream.outputMode("update").foreachBatch(upsert(engine, table))
    query = writer.option("checkpointLocation", str(folder)).trigger(processingTime="0 seconds").start()

    def stop() -> None:
        query.stop()
        engine.dispose()

    return Following(path, "SELECT max(latest) FROM counted", stop)


def _query(worker: Worker, events: DataFrame, sql: str) -> DataFrame:
    events.createOrReplaceTempView("events")
    return worker.spark.sql(sql)


def _table(path: Path) -> tuple[Engine, Table]:
    from sqlalchemy import BigInteger, Column, MetaData, Table, Text, create_engine

    engine = create_engine(f"sqlite:///{path}")
    metadata = MetaData()
    columns = (Column("page", Text, primary_key=True), Column("hits", BigInteger), Column("latest", BigInteger))
    table = Table("counted", metadata, *columns)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    metadata.create_all(engine)
    return engine, table


def upsert(engine: Engine, table: Table, key: str = "page") -> Callable[[DataFrame, int], None]:
    """Writes the rows of a micro-batch, and replaces rows with the same key."""
    from sqlalchemy.dialects.sqlite import insert

    def write(batch: DataFrame, _number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        statement = insert(table)
        if rows:
            changes = {name: statement.excluded[name] for name in rows[0] if name != key}
            with engine.begin() as connection:
                connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=changes), rows)

    return write


# ---------------------------------------------------------------------------------------------------------------- ours


def _replay_ours(worker: Worker, address: str, topic: str, folder: Path) -> Answer:
    from headrace.pipeline.kappa.view import KappaView

    settings = f'topics = ["{topic}"]\narchitecture = "kappa"\ndecode = {{ format = "raw" }}'
    context = project(worker, folder, address, settings, COUNTED.format(key="_key"))
    with timed() as took:
        view = KappaView(context, version(context))
        view.run_once()
    with context.database.read() as connection:
        select = f"SELECT count(*), sum(hits) FROM ({view.select_sql(connection)})"
        keys, records = connection.exec_driver_sql(select).one()
    context.database.close()
    return {**took, "keys": keys, "records": records}


def _follow_ours(worker: Worker, address: str, topic: str, folder: Path) -> Following:
    from headrace.pipeline.lambda_.view import LambdaView
    from headrace.pipeline.serving.catalog_tables.version_states import VersionEvent

    decode = f'decode = {{ format = "json", schema = "{EVENT}" }}'
    settings = f'topics = ["{topic}"]\narchitecture = "lambda"\n{decode}'
    context = project(worker, folder, address, settings, LATEST)
    made = version(context)
    view = LambdaView(context, made)
    view.start()
    _until(view, view.has_caught_up)
    with context.database.begin() as connection:
        context.catalog.set_state(made.view, made.version, VersionEvent.CAUGHT_UP, connection=connection)
        context.catalog.switch(connection, made.view, made.version, view.select_sql(connection))

    def stop() -> None:
        view.stop()
        context.database.close()

    return Following(folder / "views.db", f"SELECT max(latest) FROM {made.view}", stop)


def project(worker: Worker, folder: Path, address: str, settings: str, query: str) -> RunContext:
    """A project with one view."""
    from headrace.pipeline.project.loading import read_project
    from headrace.pipeline.serving.catalog import Catalog
    from headrace.pipeline.serving.database import Database
    from headrace.pipeline.version.context import RunContext
    from headrace.pipeline.version.metrics import PipelineMetrics
    from headrace.runtime.clock import SystemClock

    (folder / "views").mkdir(parents=True)
    (folder / "headrace.toml").write_text(
        f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "sqlite:///views.db"\n',
    )
    (folder / "views" / "pages.toml").write_text(f'query = "pages.sql"\n{settings}\n')
    (folder / "views" / "pages.sql").write_text(query)
    made = read_project(folder).project
    database = Database(made.serving_url)
    return RunContext(
        spark=worker.spark,
        project=made,
        database=database,
        catalog=Catalog(database),
        clock=SystemClock(),
        checkpoints=str(folder / "checkpoints"),
        metrics=PipelineMetrics(),
    )


def version(context: RunContext) -> Version:
    """The first version of the view."""
    (definition,) = context.project.views.values()
    context.catalog.create_view(definition.name, definition.architecture, definition.definition_hash)
    return context.catalog.add_version(definition.name, definition.as_dict(), definition.definition_hash)


def _until(view: RunningVersion, is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + _MOST_SECONDS
    while not is_so():
        if (failure := view.failure()) is not None:
            raise failure
        assert time.monotonic() < give_up_s, f"{view.lag()} after {_MOST_SECONDS} s"
        time.sleep(0.01)
