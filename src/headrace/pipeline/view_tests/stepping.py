"""Drives one version of a view through the steps of a test: the real way of its maintenance, without its threads.

A version stays open, and follows the log by micro-batches. A Spark stream is stopped after each step and started again,
as ``views run --once`` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.maintenance.versions import create_version
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog, Version, VersionEvent, VersionState
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.pipeline.version.running_version import SteppedVersion
from headrace.pipeline.view_tests.cases import FoundRows
from headrace.pipeline.view_tests.cells import rows_of_database
from headrace.runtime.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession


class SteppedView:
    """
    :param folder: a folder of its own, for the serving database, the archive and checkpoints.
    :param way: how the answer is kept up to date.
    :param schema: the columns of the answer.
    """

    def __init__(
        self, spark: SparkSession, bootstrap: str, folder: Path, definition: ViewDefinition, way: str, schema: pa.Schema
    ) -> None:
        self._schema = schema
        url = f"sqlite:///{folder / 'views.db'}"
        master = spark.sparkContext.master or ""
        project = Project(folder, bootstrap, url, str(folder / "archive"), master, str(folder / "checkpoints"))
        self._database = Database(url)
        catalog = Catalog(self._database)
        self._context = RunContext(
            spark, project, self._database, catalog, SystemClock(), project.checkpoints, PipelineMetrics()
        )
        catalog.create_view(definition.name, definition.architecture, definition.definition_hash)
        values = json.loads(json.dumps(definition.as_dict() | {"way": way}))
        self._key = catalog.add_version(definition.name, values, definition.definition_hash).key
        self._open: SteppedVersion | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._database.close()

    def advance(self) -> FoundRows:
        """Reads the log to its end."""
        if self._open is not None:
            self._open.advance()
            return self._found()
        running = create_version(self._context, self._starting())
        stepped = running.stepped()
        if stepped is None:
            running.run_once()
        else:
            stepped.open()
            self._open = stepped
            stepped.advance()
        return self._found()

    def rebuild(self) -> FoundRows | None:
        """Runs a batch over all records; None if the version has no batches."""
        if self._open is None:
            return None
        self._open.rebuild()
        return self._found()

    def _starting(self) -> Version:
        """The version as the runner starts it, for the first time or again."""
        catalog = self._context.catalog
        if catalog.version(*self._key).state is not VersionState.STARTING:
            catalog.set_state(*self._key, VersionEvent.STOPPED)
            catalog.set_state(*self._key, VersionEvent.RESTARTED)
        return catalog.version(*self._key)

    def _found(self) -> FoundRows:
        """Returns the rows that a reader sees."""
        with self._database.read() as connection:
            progress = self._context.catalog.progress(connection, *self._key)
            select_sql = self._context.catalog.version(*self._key, connection).select_sql
            assert select_sql is not None, "the version has read the log"
            rows = connection.exec_driver_sql(select_sql.replace("%", "%%")).fetchall()
        found = rows_of_database([tuple(row) for row in rows], self._schema)
        return FoundRows(found, 0 if progress is None else progress.dead_letters)
