"""The algebra of partial results: computes the answer of a query over all events from answers over ranges of them.

    partial(events of a range)   one row per key: the key columns _k0, ... and partial columns _p0, ...  (by Spark)
    merge(partial tables)        the same columns, one row per key                                       (by Arrow)
    final(merged)                the output columns of the query, row by row, and _hidden                (by Arrow, or
                                 by Spark's code if the query computes with its aggregates)

Two laws hold for every function (``tests/pipeline/query/test_aggregate_laws.py``):

* For any split of the events into ranges, final(merge(partials)) is the query over all events.
* A row of ``partial`` whose key is unique is already merged: merge([partial]) has the same rows as partial. So the
  tables that Spark computes are stored as they are.

=======================  ==========================================  =============================================
function                 partial columns                             combined by
=======================  ==========================================  =============================================
count, count_if          p                                           sum
sum                      p                                           sum
min, max, bool_and/or    p                                           min, max
avg                      p_sum, p_count                              sums
approx_count_distinct    p, registers of HyperLogLog++               the larger registers
first, last              p and p_timestamp, p_topic, p_partition,    the earliest or latest by these
                         p_offset
min_by, max_by           p and p_by, p_topic, p_partition, p_offset  the smallest or largest by these
=======================  ==========================================  =============================================

Types are Spark's. Sums of decimals are exact. Sums of doubles depend on the order of addition, as in Spark. first and
last are the first and last by time, then topic, partition and offset; Spark itself takes whichever row comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.query.combining import Combination, Rule, combine, overflow
from headrace.pipeline.query.distinct_sketch import estimates, precision, register_column, registers_column
from headrace.pipeline.query.plan import HIDDEN, POSITION, AggregatePlan, Function, NotCombinable
from headrace.pipeline.query.row_functions import RowFunction
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.spark.catalyst import chain, data_type, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

#: Types that a database does not store exactly are stored as their bits: SQLite has no NaN, and neither database has
#: years after 9999.
_BITS = {
    pa.float64(): pa.int64(),
    pa.float32(): pa.int32(),
    pa.timestamp("us"): pa.int64(),
    pa.timestamp("us", "UTC"): pa.int64(),
    pa.date32(): pa.int32(),
}
#: Digits after the decimal point of a quotient of two decimals, before Spark rounds it to the type of the result.
_SCALE_OF_QUOTIENTS = 39
_RULES = {"count": Rule.SUM, "sum": Rule.SUM, "min": Rule.MIN, "max": Rule.MAX}


@dataclass(frozen=True)
class _Part:
    """The partial columns of one function.

    :param columns: aggregates over all rows of a group.
    :param of_row: the same for a group of one row, without aggregating.
    """

    function: Function
    columns: dict[str, Column]
    of_row: dict[str, Column]
    combinations: tuple[Combination, ...]


class Algebra:
    """The three steps for one query. Reuse the object: creating it takes as long as analyzing the query.

    :ivar schema: the columns of partial tables: key columns, then partial columns.
    :ivar key_columns: the columns of ``schema`` that form the key of a row; empty for one total over everything.
    :ivar parts: the partial columns of each function.
    :ivar values_schema: the key columns, and the columns _f of the functions.
    :ivar final_schema: the columns of ``final``: the output columns, ``_order_n`` if any, ``_hidden``.
    :ivar exact_columns: the decimals among the partial columns. A table must store all their digits
        (``serving.tables.data_table``). Tables of partial rows have the ``stored_schema``.
    """

    def __init__(self, plan: AggregatePlan) -> None:
        self.plan = plan
        self.parts = [_part(plan, function, f"_p{number}") for number, function in enumerate(plan.functions)]
        self.key_columns = plan.key_columns
        aggregated = self._aggregated(plan.rows())
        self._partial_chain = chain(plan.catalyst.analyzed(aggregated))
        self._partial_types = aggregated.schema
        self.schema: pa.Schema = arrow_schema(aggregated.schema)
        self.exact_columns = tuple(field.name for field in self.schema if pa.types.is_decimal(field.type))
        self.values_schema = self._schema_of_values()
        outputs = plan.outputs(plan.catalyst.frame(plan.above[-1]))
        self.final_schema: pa.Schema = arrow_schema(outputs.schema)
        self._plain_outputs = _plain_outputs(outputs)
        self._finish = None if self._plain_outputs else RowFunction.prepare(outputs, self.final_schema)

    # ---------------------------------------------------------------------------------------------------- partial

    def partial(self, events: DataFrame) -> DataFrame:
        """Partial rows over these events. The frame has the columns of the frame that the query was built on."""
        catalyst = self.plan.catalyst
        return catalyst.frame(catalyst.replace_leaf(self._partial_chain, events))

    def collect(self, events: DataFrame) -> pa.Table:
        """``partial``, computed and returned to this process."""
        return self.partial(events).toArrow().cast(self.schema)

    def row_columns(self) -> list[Column]:
        """Partial rows of single events, over ``plan.rows()``. Merged, they are the partial rows of all events."""
        from pyspark.sql.types import DoubleType, FloatType

        keys = dict(zip(self.key_columns, self.plan.key_expressions(), strict=True))
        for name in keys:
            if isinstance(self._partial_types[name].dataType, DoubleType | FloatType):
                keys[name] = keys[name] + 0  # Spark groups -0.0 as 0.0
        columns = keys | {name: column for part in self.parts for name, column in part.of_row.items()}
        return [columns[field.name].cast(field.dataType).alias(field.name) for field in self._partial_types]

    def _aggregated(self, rows: DataFrame) -> DataFrame:
        keys = self.plan.key_expressions()
        columns = [column.alias(name) for part in self.parts for name, column in part.columns.items()]
        if columns:
            return rows.groupBy(*keys).agg(*columns)
        return rows.select(*keys).distinct()

    # ----------------------------------------------------------------------------------------------------- storing

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of partial tables in a database: doubles and times are stored as their bits, as integers."""
        return pa.schema([pa.field(field.name, _BITS.get(field.type, field.type)) for field in self.schema])

    def stored(self, partial: pa.Table) -> pa.Table:
        """A partial table as it is stored in a database. ``loaded`` is the inverse."""
        columns = [partial.column(field.name) for field in self.schema]
        return pa.table([viewed(each, _BITS.get(each.type)) for each in columns], schema=self.stored_schema)

    def loaded(self, stored: pa.Table) -> pa.Table:
        columns = [stored.column(field.name) for field in self.schema]
        kinds = [field.type if field.type in _BITS else None for field in self.schema]
        return pa.table([viewed(*each) for each in zip(columns, kinds, strict=True)], schema=self.schema)

    # ------------------------------------------------------------------------------------------------ merge, final

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        """One row per key. A total over everything has one row even without input."""
        rows = pa.concat_tables(
            [self.schema.empty_table(), *(each.select(self.schema.names).cast(self.schema) for each in tables)]
        )
        if rows.num_rows == 0 and not self.key_columns:
            return self._nothing()
        combinations = [each for part in self.parts for each in part.combinations]
        return combine(rows.combine_chunks(), self.key_columns, combinations)

    def final(self, merged: pa.Table) -> pa.Table:
        """The rows that readers see, in the order of the input."""
        values = pa.table(
            [merged.column(name) for name in self.key_columns] + [self._value(part, merged) for part in self.parts],
            schema=self.values_schema,
        )
        if self._plain_outputs is None:
            return self._finish(values) if self._finish else self._by_spark(values)
        columns = [
            pa.repeat(pa.scalar(False), len(values)) if source is None else values.column(source)
            for source in self._plain_outputs
        ]
        return pa.table(
            [column.cast(field.type) for column, field in zip(columns, self.final_schema, strict=True)],
            schema=self.final_schema,
        )

    def _by_spark(self, values: pa.Table) -> pa.Table:
        frame = self.plan.catalyst.spark.createDataFrame(values)
        return self.plan.outputs(frame.coalesce(1)).toArrow().cast(self.final_schema)

    def _nothing(self) -> pa.Table:
        counts = {column for part in self.parts for column in _counts(part)}
        columns = [pa.array([0 if field.name in counts else None], field.type) for field in self.schema]
        return pa.table(columns, schema=self.schema)

    def _schema_of_values(self) -> pa.Schema:
        from pyspark.sql.types import StructField, StructType

        keys = [self.schema.field(name) for name in self.key_columns]
        types = StructType([StructField(part.function.column, part.function.type) for part in self.parts])
        return pa.schema([*keys, *arrow_schema(types)])

    def _value(self, part: _Part, merged: pa.Table) -> pa.ChunkedArray:
        function, (name, *_) = part.function, part.columns
        type_ = self.values_schema.field(function.column).type
        if function.how == "avg":
            return averages(merged.column(f"{name}"), merged.column(f"{name.removesuffix('_sum')}_count"), type_)
        if function.how == "approx_count_distinct":
            sketch = function.expression.aggregateFunction()
            helper = self.plan.catalyst.hyper_log_log(sketch)
            return pa.chunked_array([estimates(merged.column(name), _precision(function), helper.estimateBias)])
        return merged.column(name).cast(type_)


