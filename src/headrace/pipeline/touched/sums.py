"""Rewrites aggregates whose results follow from sums, so that one row per group is kept instead of all rows.

count, sum and avg over whole numbers, and sum over decimals, can be computed from sums to which rows can be added and
from which rows can be subtracted, exactly and in any order. Such an Aggregate becomes three nodes::

    Project     the results, from the sums                  count: c   sum: NULL if n is 0, else s   avg: s / n
    Aggregate   the sum of each column below, by group
    Project     the groups, and per row the columns to add  c: 1       s: the value, or 0            n: 1, or 0 for NULL

The Aggregate gives the same result over rows and over sums of rows. So its input is kept as one row per group: a change
is added to this row (:func:`added_up`). A group whose c becomes 0 is gone. If rows are dropped by their time
(``keeping``), the time is a function of the groups, and is kept with them.

Other aggregates keep their rows: sums of doubles depend on the order of the rows, min and max do not know the next
value when a row is removed, and groups of doubles or of texts with a collation are equal in more ways than their bytes.

s is a decimal of 38 digits, so it does not overflow. A result that does not fit the type of the function raises an
error, as it does in Spark in ANSI mode; without ANSI mode nothing is rewritten. Spark computes avg over whole numbers
by adding up doubles, whose order matters beyond 2^53; here the sum is exact, and divided once.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.query.grouping import is_session_window
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, items, kind, walk
from headrace.pipeline.touched.bag import Bag

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from headrace.pipeline.touched.row_codec import RowCodec

_FUNCTIONS = {"Count", "Sum", "Average"}
#: A sum of decimals has 10 digits more than its values, and at most 38.
_MAX_DIGITS = 28
_EXACT = Context(prec=100)
_PREFIX = "_headrace_"


class Summed(NamedTuple):
    """
    :ivar results: the Project at the top.
    :ivar sums: the Aggregate.
    :ivar groups: how many columns of its input are groups; the others are added up.
    :ivar key_texts: the groups as the query has them.
    """

    results: JavaObject
    sums: JavaObject
    groups: int
    key_texts: tuple[str, ...]


def summed(catalyst: Catalyst, node: JavaObject) -> Summed | None:
    """The nodes that take the place of an Aggregate; None if it has to keep its rows."""
    grouping = [each.child() if kind(each) == "Alias" else each for each in items(node.groupingExpressions())]
    outputs = items(node.aggregateExpressions())
    functions = [part for each in outputs for part in walk(each) if kind(part) in ("AggregateExpression", "PythonUDAF")]
    if not functions or not all(map(_is_summable, functions)):
        return None
    if any(is_session_window(each) or not _is_plain(data_type(each)) for each in grouping):
        return None
    if any(one.semanticEquals(other) for at, one in enumerate(grouping) for other in grouping[:at]):
        return None
    return _Rewriting(catalyst, node, grouping, functions).made()


def _is_summable(function: JavaObject) -> bool:
    from pyspark.sql.types import DecimalType, IntegralType

    if kind(function) != "AggregateExpression" or function.isDistinct():
        return False
    inner = function.aggregateFunction()
    if kind(inner) not in _FUNCTIONS:
        return False
    if kind(inner) == "Count":
        return True
    (value,) = children(inner)
    type_ = data_type(value)
    is_whole = isinstance(type_, IntegralType)
    if kind(inner) == "Average":
        return is_whole and _raises(inner)
    return _raises(inner) and (is_whole or (isinstance(type_, DecimalType) and type_.precision <= _MAX_DIGITS))


def _raises(function: JavaObject) -> bool:
    """Whether the function raises an error if its result does not fit: not in try_sum, nor without ANSI mode."""
    holder = function.evalContext() if kind(function) == "Sum" else function
    return str(holder.evalMode().toString()) == "ANSI"


def _is_plain(type_: DataType) -> bool:
    """Whether values of this type are equal if and only if their bytes are."""
    from pyspark.sql import types

    if isinstance(type_, types.StructType):
        return all(_is_plain(field.dataType) for field in type_)
    if isinstance(type_, types.StringType):
        return type_ == types.StringType()
    return isinstance(type_, types.IntegralType | types.BooleanType | types.DecimalType | types.BinaryType
                      | types.DateType | types.TimestampType | types.TimestampNTZType)  # fmt: skip


class _Rewriting:
    def __init__(
        self, catalyst: Catalyst, node: JavaObject, grouping: list[JavaObject], functions: list[JavaObject]
    ) -> None:
        self._catalyst, self._node = catalyst, node
        self._grouping, self._functions = grouping, functions
        #: The columns to add, by name.
        self._added: dict[str, Column] = {}

    def made(self) -> Summed:
        from pyspark.sql import functions as F  # noqa: N812

        self._added[f"{_PREFIX}c"] = F.lit(1).cast("bigint")
        results = [self._result(at, each) for at, each in enumerate(self._functions)]
        (child,) = children(self._node)
        added = [each.alias(name) for name, each in self._added.items()]
        rows = self._catalyst.select(child, [*map(self._group, range(len(self._grouping))), *added])
        columns = [self._catalyst.column(each) for each in items(rows.output())]
        groups, values = columns[: len(self._grouping)], columns[len(self._grouping) :]
        sums = [F.sum(each).alias(name) for each, name in zip(values, self._added, strict=True)]
        aggregate = self._catalyst.frame(rows).groupBy(*groups).agg(*sums)._jdf.queryExecution().analyzed()
        texts = tuple(str(each.sql()) for each in self._grouping)
        return Summed(self._top(aggregate, results), aggregate, len(groups), texts)

    def _group(self, at: int) -> Column:
        """A column of the query stays the same column; an expression gets a name."""
        expression = self._grouping[at]
        made = self._catalyst.column(expression)
        return made if kind(expression) == "AttributeReference" else made.alias(f"{_PREFIX}g{at}")

    def _result(self, at: int, function: JavaObject) -> Column:
        """The result of a function, from the columns with the sums."""
        from pyspark.sql import functions as F  # noqa: N812

        inner, type_ = function.aggregateFunction(), data_type(function)
        parts = [self._catalyst.column(each) for each in children(inner)]
        has_filter = function.filter().isDefined()
        # The condition first: a value is not computed for a row that the condition leaves out.
        is_there = (
            F.coalesce(self._catalyst.column(function.filter().get()), F.lit(False)) if has_filter else F.lit(True)
        )
        for part in parts:
            is_there = is_there & part.isNotNull()
        count_name, sum_name = f"{_PREFIX}n{at}", f"{_PREFIX}s{at}"
        self._added[count_name] = F.when(is_there, 1).otherwise(0).cast("bigint")
        count = F.coalesce(F.col(count_name), F.lit(0))
        if kind(inner) == "Count":
            return count.cast("bigint")
        kept = f"decimal(38,{getattr(data_type(children(inner)[0]), 'scale', 0)})"
        self._added[sum_name] = F.when(is_there, parts[0].cast(kept)).otherwise(F.lit(0).cast(kept))
        total = F.col(sum_name)
        if kind(inner) == "Average":
            return F.when(count > 0, total.cast("double") / count.cast("double"))
        return F.when(count > 0, total.cast(type_))

    def _top(self, aggregate: JavaObject, results: Sequence[Column]) -> JavaObject:
        """The Project with the outputs of the node, over the sums."""
        given = items(aggregate.output())
        resolved = self._catalyst.select(aggregate, [each.alias(f"r{at}") for at, each in enumerate(results)])
        values = [each.child() for each in items(resolved.projectList())]

        def replace(part: JavaObject) -> JavaObject | None:
            for function, value in zip(self._functions, values, strict=True):
                if part.equals(function):
                    return value
            return next((given[at] for at, each in enumerate(self._grouping) if part.semanticEquals(each)), None)

        outputs = []
        for output, like in zip(items(self._node.aggregateExpressions()), items(self._node.output()), strict=True):
            if kind(output) == "Alias":
                outputs.append(self._catalyst.alias(self._catalyst.rewrite(output.child(), replace), like))
            else:  # a column of the query: another column with the same id would be renamed by Spark
                outputs.append(self._catalyst.rewrite(output, replace))
        return self._catalyst.project(outputs, aggregate)


def added_up(codec: RowCodec, groups: int, old: Bag, change: Bag, *, has_times: bool = False) -> Bag:
    """The change of the kept sums.

    :param groups: how many columns are groups. The first column after them is the number of rows.
    :param has_times: whether the last column is the time of a group.
    :param old: the sums of the groups that occur in the change.
    :param change: rows to add or to subtract.
    """
    both = pa.concat_tables([old.rows, change.rows]).select(codec.schema.names)
    counts, keys = [*old.counts, *change.counts], [*old.keys, *change.keys]
    names = codec.schema.names
    times = names[-1:] if has_times else []
    added = names[groups : len(names) - len(times)]
    encoded = codec.encode(both)[:groups]
    of_group = list(zip(*encoded, strict=True)) if groups else [()] * len(keys)
    values = list(zip(*(both.column(name).to_pylist() for name in added), strict=True))
    totals: dict[tuple[object, ...], list[int | Decimal]] = {}
    first: dict[tuple[object, ...], int] = {}
    for at, (group, weight, row) in enumerate(zip(of_group, counts, values, strict=True)):
        known = totals.setdefault(group, [0] * len(row))
        first.setdefault(group, at)
        for place, value in enumerate(row):
            known[place] = _plus(known[place], value, weight)
    left = [group for group, sums in totals.items() if sums[0]]
    places = pa.array([first[group] for group in left], pa.int64())
    sums = [
        pa.array([totals[group][at] for group in left], codec.schema.field(groups + at).type)
        for at in range(len(added))
    ]
    first_rows = both.take(places)
    kept = [first_rows.select(names[:groups]).columns, sums, first_rows.select(times).columns]
    new = pa.table([column for columns in kept for column in columns], schema=codec.schema)
    rows = pa.concat_tables([old.rows.select(names), new])
    weights = np.asarray([*(-count for count in old.counts), *([1] * len(left))], dtype=np.int64)
    return Bag.of(codec, rows, [*old.keys, *(keys[first[group]] for group in left)], weights)


def _plus(total: int | Decimal, value: int | Decimal, weight: int) -> int | Decimal:
    if isinstance(value, int) and isinstance(total, int):
        return total + weight * value
    return _EXACT.add(Decimal(total), _EXACT.multiply(Decimal(value), Decimal(weight)))
