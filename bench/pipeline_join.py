"""The join of the pipeline's benchmark: events joined with a table, replayed into SQLite, for :mod:`pipeline_worker`.

The peer is the program that a user of Spark's connector would write: a stream of events, joined with the newest record
of each key of the other topic as a static frame, and ``foreachBatch``, which upserts the joined rows by SQLAlchemy. If
the table changes later, the peer's rows stay as they are. Ours is a Kappa view, whose rows follow the table: so ours
also keeps both sides of the join.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline_views
from pipeline_views import Answer, timed

if TYPE_CHECKING:
    from pipeline_worker import Worker

PAYMENT = "number BIGINT, user BIGINT, amount BIGINT"
USER = "id BIGINT, name STRING, country STRING"
QUERY = "SELECT p.number, p.amount, u.name, u.country FROM payments p JOIN users u ON p.user = u.id"


def join(worker: Worker, address: str, number: int) -> Answer:
    do = _ours if worker.side == "headrace" else _theirs
    return do(worker, address, worker.folder / f"{worker.side}-join-{number}")


def _theirs(worker: Worker, address: str, folder: Path) -> Answer:
    from sqlalchemy import BigInteger, Column, MetaData, Table, Text, create_engine

    engine = create_engine(f"sqlite:///{folder.with_suffix('.db')}")
    metadata = MetaData()
    numbers = Column("number", BigInteger, primary_key=True), Column("amount", BigInteger)
    table = Table("joined", metadata, *numbers, Column("name", Text), Column("country", Text))
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    metadata.create_all(engine)
    with timed() as took, tempfile.TemporaryDirectory(dir=worker.folder) as checkpoint:
        read = worker.spark.read.format(worker.format).options(**{"kafka.bootstrap.servers": address})
        read.option("subscribe", "users").load().createOrReplaceTempView("user_records")
        values = worker.spark.sql("SELECT max_by(value, offset) AS value FROM user_records GROUP BY key")
        users = values.selectExpr(f"from_json(string(value), '{USER}') AS row").select("row.*")
        users.createOrReplaceTempView("users")
        stream = worker.stream_of(address, "payments")
        payments = stream.selectExpr(f"from_json(string(value), '{PAYMENT}') AS row").select("row.*")
        payments.createOrReplaceTempView("payments")
        upsert = pipeline_views.upsert(engine, table, "number")
        writer = worker.spark.sql(QUERY).writeStream.outputMode("append").foreachBatch(upsert)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    with engine.connect() as connection:
        rows, total = connection.exec_driver_sql("SELECT count(*), sum(amount) FROM joined").one()
    engine.dispose()
    return {**took, "records": rows, "total": total}


def _ours(worker: Worker, address: str, folder: Path) -> Answer:
    from headrace.pipeline.touched.view import TouchedVersion

    (folder / "sources").mkdir(parents=True)
    for name, kind, schema in (("payments", "events", PAYMENT), ("users", "table", USER)):
        text = f'kind = "{kind}"\ntopics = ["{name}"]\n[decode]\nschema = "{schema}"\n'
        (folder / "sources" / f"{name}.toml").write_text(text)
    context = pipeline_views.project(worker, folder, address, 'architecture = "kappa"', QUERY)
    with timed() as took:
        view = TouchedVersion(context, pipeline_views.version(context))
        view.run_once()
    with context.database.read() as connection:
        select = f"SELECT count(*), sum(amount) FROM ({view.select_sql(connection)})"
        rows, total = connection.exec_driver_sql(select).one()
    context.database.close()
    return {**took, "records": rows, "total": total}
