"""Decides what the SQL view may sort by, so that the order of rows is Spark's in both databases.

Numbers, texts, times and booleans sort in a database as they do in Spark, with one exception: NaN is Spark's largest
number, and SQLite stores it as NULL. So a column before the number says whether it is NaN. Arrays and structs are
stored as JSON, which does not sort as they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, data_type

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def sorts_alike(type_: DataType) -> bool:
    """Whether a database sorts values of this type as Spark does."""
    from pyspark.sql import types

    if isinstance(type_, types.StringType):
        return type_.collation == "UTF8_BINARY"
    return isinstance(
        type_,
        types.BinaryType
        | types.BooleanType
        | types.NumericType
        | types.DateType
        | types.TimestampType
        | types.TimestampNTZType
        | types.DayTimeIntervalType
        | types.NullType,
    )


def nan_flag(catalyst: Catalyst, expression: JavaObject) -> Column | None:
    """Returns the expression to sort by first, in the same direction; None if no such expression is needed."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DoubleType, FloatType

    if not isinstance(data_type(expression), DoubleType | FloatType):
        return None
    column = catalyst.column(expression)
    return F.when(column.isNotNull(), F.isnan(column))
