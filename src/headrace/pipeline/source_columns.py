"""Which columns of the log a view needs: the others are not read.

Spark does not tell a Python source which columns a query uses, so all of them would travel from Python to the JVM:
names of topics, offsets and times of every record, though most queries look at the value only. So the query is
optimized once over a stand-in, and what is left of the stand-in's columns is what is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.catalyst import Java, children, expression_id, items, kind, walk
from headrace.pipeline.decoding import PLACE
from headrace.pipeline.definition import ViewDefinition
from headrace.pipeline.view import build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAND_IN = "LogicalRDD"


def needed_columns(spark: SparkSession, definition: ViewDefinition) -> tuple[str, ...]:
    """In the order of the source; at least one, because records are counted too."""
    from headrace.pipeline.source import spark_schema

    schema = spark_schema(include_headers=False)
    stand_in = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    plan: Java = build(spark, definition, stand_in)._jdf.queryExecution().optimizedPlan()
    needed = _used(plan) | {"value"}
    if definition.watermark is not None:
        needed |= {PLACE[definition.watermark.column]} if definition.watermark.column in PLACE else set()
    return tuple(name for name in schema.names if name in needed)


def _used(plan: Java) -> set[str]:
    nodes = walk(plan)
    leaves = [node for node in nodes if kind(node) == _STAND_IN]
    offered = {expression_id(one): str(one.name()) for leaf in leaves for one in items(leaf.output())}
    wanted = items(plan.output())
    for node in nodes:
        if children(node):
            wanted += items(node.references().toSeq())
    return {offered[expression_id(one)] for one in wanted if expression_id(one) in offered}


def with_all_columns(raw: DataFrame) -> DataFrame:
    """With NULLs for the columns that were not read, so that what is not used can be named."""
    from pyspark.sql import functions as F  # noqa: N812

    from headrace.pipeline.source import spark_schema

    return raw.select(
        *(
            F.col(field.name) if field.name in raw.columns else F.lit(None).cast(field.dataType).alias(field.name)
            for field in spark_schema(include_headers=False)
        )
    )
