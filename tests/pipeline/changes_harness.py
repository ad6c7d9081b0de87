"""A view without Spark: its versions, tables and commits are written as a running version writes them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.pipeline.changes.outbox import Outbox
from headrace.pipeline.project.definition import ChangeSettings
from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.testing.clock import ManualClock

PAGES = pa.schema([("page", pa.string()), ("clicks", pa.int64())])


class FakeView:
    """:param key: the columns that identify a row; None for a bag of rows."""

    def __init__(
        self, database: Database, schema: pa.Schema = PAGES, key: Sequence[str] | None = ("page",), name: str = "pages"
    ) -> None:
        self.database, self.schema, self.key, self.name = database, schema, key, name
        self.catalog = Catalog(database)
        self.catalog.create_view(name, "kappa", "h")
        self.clock = ManualClock()
        self.outbox = Outbox(database, self.clock)
        self.settings = ChangeSettings()
        self.version = self.batch = 0
        self.add_version()

    def add_version(self, schema: pa.Schema | None = None, key: Sequence[str] | None = ()) -> None:
        """A version that has caught up and does not serve yet."""
        self.schema = schema or self.schema
        self.key = self.key if key == () else key
        self.version = self.catalog.add_version(self.name, self.definition(), "h").version
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            self.catalog.set_state(self.name, self.version, event)
        with self.database.begin() as connection:
            create_table(connection, self.table)
        set_columns(self.database, (self.name, self.version), self.key, self.schema)

    def definition(self) -> dict[str, object]:
        return {}

    @property
    def table(self):
        # A bag: rows have numbers as their keys.
        numbered = self.schema.insert(0, pa.field("_n", pa.int64()))
        return data_table(f"{self.name}__v{self.version}", numbered, ["_n"])

    def commit(self, rows: Sequence[Sequence[object]], *, switch: bool = False) -> None:
        """Makes these the rows of the version, in one transaction with its progress."""
        self.batch += 1
        columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(self.schema)]
        numbered = self.schema.insert(0, pa.field("_n", pa.int64()))
        table = pa.table([pa.array(range(len(rows)), pa.int64()), *columns], schema=numbered)
        with self.database.begin() as connection:
            connection.execute(self.table.delete())
            self.database.bulk_load(connection, self.table, table, batch_id=self.batch)
            progress = Progress(self.name, self.version, self.batch, {"clicks": {0: self.batch}})
            self.catalog.set_progress(connection, progress)
            serving = self.catalog.view(self.name, connection).serving_version
            if serving is None or (switch and serving != self.version):
                shown = select_all(self.table).replace('"_n", ', "")
                self.catalog.switch(connection, self.name, self.version, shown)

    def step(self):
        return self.outbox.step(self.name, self.settings)