# ---------------------------------------------------------------------------------------------------- partial columns


def _part(plan: AggregatePlan, function: Function, name: str) -> _Part:
    if function.how in _RULES:
        column = plan.catalyst.column(function.expression)
        of_row = _count_of_row(plan, function) if function.how == "count" else _argument(plan, function)
        return _Part(function, {name: column}, {name: of_row}, (Combination(_RULES[function.how], (name,)),))
    make = {"avg": _average_part, "approx_count_distinct": _distinct_part, "first": _first_part, "last": _first_part,
            "min_by": _by_part, "max_by": _by_part}[function.how]  # fmt: skip
    return make(plan, function, name)


def _argument(plan: AggregatePlan, function: Function, index: int = 0) -> Column:
    """An argument, NULL where the FILTER of the function does not hold."""
    from pyspark.sql import functions as F  # noqa: N812

    column = plan.catalyst.column(function.arguments[index])
    return column if function.filter is None else F.when(plan.catalyst.column(function.filter), column)


def _count_of_row(plan: AggregatePlan, function: Function) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    arguments = [_argument(plan, function, index) for index in range(len(function.arguments))]
    if kind(function.expression.aggregateFunction()) == "CountIf":
        return F.when(arguments[0], 1).otherwise(0)
    counts = reduce(lambda one, other: one & other, [each.isNotNull() for each in arguments])
    return F.when(counts, 1).otherwise(0)


