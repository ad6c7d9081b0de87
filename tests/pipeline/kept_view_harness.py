"""A view over a log that is written record by record, kept up to date in the way that was chosen for its query.

Each example of a test has topics, a view and an archive of its own. What the view must show is Spark's batch answer
over the records up to the offsets that the view names. Both pass through the same columns of the serving database, so
that they can be compared as readers see them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from query_grammar import KINDS, SCHEMAS, Query, Record

from headrace import Admin, Producer
from headrace.pipeline.lambda_.view import LambdaView
from headrace.pipeline.maintenance.choice import choose
from headrace.pipeline.maintenance.versions import create_version
from headrace.pipeline.maintenance.ways import Way
from headrace.pipeline.progress.offsets import is_before
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import LambdaSettings, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.catalog import Catalog, Offsets, Progress, VersionEvent, VersionState
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, data_table, drop_table, quoted
from headrace.pipeline.spark.source.data_source import spark_schema
from headrace.pipeline.touched import view as touched_view
from headrace.pipeline.touched.store import TouchedStore
from headrace.pipeline.touched.view import TouchedVersion
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock

PARTITIONS = 2
#: So few that a micro-batch may end within the records that were written together.
_RECORDS_PER_STEP = 7
_numbers = count()
Row = tuple[object, ...]


class Crash(BaseException):
    """The process dies here."""


class KeptView:
    """:param table_kind: ``table`` or ``changes``, for customers."""

    def __init__(
        self, spark, bootstrap: str, database: Database, folder: Path, query: Query, architecture: str, table_kind: str
    ) -> None:
        self._prefix = f"kept{next(_numbers)}"
        self._bootstrap, self._table_kind = bootstrap, table_kind
        self._records: list[Row] = []
        own = folder / self._prefix
        project = Project(own, bootstrap, "sqlite://", str(own / "archive"), "local[2]")
        self._context = RunContext(
            spark, project, database, Catalog(database), SystemClock(), str(own / "checkpoints"), PipelineMetrics()
        )
        with Admin(bootstrap_servers=bootstrap) as admin:
            for name in query.tables:
                admin.create_topic(self._topic(name), num_partitions=PARTITIONS)
        self.definition = self._definition(query, architecture)
        self.way = choose(spark, self.definition).way
        catalog = self._context.catalog
        catalog.create_view(self._prefix, architecture, self.definition.definition_hash)
        values = json.loads(json.dumps(self.definition.as_dict() | {"way": self.way}))
        self.version = catalog.add_version(self._prefix, values, self.definition.definition_hash)
        self._producer = Producer(bootstrap_servers=bootstrap)
        self._open: TouchedVersion | None = None

    def _topic(self, source: str) -> str:
        return f"{self._prefix}-{source}"

    def _definition(self, query: Query, architecture: str) -> ViewDefinition:
        """As ``project.resolution`` makes it."""
        text, lambda_ = FileText("views/made.sql", query.sql), LambdaSettings(0, 1)
        sources = tuple(self._source(name) for name in sorted(query.tables))
        if len(sources) == 1 and not sources[0].is_table:
            (own,) = sources
            return ViewDefinition(
                self._prefix, own.topics, "", architecture, text, own.decode, dead_letters=own.dead_letters,
                source_name=own.name, lambda_=lambda_,
            )  # fmt: skip
        return ViewDefinition(self._prefix, (), "", architecture, text, Decode(), sources=sources, lambda_=lambda_)

    def _source(self, name: str) -> SourceDefinition:
        kind = self._table_kind if KINDS[name] == "table" else KINDS[name]
        decode = Decode("json", SCHEMAS[name], envelope="debezium" if kind == "changes" else "")
        return SourceDefinition(name, kind, (self._topic(name),), "", decode, dead_letters=f"{self._topic(name)}.dead")

    def close(self) -> None:
        self._stop()
        self._producer.close()
        create_version(self._context, self.version).drop()
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            for topic in {source.topics[0] for source in self.definition.inputs}:
                admin.delete_topic(topic)

    # ------------------------------------------------------------------------------------------------------- the log

    def write(self, records: list[Record]) -> None:
        for record in records:
            for value in self._values(record):
                self._write(record, value)
        self._producer.flush()

    def _values(self, record: Record) -> list[bytes | None]:
        """What is written for a record. A row that is removed from a database is followed by a tombstone."""
        if isinstance(record.value, str):
            return [record.value.encode()]
        if KINDS[record.source] != "table":
            return [json.dumps(record.value).encode()]
        row = None if record.value is None else {"customer": record.key, **record.value}
        if self._table_kind == "table":
            return [None if row is None else json.dumps(row).encode()]
        if row is not None:
            return [json.dumps({"op": "u", "before": None, "after": row}).encode()]
        if record.key is None:
            return [b'{"op":"t","before":null,"after":null}']
        return [json.dumps({"op": "d", "before": {"customer": record.key}, "after": None}).encode(), None]

    def _write(self, record: Record, value: bytes | None) -> None:
        topic, key = self._topic(record.source), None if record.key is None else str(record.key).encode()
        offset = sum(row[2:4] == (topic, record.partition) for row in self._records)
        at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
        self._records.append((key, value, topic, record.partition, offset, at, 0))
        self._producer.send(topic, value, key=key, partition=record.partition, timestamp_ms=record.timestamp_ms)

    # -------------------------------------------------------------------------------------------------- what happens

    def happens(self, step: str) -> None:
        """One of ``query_grammar.STEPS``."""
        if self.way is not Way.TOUCHED:
            self._run(is_batch="batch" in step)
            return
        if step == "restart":
            self._stop()
        version = self._touched()
        if version._last_build() is None:
            version._run_build(is_full=True)
        elif step.startswith("crash"):
            self._crashes(is_committed=step == "crash after")
        elif step.startswith("batch"):
            with self._meanwhile() if step == "batch meanwhile" else nullcontext():
                version._run_build(is_full=True)
        else:
            self._step()

    def finishes(self) -> None:
        """Reads the log to its end."""
        if self.way is not Way.TOUCHED:
            self._run(is_batch=True)
            return
        version = self._touched()
        if version._last_build() is None:
            version._run_build(is_full=True)
        while not is_before(version._opened.data.log_ends(), version._opened.steps.progress().offsets):
            self._step()

    def _step(self) -> None:
        with patch.object(touched_view, "MAX_RECORDS", _RECORDS_PER_STEP):
            self._touched()._opened.steps.step()

    def _crashes(self, *, is_committed: bool) -> None:
        commit = TouchedStore.commit_step

        def crash(store: TouchedStore, *given: object) -> None:
            if is_committed:
                commit(store, *given)  # type: ignore[arg-type]
            raise Crash

        with patch.object(TouchedStore, "commit_step", crash):
            try:
                self._step()
            except Crash:
                self._stop()

    @contextmanager
    def _meanwhile(self) -> Iterator[None]:
        """Within, a build is overtaken by a micro-batch."""
        builder = self._touched()._opened.maintainer._builder
        load: Callable[..., object] = builder.load

        def load_and_step(*given: object) -> object:
            counts = load(*given)
            self._step()
            return counts

        with patch.object(builder, "load", load_and_step):
            yield

    def _touched(self) -> TouchedVersion:
        if self._open is None:
            self._open = TouchedVersion(self._context, self._started())
            self._open._open()
        return self._open

    def _stop(self) -> None:
        if self._open is not None:
            self._open._close()
            self._open = None

    def _started(self):
        """The version as the runner starts it, for the first time or again."""
        catalog, key = self._context.catalog, self.version.key
        if catalog.version(*key).state is not VersionState.STARTING:
            catalog.set_state(*key, VersionEvent.STOPPED)
            catalog.set_state(*key, VersionEvent.RESTARTED)
        return catalog.version(*key)

    def _run(self, *, is_batch: bool) -> None:
        """Runs a version of another way once. A Lambda view may do so without a batch."""
        running = create_version(self._context, self._started())
        if is_batch or not isinstance(running, LambdaView):
            running.run_once()
            return
        running._open()
        try:
            if running._opened.store.progress() is None:
                assert running._begins_without_batch()
            running._opened.speed.step()
        finally:
            running._close()

    # ---------------------------------------------------------------------------------------------------- the answer

    def check(self) -> None:
        """Checks that a reader sees Spark's batch answer at the offsets that the view names."""
        with self._context.database.read() as connection:
            progress = self._context.catalog.progress(connection, *self.version.key)
            sql = self._context.catalog.version(*self.version.key, connection).select_sql
            if progress is None:  # no version has begun
                return
            assert sql is not None
            seen = _bag(connection.exec_driver_sql(sql.replace("%", "%%")).fetchall())
        expected, bad = self._expected(progress.offsets)
        assert seen == expected, _difference(self, progress, seen, expected)
        assert progress.dead_letters == bad, f"{progress.dead_letters} dead letters, not {bad}: {self.definition}"

    def _expected(self, offsets: Offsets) -> tuple[Counter[Row], int]:
        """The rows, and how many records do not decode."""
        within = [row for row in self._records if row[4] < offsets.get(row[2], {}).get(row[3], 0)]
        spark = self._context.spark
        raw = spark.createDataFrame(within, spark_schema(include_headers=False))
        answer = build(spark, self.definition, raw).toArrow()
        return self._stored(answer), sum(self._is_bad(row) for row in within)

    def _is_bad(self, row: Row) -> bool:
        key, value, topic = row[:3]
        has_no_key = topic == self._topic("customers") and key is None and self._table_kind == "table"
        return value == b"{" or has_no_key

    def _stored(self, answer: pa.Table) -> Counter[Row]:
        """The rows as the database returns them."""
        schema = pa.schema([pa.field(field.name, field.type) for field in answer.schema])
        database, table = self._context.database, data_table(f"expected_{self._prefix}", schema, ())
        keys = pa.array([str(at) for at in range(answer.num_rows)], pa.string())
        names = ", ".join(map(quoted, schema.names))
        with database.begin() as connection:
            create_table(connection, table)
            database.upsert(connection, table, answer.cast(schema).append_column("_key", keys))
            rows = connection.exec_driver_sql(f"SELECT {names} FROM {quoted(table.name)}").fetchall()
            drop_table(connection, table.name)
        return _bag(rows)


def _bag(rows) -> Counter[Row]:
    return Counter(tuple(repr(value) for value in row) for row in rows)


def _difference(view: KeptView, progress: Progress, seen: Counter[Row], expected: Counter[Row]) -> str:
    return (
        f"{view.definition.architecture}, {view.way}: {view.definition.query.text}\n"
        f"at {progress.offsets}\nmissing: {dict(expected - seen)}\ntoo many: {dict(seen - expected)}\n"
        f"records: {view._records}"
    )
