"""Copies the rows of a DataFrame from Spark's tasks to a staging table of PostgreSQL, without the driver.

Each task of the frame copies its rows by a connection of its own (``serving.postgresql.copy``). It returns one row to
the driver: the number of rows. Tasks work in parallel, so the database gets as many connections as Spark has cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.serving.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.serving.postgresql.copy import StageCopy

_RESULT = "part INT, row_count BIGINT"


class TasksNotConnected(DatabaseUnreachable):
    """A task does not reach the database. The driver may reach it nevertheless."""


class Copied(NamedTuple):
    """
    :ivar parts: how many tasks there were.
    :ivar row_count: how many rows they have copied.
    """

    parts: int
    row_count: int


class _CopyTask:
    """The work of a task. Spark shows the name of the class, and nothing of the object."""

    def __init__(self, copy: StageCopy) -> None:
        self._copy = copy

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "runs in a task"
        part = task.partitionId()
        count = self._copy.copy(part, batches)
        yield pa.RecordBatch.from_pydict({"part": pa.array([part], pa.int32()), "row_count": pa.array([count])})


def copy_rows(frame: DataFrame, copy: StageCopy) -> Copied:
    """Computes the frame, and copies its rows.

    :raises TasksNotConnected: if a task does not reach the database.
    :raises PySparkException: if a task fails. ``version.failures`` knows the errors of the database by their names.
    """
    from pyspark.errors import PySparkException

    from headrace.pipeline.serving.postgresql.copy import NOT_CONNECTED

    try:
        done = frame.mapInArrow(_CopyTask(copy), _RESULT).collect()
    except PySparkException as error:
        if (found := re.search(rf"{NOT_CONNECTED}.*", str(error))) is None:
            raise
        raise TasksNotConnected(found[0]) from error
    return Copied(len({row.part for row in done}), sum(row.row_count for row in done))
