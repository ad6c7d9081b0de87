"""Computes a batch in Spark's tasks and copies its rows from there to PostgreSQL: nothing passes through the driver.

::

    partial rows -> merged with the rows of the last batch -> output columns -> staging table -> the table of the batch
    (Spark)         (``MergeTask``, in each task)             (Spark)           (``spark.staged_rows``)

A task gets the rows of the last batch by their keys, as many at a time as it has new rows in memory. The rows of the
last batch whose keys have no new records go from table to table within the database.

A text that no database can store is stored as another one. So two keys of Spark may be one key of the database, and
two tasks may have a row of it. Then the index of the table cannot be built, and the batch is loaded through the driver,
which merges the two rows (``batch_tables``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.query.task_algebra import TaskAlgebra, with_outputs
from headrace.pipeline.serving.gathered_batches import gathered
from headrace.pipeline.spark.staged_rows import Copied, copy_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.lambda_.tables import LambdaTables
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.serving.database import Database
    from headrace.pipeline.serving.postgresql.copy import StoredRows
    from headrace.pipeline.serving.postgresql.staging import Stage

_ROWS_AT_A_TIME, _BYTES_AT_A_TIME = 50_000, 64 << 20


@dataclass(frozen=True)
class MergeTask:
    """
    :param last: the partial rows of the last batch; None if the batch is computed from all records.
    :param rows_at_a_time: how many rows are merged at a time.
    """

    algebra: TaskAlgebra
    last: StoredRows | None
    rows_at_a_time: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        algebra, tables = self.algebra, gathered(batches, self.rows_at_a_time, _BYTES_AT_A_TIME)
        if self.last is None:
            for table in tables:
                yield from algebra.result(algebra.fit(table)).to_batches()
            return
        with closing(self.last.connected()) as connection:
            for table in tables:
                rows = algebra.fit(table)
                known = algebra.loaded(self.last.fetch(connection, algebra.keys(rows)))
                yield from algebra.result(algebra.merge([known, rows])).to_batches()


@dataclass(frozen=True)
class _BatchRows:
    """Makes rows of a batch table out of the columns that Spark has computed."""

    algebra: TaskAlgebra
    output: pa.Schema

    def __call__(self, rows: pa.Table) -> pa.Table:
        return self.algebra.stored_columns(rows, self.output)


class BatchTasks:
    """Computes the batches of one version whose query has a :class:`TaskAlgebra`."""

    def __init__(self, database: Database, tables: LambdaTables, algebra: Algebra, in_tasks: TaskAlgebra) -> None:
        self._database, self._tables = database, tables
        self._algebra, self._in_tasks = algebra, in_tasks

    def copy(self, partials: DataFrame, stage: Stage, batch: int, last: int | None) -> Copied:
        """Computes the rows of a batch, and copies them to a stage.

        :param partials: partial rows over the new records, one per key.
        :param last: the batch whose rows they are merged with.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        from headrace.pipeline.serving.postgresql.copy import StageCopy, StoredRows

        login = self._database.login()
        stored = None
        if last is not None:
            table = self._tables.batch(last)
            stored = StoredRows(login, table.name, self._in_tasks.stored_schema)
        result_type = from_arrow_schema(self._in_tasks.result_schema)
        merged = partials.mapInArrow(MergeTask(self._in_tasks, stored, _ROWS_AT_A_TIME), result_type)
        schema = self._tables.schema.append(pa.field("_key", pa.string()))
        prepare = _BatchRows(self._in_tasks, self._algebra.final_schema)
        copy = StageCopy(login, stage.name, schema, (), batch, prepare=prepare)
        return copy_rows(with_outputs(self._algebra, merged), copy)
