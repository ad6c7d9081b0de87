"""Which columns a view needs, of the log and of its events: the others are not read, and not made.

Spark does not tell a Python source which columns a query uses, so all of them would travel from Python to the JVM:
names of topics, offsets and times of every record, though most queries look at the value only. Nor does it leave out
columns below the place where bad records are counted (``stream_counts``). So the query is optimized once over a
stand-in, and what is left of the stand-in's columns is what is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.events import PLACE, event_schema
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.view_query import apply_query, build
from headrace.pipeline.spark.catalyst import Java, children, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_STAND_IN = "LogicalRDD"
#: Read if nothing else is: a count of records needs records.
_SMALL = "partition"


def needed_columns(spark: SparkSession, definition: ViewDefinition) -> tuple[str, ...]:
    """Of the log, in the order of the source; at least one."""
    from headrace.pipeline.spark.source.data_source import spark_schema

    schema = spark_schema(include_headers=False)
    needed = _used(spark, schema, lambda raw: build(spark, definition, raw))
    if definition.watermark is not None and definition.watermark.column in PLACE:
        needed.add(PLACE[definition.watermark.column])
    return tuple(name for name in schema.names if name in (needed or {_SMALL}))


def needed_event_columns(spark: SparkSession, definition: ViewDefinition) -> tuple[str, ...]:
    """Of the events that the query sees."""
    schema = event_schema(definition.decode)
    needed = _used(spark, schema, lambda events: apply_query(spark, definition, events))
    if definition.watermark is not None:
        needed.add(definition.watermark.column)
    return tuple(name for name in schema.names if name in needed)


def with_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """All columns of the schema, NULL where the frame has none: what is not used can still be named."""
    from pyspark.sql import functions as F  # noqa: N812

    there = set(frame.columns)
    return frame.select(
        *(
            F.col(f"`{field.name}`") if field.name in there else F.lit(None).cast(field.dataType).alias(field.name)
            for field in schema
        )
    )


def _used(spark: SparkSession, schema: StructType, make: Callable[[DataFrame], DataFrame]) -> set[str]:
    stand_in = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    plan: Java = make(stand_in)._jdf.queryExecution().optimizedPlan()
    nodes = walk(plan)
    leaves = [node for node in nodes if kind(node) == _STAND_IN]
    offered = {expression_id(one): str(one.name()) for leaf in leaves for one in items(leaf.output())}
    wanted = items(plan.output())
    for node in nodes:
        if children(node):
            wanted += items(node.references().toSeq())
    return {offered[expression_id(one)] for one in wanted if expression_id(one) in offered}
