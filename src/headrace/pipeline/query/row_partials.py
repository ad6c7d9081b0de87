"""Partial results over a few records, by Spark's own code in the driver, without a Spark job.

What a job would do to each record of a micro-batch is prepared once (``row_functions``): the records are decoded and
the lower part of the query applied, to partial rows of one event each (``Algebra.row_columns``), which Arrow merges::

    records -> decoded -> projections of the query -> key columns, partial columns, _keep, _error -> merged

Nothing may be dropped on the way, as a projection gives a row for each row. A filter becomes the column ``_keep``, and
what follows it is not computed for rows that are not kept: the query may have left them out because it cannot be.
Bad records are those with an ``_error``; rows are in the order of the records, so each is found again by its place.

Not every query can be prepared: generators (explode), ROLLUP, and Python that runs in processes of its own need a job,
which ``speed_layer`` then runs.
"""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import ERROR, decode_frame
from headrace.pipeline.query.row_functions import RowFunction, unsupported
from headrace.pipeline.spark.catalyst import Java, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.spark.catalyst import Catalyst

logger = getLogger(__name__)
KEEP = "_keep"


class Partials(NamedTuple):
    """
    :ivar rows: partial rows, one a key.
    :ivar bad: of each record why it is bad; None for those that are not.
    """

    rows: pa.Table
    bad: pa.ChunkedArray


class RowPartials:
    def __init__(self, algebra: Algebra, function: RowFunction) -> None:
        """``prepare`` makes one."""
        self._algebra, self._function = algebra, function
        #: What of a record is needed.
        self.columns = function.columns

    @classmethod
    def prepare(cls, spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> Self | None:
        """None if the view needs Spark jobs."""
        from headrace.pipeline.query.aggregates import arrow_schema
        from headrace.pipeline.spark.source.data_source import spark_schema

        if definition.decode.format not in ("json", "csv", "raw") or not _is_row_wise(algebra):
            return None
        raw = spark.createDataFrame([], spark_schema(include_headers=False))
        try:
            top = _top(algebra, decode_frame(definition.decode, raw, is_optimized=False))
        except unsupported() as error:
            logger.info("%s runs as Spark jobs, which is slower: %s", definition.name, error)
            return None
        function = RowFunction.prepare(top, arrow_schema(top.schema))
        return None if function is None else cls(algebra, function)

    def compute(self, records: pa.Table) -> Partials:
        """
        :param records: with at least ``columns``, as ``format("headrace")`` has them.
        :raises PySparkException: whatever the query makes of them, as a job would.
        """
        rows = self._function(records)
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
    """Key and partial columns, ``_keep`` and ``_error`` of decoded records, by projections only."""
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


def _projected(catalyst: Catalyst, node: Java, plan: Java, carried: list[Java]) -> tuple[Java, list[Java]]:
    outputs = [_if_kept(catalyst, carried[0], each) for each in items(node.projectList())]
    return catalyst.project([*outputs, *carried], plan), carried


def _if_kept(catalyst: Catalyst, keep: Java, output: Java) -> Java:
    if kind(output) != "Alias" or kind(output.child()) in ("AttributeReference", "Literal"):
        return output
    return catalyst.with_children(output, [catalyst.only_if(keep, output.child())])


def _filtered(catalyst: Catalyst, node: Java, plan: Java, carried: list[Java]) -> tuple[Java, list[Java]]:
    from pyspark.sql import functions as F  # noqa: N812

    keep, error = carried
    holds = F.coalesce(catalyst.column(node.condition()), F.lit(False))
    narrower = F.when(catalyst.column(keep), holds).otherwise(F.lit(False)).alias(KEEP)
    others: list[Column] = [catalyst.column(each) for each in items(plan.output()) if not each.semanticEquals(keep)]
    made = catalyst.select(plan, [*others, narrower])
    return made, [items(made.output())[-1], error]


def bad_records(records: pa.Table, bad: pa.ChunkedArray) -> pa.Table:
    """Those that do not decode, with the reason: what ``DeadLetters.send`` takes."""
    is_bad = pc.is_valid(bad)
    return records.filter(is_bad).append_column("reason", bad.filter(is_bad))