def _average_part(plan: AggregatePlan, function: Function, name: str) -> _Part:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DecimalType

    value = _argument(plan, function)
    summand = value if isinstance(data_type(function.arguments[0]), DecimalType) else value.cast("double")
    columns = {f"{name}_sum": F.sum(summand), f"{name}_count": F.count(value)}
    of_row = {f"{name}_sum": summand, f"{name}_count": F.when(value.isNotNull(), 1).otherwise(0)}
    return _Part(function, columns, of_row, tuple(Combination(Rule.SUM, (each,)) for each in columns))


def _distinct_part(plan: AggregatePlan, function: Function, name: str) -> _Part:
    value, p = _argument(plan, function), _precision(function)
    columns, of_row = {name: registers_column(value, p)}, {name: register_column(value, p)}
    return _Part(function, columns, of_row, (Combination(Rule.UNION, (name,)),))


def _precision(function: Function) -> int:
    return precision(float(function.expression.aggregateFunction().relativeSD()))


def _first_part(plan: AggregatePlan, function: Function, name: str) -> _Part:
    """first and last: the value with the smallest or largest (timestamp, topic, partition, offset)."""
    missing = [each for each in POSITION if each not in plan.position]
    if missing:
        raise NotCombinable(
            f"{function.how}() needs the column {missing[0]}, which a subquery leaves out: add it to the subquery"
        )
    return _chosen_part(plan, function, name, {}, ignore_nulls=function.ignores_nulls)


def _by_part(plan: AggregatePlan, function: Function, name: str) -> _Part:
    return _chosen_part(plan, function, name, {f"{name}_by": plan.catalyst.column(function.arguments[1])})


