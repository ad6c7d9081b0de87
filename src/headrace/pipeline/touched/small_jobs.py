"""Runs operators over few rows: one Spark job with one task, without moving rows between tasks.

The jobs run in a session of their own, whose settings suit a few thousand rows: no code is generated, no plan is
adapted while it runs, and joins use hash tables instead of broadcasts, which would be jobs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.late_events import spark_us
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, data_type, items, kind
from headrace.pipeline.touched.bag import COUNT, Bag
from headrace.pipeline.touched.blocks import KEY
from headrace.pipeline.touched.event_times import NOTHING_DROPPED
from headrace.pipeline.touched.operators import Input, Operator, Tree, assembled
from headrace.pipeline.touched.row_codec import RowCodec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

WEIGHT = "_w"
_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.preferSortMergeJoin": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "256MB",
}


class Variant(NamedTuple):
    """A plan whose rows count ``weight`` times each."""

    weight: int
    plan: JavaObject


class _Columns(NamedTuple):
    """
    :ivar attributes: a sequence of the columns and ``COUNT``.
    """

    columns: Sequence[JavaObject]
    struct: StructType
    attributes: JavaObject
    has_variants: bool


class SmallJobs:
    """Runs the parts of one tree. Any thread may call its methods."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.spark: SparkSession = tree.catalyst.spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        self.catalyst = Catalyst(self.spark)
        self._known: dict[int, RowCodec] = {}
        self._known_columns: dict[int, _Columns] = {}
        self._selections: dict[tuple[int, int], list[Column]] = {}

    def codec(self, target: Input) -> RowCodec:
        """The codec of the rows of an input."""
        if id(target) not in self._known:
            self._known[id(target)] = RowCodec(arrow_schema(_stored_struct(target)))
        return self._known[id(target)]

    def relation(self, columns: Sequence[JavaObject], rows: pa.Table) -> JavaObject:
        """The rows as a plan with these columns. The rows have one column more, so that none is lost."""
        known = self._columns_of(columns)
        frame = self.spark.createDataFrame(rows.rename_columns(known.struct.names), schema=known.struct)
        plan = frame._jdf.queryExecution().analyzed()
        if not known.has_variants and kind(plan) == "LocalRelation":
            return self.catalyst.in_one_partition(self.catalyst.local_relation(known.attributes, plan.data()))
        parts = [_restored(name, each) for name, each in zip(known.struct.names, columns, strict=False)]
        return self.renamed(frame.coalesce(1).select(*parts), columns)

    def _columns_of(self, columns: Sequence[JavaObject]) -> _Columns:
        from pyspark.sql.types import LongType, StructField, StructType

        if id(columns) not in self._known_columns:
            struct = StructType([*struct_of(columns), StructField(COUNT, LongType())])
            count = items(self.spark.createDataFrame([], struct)._jdf.queryExecution().analyzed().output())[-1]
            attributes = self.catalyst.sequence([*columns, count])
            has_variants = any(map(_is_variant, columns))
            # The columns are kept, so that no other list gets their id.
            self._known_columns[id(columns)] = _Columns(columns, struct, attributes, has_variants)
        return self._known_columns[id(columns)]

    def renamed(self, frame: DataFrame, columns: Sequence[JavaObject], catalyst: Catalyst | None = None) -> JavaObject:
        """The plan of a frame whose columns take the place of these columns, in this order."""
        maker = catalyst or self.catalyst
        plan = frame._jdf.queryExecution().analyzed()
        pairs = zip(items(plan.output()), columns, strict=True)
        return maker.project([maker.alias(given, wanted) for given, wanted in pairs], plan)

    def nothing(self, columns: Sequence[JavaObject]) -> JavaObject:
        return self.catalyst.empty_relation(columns)

    def above(self, operator: Operator, plan: JavaObject) -> JavaObject:
        """The input that reads an operator, over the operator's rows alone."""
        others = {each: self.nothing(each.output) for each in operator.target.operators() if each is not operator}
        return assembled(self.catalyst, operator.target.tree, {**others, operator: plan})

    def run(self, target: Input, variants: Sequence[Variant], kept_after: int = NOTHING_DROPPED) -> Bag:
        """The rows of all variants of an input, as one change.

        :param kept_after: rows whose time is not after this one are left out, if the input has times.
        """
        codec = self.codec(target)
        frames = [self._selected(target, each) for each in variants]
        together = frames[0]
        for each in frames[1:]:
            together = together.union(each)
        made = together.toArrow()
        if target.time is not None:
            made = made.filter(pc.greater(made.column(time_column(target)), kept_after))
        weights = np.asarray(made.column(WEIGHT).to_numpy(), dtype=np.int64)
        return Bag.of(codec, made.select(codec.schema.names).cast(codec.schema), made.column(KEY).to_pylist(), weights)

    def _selected(self, target: Input, variant: Variant) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        known = self._selections.get((id(target), variant.weight))
        if known is None:
            weight = F.lit(variant.weight).cast("bigint").alias(WEIGHT)
            known = self._selections[id(target), variant.weight] = [*state_columns(self.catalyst, target), weight]
        return self.catalyst.frame(variant.plan).select(*known)


def state_columns(catalyst: Catalyst, target: Input) -> list[Column]:
    """The columns of an input, the time of its rows if it has one, and the hash of its key."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = [catalyst.column(each) for each in target.keys]
    key = F.xxhash64(*keys) if keys else F.lit(0).cast("bigint")
    columns = [sent(catalyst, each).alias(f"c{at}") for at, each in enumerate(target.columns)]
    if target.time is not None:
        columns.append(spark_us(catalyst.column(target.time)).alias(time_column(target)))
    return [*columns, key.alias(KEY)]


def time_column(target: Input) -> str:
    """The name of the column with the time of an input's rows, which follows its other columns."""
    return f"c{len(target.columns)}"


def without_time(target: Input, rows: pa.Table) -> pa.Table:
    return rows if target.time is None else rows.drop_columns([time_column(target)])


def _stored_struct(target: Input) -> StructType:
    from pyspark.sql.types import LongType

    made = struct_of(target.columns)
    return made if target.time is None else made.add(time_column(target), LongType())


def struct_of(columns: Sequence[JavaObject]) -> StructType:
    """The columns as a schema with names that do not depend on the query."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f"c{at}", _sent_type(each)) for at, each in enumerate(columns)])


def sent(catalyst: Catalyst, column: JavaObject) -> Column:
    """The column as it is sent between this process and the JVM. Spark cannot send a NULL of type VARIANT as Arrow."""
    from pyspark.sql import functions as F  # noqa: N812

    made = catalyst.column(column)
    return F.to_json(made) if _is_variant(column) else made


def _sent_type(column: JavaObject) -> DataType:
    from pyspark.sql.types import StringType

    return StringType() if _is_variant(column) else data_type(column)


def _restored(name: str, column: JavaObject) -> Column:
    """The inverse of :func:`sent`."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.parse_json(F.col(name)).alias(name) if _is_variant(column) else F.col(name)


def _is_variant(column: JavaObject) -> bool:
    return str(column.dataType().typeName()) == "variant"
