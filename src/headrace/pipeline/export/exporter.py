"""Exports one view: reads its rows and its progress in one snapshot of the database, and commits them to the folder.

::

    read the table: does it have this version and these offsets?       then there is nothing to do
    read the rows, write Parquet files                                 a crash leaves the snapshot before
    commit to the Delta log                                            from here on, the new snapshot
    store what was exported, for ``headrace views status``             a crash leaves an older line in ``status``

The rows of a snapshot are all rows of the view, whatever changed since the one before. Considered and dropped: writing
only the difference. A Delta table is changed by rewriting each Parquet file with a changed row. Rows are in no useful
order, so a hundredth of the rows is in nearly all files; and the difference itself costs a scan of the view.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipeline.export.export_state import store_snapshot
from headrace.pipeline.project.definition import Export
from headrace.pipeline.serving.catalog_tables.version_columns import schema_of
from headrace.pipeline.serving.catalog_tables.versions import VIEWS
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.serving_state import as_of_values, serving_versions
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from sqlalchemy import Connection

    from headrace.pipeline.export.delta_folder import DeltaFolder
    from headrace.pipeline.export.snapshot import Snapshot

logger = getLogger("headrace.views")

_HOUR_MS = 3_600_000
#: How often old files are removed, in parts of the time for which they are kept.
_CLEANINGS_PER_KEEP = 4


class Exporter:
    """One thread calls its methods.

    :param folder: of the project.
    """

    def __init__(self, database: Database, clock: Clock, folder: Path, view: str, export: Export) -> None:
        self._database, self._clock = database, clock
        self.view, self.export = view, export
        self._path = folder / export.path
        self._table: DeltaFolder | None = None
        self._has: Snapshot | None = None
        self._cleaned_ms = clock.monotonic_ms()

    def run(self) -> bool:
        """Writes a snapshot, if the view has changed since the last one.

        :return: False if there was nothing to write.
        :raises ExportRefused: if the folder does not belong to the view.
        """
        if self._table is None:
            self._open()
        assert self._table is not None
        began_s = time.monotonic()
        with self._database.read() as connection:
            names = _names(connection, self.view)
            if names is None or (self._has is not None and self._has.is_of(names)):
                return False
            from headrace.pipeline.export.delta_types import delta_schema
            from headrace.pipeline.export.view_rows import view_batches

            schema = _schema(connection, names)
            with closing(view_batches(connection, self.view, schema)) as batches:
                snapshot, rows = self._table.write(delta_schema(schema), batches, names)
        self._has = snapshot
        store_snapshot(self._database, self.export.path, snapshot, rows, self._clock.wall_ms())
        took_s, number = time.monotonic() - began_s, snapshot.number
        logger.info("%s: exported %s rows as snapshot %s of %s in %.1f s", self.view, rows, number, self._path, took_s)
        self._clean(names)
        return True

    def _open(self) -> None:
        from headrace.pipeline.export.delta_folder import DeltaFolder

        table = DeltaFolder(self._path, self.view, self.export.keep_hours)
        self._has = table.last()
        self._table = table

    def _clean(self, names: Mapping[str, Any]) -> None:
        assert self._table is not None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._cleaned_ms >= self.export.keep_hours * _HOUR_MS // _CLEANINGS_PER_KEEP:
            self._cleaned_ms = now_ms
            self._table.clean(names)


def _names(connection: Connection, view: str) -> dict[str, Any] | None:
    """Returns the metadata of a snapshot that is taken now; None if no version serves."""
    row = connection.execute(serving_versions().where(VIEWS.c.name == view)).one_or_none()
    return None if row is None else {**as_of_values(row), "definition": row.definition_hash}


def _schema(connection: Connection, names: Mapping[str, Any]) -> pa.Schema:
    """The columns of the SQL view, in its order, with the types of the query."""
    import pyarrow as pa

    from headrace.pipeline.changes.row_values import view_columns

    view, version = names["view"], names["version"]
    known = schema_of(connection, (view, version))
    if known is None:
        raise ServingError(f"the types of the columns of {view} v{version} are not stored: run "
                           f"'headrace views switch {view} --restart'")  # fmt: skip
    return pa.schema([known.field(column.name) for column in view_columns(connection, view)])