def _chosen_part(
    plan: AggregatePlan, function: Function, name: str, by: dict[str, Column], *, ignore_nulls: bool = False
) -> _Part:
    from pyspark.sql import functions as F  # noqa: N812

    value = plan.catalyst.column(function.arguments[0])
    position = {f"{name}{each}": plan.catalyst.column(attribute) for each, attribute in plan.position.items()}
    order = by | position
    counts = next(iter(order.values())).isNotNull()
    if function.filter is not None:
        counts = counts & plan.catalyst.column(function.filter)
    if ignore_nulls:
        counts = counts & value.isNotNull()
    place = F.when(counts, F.struct(*(column.alias(each) for each, column in order.items())))
    is_first = function.how in ("first", "min_by")
    extreme, value_at = (F.min(place), F.min_by(value, place)) if is_first else (F.max(place), F.max_by(value, place))
    columns = {name: value_at} | {each: extreme.getField(each) for each in order}
    of_row = {each: F.when(counts, column) for each, column in ({name: value} | order).items()}
    rule = Rule.FIRST if is_first else Rule.LAST
    return _Part(function, columns, of_row, (Combination(rule, tuple(columns), tuple(order)),))


def _counts(part: _Part) -> list[str]:
    names = list(part.columns)
    return {"count": names, "avg": names[1:]}.get(part.function.how, [])


# ------------------------------------------------------------------------------------------------------------- final


def averages(sums: pa.ChunkedArray, counts: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_decimal(type_):
        return pc.divide(sums, counts.cast(pa.float64())).cast(type_)
    averages = [
        None if total is None else _decimal_average(total, count, type_)
        for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
    ]
    return pa.chunked_array([averages], type_)


def _decimal_average(total: Decimal, count: int, type_: pa.DataType) -> Decimal:
    """As in Spark: rounded to 39 digits after the decimal point, and then to the scale of the type."""
    numerator, denominator = total.as_integer_ratio()
    long = _half_up(numerator * 10**_SCALE_OF_QUOTIENTS, denominator * count)
    unscaled = _half_up(long, 10 ** (_SCALE_OF_QUOTIENTS - type_.scale))
    if abs(unscaled) >= 10**type_.precision:
        raise overflow("an average", type_)
    return Decimal(unscaled).scaleb(-type_.scale, Context(prec=type_.precision))


def _half_up(numerator: int, denominator: int) -> int:
    """The quotient as a whole number. Halves are rounded away from zero."""
    whole, rest = divmod(abs(numerator), denominator)
    rounded = whole + (2 * rest >= denominator)
    return -rounded if numerator < 0 else rounded


def viewed(column: pa.ChunkedArray, kind_: pa.DataType | None) -> pa.ChunkedArray:
    """The same bits as another type."""
    return column if kind_ is None else pa.chunked_array([chunk.view(kind_) for chunk in column.chunks], kind_)


def _plain_outputs(outputs: DataFrame) -> list[str | None] | None:
    """For each output, the column _k or _f that it shows; None for a _hidden that is always false.

    None instead of a list if an output is computed: then Spark has to compute it. Spark's optimizer has merged all
    projections into one.
    """
    optimized = outputs._jdf.queryExecution().optimizedPlan()
    expressions = items(optimized.projectList() if kind(optimized) == "Project" else optimized.output())
    found: list[str | None] = []
    for expression in expressions:
        inner = expression.child() if kind(expression) == "Alias" else expression
        if kind(inner) == "AttributeReference":
            found.append(str(inner.name()))
        elif str(expression.name()) == HIDDEN and kind(inner) == "Literal":
            found.append(None)
        else:
            return None
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's columns as an Arrow schema, with times in UTC.

    :raises UnsuitableSchema: if Arrow has no type for a column.
    """
    # Every column may be NULL: the tables of the serving database have no NOT NULL.
    return pa.schema([pa.field(field.name, _arrow_type(field)) for field in schema])


def _arrow_type(field: StructField) -> pa.DataType:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
    except PySparkTypeError as error:
        what = f"column {field.name!r} has the type {field.dataType.simpleString()}, which no table can store"
        raise UnsuitableSchema(f"{what}: cast it in the query") from error
