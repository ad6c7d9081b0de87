"""Computes partial results over a few records with Spark's code in the driver, without a Spark job.

The work of a job on each record of a micro-batch is prepared once (``row_functions``): decode the record, apply the
lower part of the query, and return a partial row of one event (``Algebra.row_columns``). Arrow then merges these rows::

    records -> decoded -> projections of the query -> key columns, partial columns, _keep, _error -> merged

A projection returns one row per row, so no row can be removed. A filter becomes the column ``_keep``, and later
expressions are not computed for rows that are not kept: the filter may protect them from an error. Bad records have an
``_error``. Rows are in the order of the records, so a bad record is found by its position.

Not every query can be prepared: generators (explode), ROLLUP, and Python code that runs in Spark's worker processes
need a job, which ``lambda_.speed_layer`` then runs.
"""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import ERROR, decode_frame
from headrace.pipeline.decoding.json_schema_ids import DriverCheck
from headrace.pipeline.query.row_functions import RowFunction, unsupported
from headrace.pipeline.spark.catalyst import JavaObject, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.spark.catalyst import Catalyst

logger = getLogger(__name__)
KEEP = "_keep"


class Partials(NamedTuple):
    """
    :ivar rows: partial rows, one per key.
    :ivar bad: for each record, why it is bad; None if it is not.
    """

    rows: pa.Table
    bad: pa.ChunkedArray


class RowPartials:
    def __init__(self, algebra: Algebra, function: RowFunction, ids: DriverCheck) -> None:
        """Use ``prepare``."""
        self._algebra, self._function, self._ids = algebra, function, ids
        #: The columns of a record that are needed.
        self.columns = function.columns

    @classmethod
    def prepare(cls, spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> Self | None:
        """None if the view needs Spark jobs."""
        from headrace.pipeline.query.aggregates import arrow_schema
        from headrace.pipeline.spark.source.data_source import spark_schema

        if definition.decode.format not in ("json", "csv", "raw") or not _is_row_wise(algebra):
            return None
        ids = DriverCheck(definition.decode)
        raw = spark.createDataFrame([], ids.schema(spark_schema(include_headers=False)))
        try:
            top = _top(algebra, decode_frame(definition.decode, raw, is_optimized=False))
        except unsupported() as error:
            logger.info(
                "%s runs as Spark jobs, which is slower, because it cannot run in the driver: %s",
                definition.name,
                error,
            )
            return None
        function = RowFunction.prepare(top, arrow_schema(top.schema))
        return None if function is None else cls(algebra, function, ids)

    def compute(self, records: pa.Table) -> Partials:
        """
        :param records: a table with at least ``columns``, as in ``format("headrace")``.
        :raises PySparkException: what the query raises for these records, as in a job.
        :raises RegistryUnavailable: if ids of schemas have to be looked up and the registry does not answer.
        """
        rows = self._function(self._ids.add_problems(records))
        kept = rows.filter(rows.column(KEEP)).select(self._algebra.schema.names)
        return Partials(self._algebra.merge([kept]), rows.column(ERROR))


def _is_row_wise(algebra: Algebra) -> bool:
    plan = algebra.plan
    top = plan.below[0]
    return (
        all(kind(each) in ("Project", "Filter") for each in plan.below[:-1])
        and not plan.catalyst.contains(top, "PYTHON_UDF")
        and not plan.catalyst.contains(top, "GENERATOR")
    )


def _top(algebra: Algebra, decoded: DataFrame) -> DataFrame:
    """The key and partial columns, ``_keep`` and ``_error`` of decoded records, as projections only."""
    from pyspark.sql import functions as F  # noqa: N812

    catalyst = algebra.plan.catalyst
    *nodes, leaf = algebra.plan.below
    frame = decoded.withColumn(KEEP, F.col(ERROR).isNull())
    plan = catalyst.analyzed(frame)
    offered = {str(each.name()): each for each in items(plan.output())}
    carried = [offered[KEEP], offered[ERROR]]
    events = [catalyst.alias(offered[str(each.name())], each) for each in items(leaf.output())]
    plan = catalyst.project([*events, *carried], plan)
    for node in reversed(nodes):
        step = _projected if kind(node) == "Project" else _filtered
        plan, carried = step(catalyst, node, plan, carried)
    keep = catalyst.column(carried[0])
    columns = [
        F.when(keep, each).alias(name) for name, each in zip(algebra.schema.names, algebra.row_columns(), strict=True)
    ]
    error = catalyst.column(carried[1])
    return catalyst.frame(catalyst.select(plan, [*columns, keep.alias(KEEP), error.alias(ERROR)]))


def _projected(
    catalyst: Catalyst, node: JavaObject, plan: JavaObject, carried: list[JavaObject]
) -> tuple[JavaObject, list[JavaObject]]:
    outputs = [_if_kept(catalyst, carried[0], each) for each in items(node.projectList())]
    return catalyst.project([*outputs, *carried], plan), carried


def _if_kept(catalyst: Catalyst, keep: JavaObject, output: JavaObject) -> JavaObject:
    if kind(output) != "Alias" or kind(output.child()) in ("AttributeReference", "Literal"):
        return output
    return catalyst.with_children(output, [catalyst.only_if(keep, output.child())])


def _filtered(
    catalyst: Catalyst, node: JavaObject, plan: JavaObject, carried: list[JavaObject]
) -> tuple[JavaObject, list[JavaObject]]:
    from pyspark.sql import functions as F  # noqa: N812

    keep, error = carried
    holds = F.coalesce(catalyst.column(node.condition()), F.lit(False))
    narrower = F.when(catalyst.column(keep), holds).otherwise(F.lit(False)).alias(KEEP)
    others: list[Column] = [catalyst.column(each) for each in items(plan.output()) if not each.semanticEquals(keep)]
    made = catalyst.select(plan, [*others, narrower])
    return made, [items(made.output())[-1], error]


def bad_records(records: pa.Table, bad: pa.ChunkedArray) -> pa.Table:
    """The records that do not decode, with the reason, for ``DeadLetters.send``."""
    is_bad = pc.is_valid(bad)
    return records.filter(is_bad).append_column("reason", bad.filter(is_bad))
