"""Computes the rows of a micro-batch, and writes them within the transaction of the sink.

A small micro-batch is computed into the memory of the driver, and upserted from there. A large one into PostgreSQL goes
from Spark's tasks to a staging table (``serving.postgresql.staging``), so the driver's memory does not depend on the
number of changed rows. The number of records decides: the number of rows is not known before they are computed.
Tasks cost some tenths of a second, for their Python and their connections.

In SQLite, and in mode ``complete``, whose rows have an order, all rows pass through the driver. So do the rows of a
version whose tasks do not reach the database, although the driver does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, Table

from headrace.pipeline.kappa.hidden_groups import HIDDEN
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_keys import key_columns, output_mode
from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.serving.tables import data_table, quoted
from headrace.pipeline.spark.staged_rows import TasksNotConnected, copy_rows
from headrace.pipeline.version.context import RunContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = getLogger("headrace.views")
_ORDER = "_order_0"
_ROWS_PER_PORTION = 250_000

WriteRows = Callable[[Connection], None]


@dataclass(frozen=True)
class TargetTable:
    """
    :param schema: the columns of the rows as Spark returns them.
    :param mode: Spark's output mode.
    """

    table: Table
    schema: pa.Schema
    mode: str

    @classmethod
    def of(cls, definition: ViewDefinition, table_name: str, query: DataFrame) -> TargetTable:
        """
        :raises ViewError: if the query has no key that identifies its rows.
        """
        mode, schema = output_mode(query), arrow_schema(query.schema)
        columns = schema.append(pa.field(_ORDER, pa.int64())) if mode == "complete" else schema
        return cls(data_table(table_name, columns, key_columns(definition, query)), schema, mode)

    @property
    def is_complete(self) -> bool:
        """Whether each batch has all rows."""
        return self.mode == "complete"

    @property
    def has_groups(self) -> bool:
        """Whether a batch has at most one row per key."""
        return self.mode != "append"

    @property
    def select_sql(self) -> str:
        names = ", ".join(quoted(name) for name in self.schema.names if name != HIDDEN)
        which = f" WHERE NOT {quoted(HIDDEN)}" if HIDDEN in self.schema.names else ""
        order = f" ORDER BY {quoted(_ORDER)}" if self.is_complete else ""
        return f"SELECT {names} FROM {quoted(self.table.name)}{which}{order}"

    def rows(self, frame: DataFrame) -> pa.Table:
        """Computes the frame and returns its rows."""
        rows = frame.toArrow()
        rows = rows if rows.schema.equals(self.schema) else rows.cast(self.schema)
        if self.is_complete:
            rows = rows.append_column(_ORDER, pa.array(range(rows.num_rows), pa.int64()))
        return rows


class BatchRows:
    """The rows of the micro-batches of one version."""

    def __init__(self, context: RunContext, version: Version, target: TargetTable) -> None:
        self._context, self._version, self._target = context, version, target
        self._stage_from = context.project.serving_executors_from
        self._may_stage = self._stage_from > 0 and not context.database.is_sqlite and not target.is_complete
        self._has_dropped_stages = False

    @contextmanager
    def computed(self, frame: DataFrame, batch_id: int, records: int) -> Iterator[WriteRows]:
        """Computes the rows of a batch on entry, and yields the function that writes them in a transaction.

        :param records: how many records the batch has at most.
        """
        with ExitStack() as stack:
            if self._may_stage and records >= self._stage_from:
                try:
                    yield stack.enter_context(self._staged(frame, batch_id, records))
                    return
                except TasksNotConnected as error:
                    logger.warning("%s: rows pass through the driver, because %s", self._version.label, error)
                    self._may_stage = False
            self._drop_stages_of_a_crash()
            rows = self._target.rows(frame)
            yield lambda connection: self._write(connection, rows, batch_id)

    def _write(self, connection: Connection, rows: pa.Table, batch_id: int) -> None:
        """Writes a portion of the rows at a time: as Python objects they take many times their size in Arrow."""
        if self._target.is_complete:
            connection.execute(self._target.table.delete())
        for start in range(0, rows.num_rows, _ROWS_PER_PORTION):
            portion = rows.slice(start, _ROWS_PER_PORTION)
            self._context.database.upsert(connection, self._target.table, portion, batch_id=batch_id)

    # ------------------------------------------------------------------------------------------------------- staging

    @contextmanager
    def _staged(self, frame: DataFrame, batch_id: int, records: int) -> Iterator[WriteRows]:
        from headrace.pipeline.serving.postgresql import staging as postgresql_staging
        from headrace.pipeline.serving.postgresql.copy import StageCopy

        database, target = self._context.database, self._target
        with database.read() as connection:
            may_replace = target.has_groups and postgresql_staging.is_mostly_changed(connection, target.table, records)
        stage = postgresql_staging.create_stage(
            database, target.table, batch_id, is_ordered=not target.has_groups, is_logged=may_replace
        )
        try:
            key_columns = target.table.info["key_columns"]
            copy = StageCopy(database.login(), stage.name, target.schema, key_columns, batch_id, stage.is_ordered)
            copied = copy_rows(frame, copy)

            def write(connection: Connection) -> None:
                postgresql_staging.check_parts(connection, stage, *copied)
                shown = _ShownTable(self._context, self._version, target.select_sql, connection)
                postgresql_staging.apply_stage(connection, stage, copied.row_count, shown)

            yield write
        finally:
            postgresql_staging.try_to_drop_stages(database, target.table.name)

    def _drop_stages_of_a_crash(self) -> None:
        if not self._has_dropped_stages:
            self._context.database.drop_stages(self._target.table.name)
            self._has_dropped_stages = True


class _ShownTable:
    """The SQL view of a version that serves shows its table. If another table gets the name, the view must follow."""

    def __init__(self, context: RunContext, version: Version, select_sql: str, connection: Connection) -> None:
        self._context, self._version = context, version
        self._select_sql, self._connection = select_sql, connection
        self._is_serving = False

    def lock(self) -> None:
        view = self._context.catalog.lock_view(self._connection, self._version.view)
        self._is_serving = view.serving_version == self._version.version

    def repoint(self) -> None:
        from headrace.pipeline.serving.postgresql.dialect import replace_view

        if self._is_serving:
            replace_view(self._connection, self._version.view, self._select_sql)
