"""A project with orders, payments and customers in a log, and views over them, for tests of whole versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from headrace import Admin, Producer
from headrace.pipeline.progress.offsets import ranges_between
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import LambdaSettings, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.catalog import Catalog, Offsets, Progress, Version, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock

_numbers = count()
PARTITIONS = 2
KINDS = {"orders": "events", "payments": "events", "customers": "table"}
SCHEMAS = {
    "orders": "id BIGINT NOT NULL, customer BIGINT, item STRING, amount BIGINT, at TIMESTAMP",
    "payments": "order_id BIGINT, paid BIGINT",
    "customers": "customer BIGINT, name STRING, country STRING",
}
Row = tuple[object, ...]


@dataclass
class TouchedHarness:
    context: RunContext
    prefix: str
    producer: Producer
    sources: dict[str, SourceDefinition]
    definition: ViewDefinition = field(init=False)
    version: Version = field(init=False)

    @classmethod
    @contextmanager
    def make(cls, spark, bootstrap: str, database: Database, folder: Path) -> Iterator[TouchedHarness]:
        prefix = f"touched{next(_numbers)}"
        with Admin(bootstrap_servers=bootstrap) as admin:
            for name in KINDS:
                admin.create_topic(f"{prefix}-{name}", num_partitions=PARTITIONS)
        project = Project(folder, bootstrap, "sqlite://", str(folder / "archive"), "local[2]")
        catalog, clock = Catalog(database), SystemClock()
        context = RunContext(spark, project, database, catalog, clock, str(folder / "checkpoints"), PipelineMetrics())
        sources = {
            name: SourceDefinition(name, kind, (f"{prefix}-{name}",), "", Decode("json", SCHEMAS[name]),
                                   dead_letters=f"{prefix}-{name}.dead")
            for name, kind in KINDS.items()
        }  # fmt: skip
        with Producer(bootstrap_servers=bootstrap) as producer:
            yield cls(context, prefix, producer, sources)

    def apply(self, query: str, architecture: str, names: tuple[str, ...], **others: object) -> Version:
        """Adds a version of a view over these sources."""
        name = f"view_{self.prefix}"
        given = {"lambda_": LambdaSettings(0, 1), **others}
        self.definition = ViewDefinition(
            name, (), "", architecture, FileText("view.sql", query), Decode(),
            sources=tuple(self.sources[each] for each in names), **given,
        )  # fmt: skip
        catalog = self.context.catalog
        catalog.create_view(name, architecture, self.definition.definition_hash)
        values = json.loads(json.dumps(self.definition.as_dict()))
        self.version = catalog.add_version(name, values, self.definition.definition_hash)
        return self.version

    # ------------------------------------------------------------------------------------------------------- the log

    def send(self, source: str, *rows: Mapping[str, object] | str | None, key: str | None = None) -> None:
        """Sends rows as JSON; a text as it is; None as a record without a value."""
        for row in rows:
            value = None if row is None else (row if isinstance(row, str) else json.dumps(row)).encode()
            self.producer.send(f"{self.prefix}-{source}", value, key=None if key is None else key.encode())
        self.producer.flush()

    def customer(self, number: int, row: Mapping[str, object] | None) -> None:
        """Sets or removes a row of the table."""
        self.send("customers", None if row is None else {"customer": number, **row}, key=str(number))

    # ------------------------------------------------------------------------------------------------------ the view

    def serve(self) -> None:
        """Makes the version the one that readers see."""
        catalog, key = self.context.catalog, self.version.key
        catalog.set_state(*key, VersionEvent.CAUGHT_UP)
        with self.context.database.begin() as connection:
            select_sql = catalog.version(*key, connection).select_sql
            assert select_sql is not None
            catalog.switch(connection, *key, select_sql)

    def restarted(self) -> Version:
        """The version as the runner starts it again after a stop or a crash."""
        catalog = self.context.catalog
        catalog.set_state(*self.version.key, VersionEvent.STOPPED)
        catalog.set_state(*self.version.key, VersionEvent.RESTARTED)
        return catalog.version(*self.version.key)

    def seen(self) -> tuple[list[Row], Progress]:
        """Returns the rows of a reader, and the offsets, in one snapshot."""
        with self.context.database.read() as connection:
            progress = self.context.catalog.progress(connection, *self.version.key)
            select_sql = self.context.catalog.version(*self.version.key, connection).select_sql
            assert select_sql is not None
            rows = connection.exec_driver_sql(select_sql.replace("%", "%%")).fetchall()
        assert progress is not None
        return sorted((tuple(row) for row in rows), key=repr), progress

    def expected(self, offsets: Offsets) -> list[Row]:
        """Spark's batch answer at these offsets."""
        options = {**self.context.log_options, **options_for(ranges_between({}, offsets))}
        raw = self.context.spark.read.format("headrace").options(**options).load()
        rows = build(self.context.spark, self.definition, raw).collect()
        return sorted((tuple(row) for row in rows), key=repr)

    def check(self) -> Progress:
        """Checks that a reader sees the query over exactly the progress."""
        rows, progress = self.seen()
        assert rows == self.expected(progress.offsets), f"at {progress.offsets}"
        return progress
