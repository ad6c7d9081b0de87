"""Runs a version of a Kappa view, in one of two ways.

===========  =========================================================================================================
combine      the answer is combined from partial results (``combined``). A micro-batch of a few records needs no Spark
             job, and there is no checkpoint
stream       a Spark stream keeps the state of the query (``stream``)
===========  =========================================================================================================

``maintenance.choice`` chooses the way when a view is applied, and the catalog stores it: a query is combined if its
partial results can be merged (``query.plan``), unless it has a watermark, because only Spark drops late events, or the
views of the project run on a Spark cluster: the groups of a large view should stay on the executors. A version that was
applied before ways were stored chooses when it starts for the first time. A version keeps its way as long as it exists:
its table has either partial columns or a checkpoint beside it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import sqlalchemy

from headrace.pipeline.kappa.combined import KappaCombined
from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.query.aggregates import Algebra, arrow_schema
from headrace.pipeline.query.plan import NotCombinable, analyze
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.spark.session import is_local, views_master
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.running_version import RunningVersion, SteppedVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy import Connection

    from headrace.pipeline.project.definition import ViewDefinition

_PARTIAL_COLUMN = re.compile(r"_[kp]\d+(_\w+)?")


class KappaView(RunningVersion):
    def __init__(self, context: RunContext, version: Version) -> None:
        super().__init__(context, version)
        #: The version in its way, once it has started.
        self._way: RunningVersion | None = None

    def start(self) -> None:
        self._way = self._chosen()
        self._way.start()

    def run_once(self) -> None:
        self._way = self._chosen()
        self._way.run_once()

    def stepped(self) -> SteppedVersion | None:
        return self._chosen().stepped()

    def stop(self, timeout_s: float = 30) -> None:
        if self._way is not None:
            self._way.stop(timeout_s)

    def failure(self) -> BaseException | None:
        return None if self._way is None else self._way.failure()

    def lag(self) -> Lag:
        return Lag() if self._way is None else self._way.lag()

    def reading(self) -> int:
        return 0 if self._way is None else self._way.reading()

    def select_sql(self, connection: Connection) -> str:
        found = self.context.catalog.version(self.version.view, self.version.version, connection)
        assert found.select_sql is not None, f"{self.label} has no table yet"
        return found.select_sql

    def drop(self) -> None:
        """Drops what either way may have left."""
        KappaStream(self.context, self.version).drop()

    def _chosen(self) -> RunningVersion:
        algebra = self._algebra()
        if algebra is None:
            return KappaStream(self.context, self.version, self.work)
        return KappaCombined(self.context, self.version, algebra, self.work)

    def _algebra(self) -> Algebra | None:
        """How partial results are combined; None if the version is a stream."""
        is_combined = self._is_combined()
        if is_combined is None:
            way = self.version.definition.get("way") or self.definition.maintain
            is_combined = way == "combine" if way else why_stream(self.context.spark, self.definition) is None
        if not is_combined:
            return None
        spark, definition = self.context.spark, self.definition
        try:
            query = apply_query(spark, definition, empty_events(spark, definition))
            algebra = Algebra(analyze(query))
        except NotCombinable:
            return None
        key = identifying_columns(definition, query)
        set_columns(self.context.database, self.version.key, key, arrow_schema(query.schema))
        return algebra

    def _is_combined(self) -> bool | None:
        """Whether the table of the version has partial columns; None if there is no table yet."""
        with self.context.database.read() as connection:
            inspected = sqlalchemy.inspect(connection)
            if not inspected.has_table(self.version.table_name):
                return None
            columns = [column["name"] for column in inspected.get_columns(self.version.table_name)]
        return any(_PARTIAL_COLUMN.fullmatch(name) for name in columns)


def why_stream(spark: SparkSession, definition: ViewDefinition) -> str | None:
    """Why a new version is a Spark stream, even if its partial results can be merged; None if it need not be one."""
    if definition.watermark:
        return "it has a watermark, and only Spark's streams drop late events"
    if definition.maintain != "combine" and not is_local(views_master(spark)):
        return "on a Spark cluster the groups of a Kappa view stay on the executors"
    return None


__all__ = ["KappaView", "why_stream"]
