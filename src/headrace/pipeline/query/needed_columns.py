"""Finds which columns of the log and of the events a view needs. The others are neither read nor computed.

Spark does not tell a Python source which columns a query uses. So all of them would be sent from Python to the JVM:
topic, offset and time of every record, although most queries use only the value. Nor does Spark remove columns below
the node where bad records are counted (``kappa.batch_counts``). So the query is optimized once over an empty frame, and
the columns of that frame that the optimizer keeps are the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.events import RECORD_COLUMNS, event_schema
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.view_query import apply_query, build
from headrace.pipeline.spark.catalyst import JavaObject, children, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_EMPTY_FRAME = "LogicalRDD"
#: The column to read if the query needs none: a count needs rows.
_SMALL = "partition"


def needed_columns(spark: SparkSession, definition: ViewDefinition) -> tuple[str, ...]:
    """The needed columns of the log, in the order of the source; at least one."""
    from headrace.pipeline.spark.source.data_source import spark_schema

    schema = spark_schema(include_headers=False)
    needed = _used(spark, schema, lambda raw: build(spark, definition, raw))
    if definition.watermark is not None and definition.watermark.column in RECORD_COLUMNS:
        needed.add(RECORD_COLUMNS[definition.watermark.column])
    return tuple(name for name in schema.names if name in (needed or {_SMALL}))


def needed_event_columns(spark: SparkSession, definition: ViewDefinition) -> tuple[str, ...]:
    """The needed columns of the events."""
    schema = event_schema(definition.decode)
    needed = _used(spark, schema, lambda events: apply_query(spark, definition, events))
    if definition.watermark is not None:
        needed.add(definition.watermark.column)
    return tuple(name for name in schema.names if name in needed)


def with_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with all columns of the schema. Columns that it lacks are NULL, so that a query can still name them."""
    from pyspark.sql import functions as F  # noqa: N812

    there = set(frame.columns)
    return frame.select(
        *(
            F.col(f"`{field.name}`") if field.name in there else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )


def _used(spark: SparkSession, schema: StructType, make: Callable[[DataFrame], DataFrame]) -> set[str]:
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    plan: JavaObject = make(empty)._jdf.queryExecution().optimizedPlan()
    nodes = walk(plan)
    leaves = [node for node in nodes if kind(node) == _EMPTY_FRAME]
    offered = {expression_id(one): str(one.name()) for leaf in leaves for one in items(leaf.output())}
    wanted = items(plan.output())
    for node in nodes:
        if children(node):
            wanted += items(node.references().toSeq())
    return {offered[expression_id(one)] for one in wanted if expression_id(one) in offered}
