"""Decides from the plan of a query whether its answer can be combined from answers over parts of the events.

A query can run as a Lambda view if its plan is one chain:

    Sort, Limit, Project, Filter (HAVING)     above     row by row over the groups; Sort and Limit go to the SQL view
    Aggregate                                           keys and functions that ``aggregates`` can combine
    Project, Filter, Generate, Expand         below     row by row over the events
    a relation                                          the events

``analyze`` cuts the plan at the Aggregate. Columns get names that do not depend on the query: ``_k0, _k1, ...`` are the
keys, and ``_f0, _f1, ...`` are the values of the functions. A struct, such as a time window, becomes one column per
field: ``_k0_start``, ``_k0_end``. ``AggregatePlan.rows`` runs the lower part over any frame of events.
``AggregatePlan.outputs`` runs the upper part over any frame with the columns _k and _f.

HAVING does not remove rows here, because a stored row of a group that no longer qualifies has to be hidden. So
``outputs`` has all groups, with the column ``_hidden``. The columns ``_order_0, ...`` are sort keys that are not output
columns.

Any other query is refused with ``NotCombinable`` and a reason. No query is ever computed approximately instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipeline.query.grouping import is_session_window, is_window
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

HIDDEN = "_hidden"
ORDER = "_order_"
#: The position of an event in the log. In this order the columns break ties, so that every run has the same answer.
POSITION = ("_timestamp", "_topic", "_partition", "_offset")

_TRANSPARENT = {"SubqueryAlias", "View", "EventTimeWatermark", "ResolvedHint", "Repartition", "RepartitionByExpression"}
_ROW_WISE = {"Project", "Filter", "Generate", "Expand"}
#: How Spark calls a frame of rows from Python, which stands for the events.
_EVENTS = "LogicalRDD"
_REASONS = {
    "Join": "it has a JOIN",
    "AsOfJoin": "it has a JOIN",
    "Union": "it combines queries with UNION",
    "Intersect": "it combines queries with INTERSECT",
    "Except": "it combines queries with EXCEPT",
    "Window": "it uses window functions (OVER)",
    "Sort": "it has an ORDER BY inside of a subquery",
    "GlobalLimit": "it has a LIMIT inside of a subquery",
    "LocalLimit": "it has a LIMIT inside of a subquery",
    "Offset": "it has an OFFSET",
    "Tail": "it takes the last rows (tail)",
    "Sample": "it takes a sample",
    "Aggregate": "it aggregates rows that are already aggregated",
    "Distinct": "it has a DISTINCT in addition to its aggregate",
    "Deduplicate": "it drops duplicates",
    "OneRowRelation": "it does not read the events",
    "UpdatingSessions": "two session windows may merge into one",
    "Pivot": "it has a PIVOT",
}  # fmt: skip

#: For each Catalyst class, how its values are combined; see ``aggregates``.
FUNCTIONS = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "min",
    "BoolOr": "max",
    "Average": "avg",
    "HyperLogLogPlusPlus": "approx_count_distinct",
    "First": "first",
    "Last": "last",
    "AnyValue": "first",
    "MinBy": "min_by",
    "MaxBy": "max_by",
}


class NotCombinable(Exception):
    """The answer of the query over all events cannot be combined from answers over parts of them."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this query cannot run as a Lambda view: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Key:
    """A key that the query groups by.

    :param columns: one column; for a struct, one column per field.
    """

    columns: tuple[str, ...]
    fields: tuple[str, ...]
    expression: JavaObject


@dataclass(frozen=True)
class Function:
    """An aggregate function of the query.

    :param column: ``_f0``, ...: the column of its value.
    :param how: how its values are combined, one of the values of ``FUNCTIONS``.
    :param expression: the whole Catalyst expression, with its FILTER.
    """

    column: str
    how: str
    type: DataType
    arguments: tuple[JavaObject, ...]
    filter: JavaObject | None
    expression: JavaObject

    @property
    def ignores_nulls(self) -> bool:
        """``first(x, true)``. Only first and last have this property."""
        return bool(self.expression.aggregateFunction().ignoreNulls())


@dataclass(frozen=True)
class SortBy:
    """A term of ORDER BY. ``column`` is an output column or ``_order_n``."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class AggregatePlan:
    """A query that can run as a Lambda view.

    :param output: the names of the columns that readers see.
    :param order: the terms by which the SQL view sorts; empty if the query has no ORDER BY.
    :param limit: the LIMIT of the SQL view.
    :param position: the columns of ``POSITION`` that the events have, for ties.
    """

    catalyst: Catalyst
    keys: tuple[Key, ...]
    functions: tuple[Function, ...]
    output: tuple[str, ...]
    order: tuple[SortBy, ...]
    limit: int | None
    position: dict[str, JavaObject]
    below: tuple[JavaObject, ...]
    above: tuple[JavaObject, ...]

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(column for key in self.keys for column in key.columns)

    def rows(self, events: DataFrame | None = None) -> DataFrame:
        """The input of the Aggregate for these events; without events, for those that the query was built on."""
        if events is None:
            return self.catalyst.frame(self.below[0])
        return self.catalyst.frame(self.catalyst.replace_leaf(self.below, events))

    def outputs(self, values: DataFrame) -> DataFrame:
        """The output columns of the query, ``_order_n`` and ``_hidden``, computed from the columns _k and _f."""
        return self.catalyst.frame(self.catalyst.replace_leaf(self.above, values))

    def key_expressions(self) -> list[Column]:
        """The columns ``key_columns`` over ``rows()``."""
        named = []
        for key in self.keys:
            column = self.catalyst.column(key.expression)
            parts = [column.getField(field) for field in key.fields] or [column]
            named += [part.alias(name) for part, name in zip(parts, key.columns, strict=True)]
        return named


def analyze(frame: DataFrame) -> AggregatePlan:
    """Cuts the query at its Aggregate.

    :raises NotCombinable: if the query has no Aggregate, several, or anything that cannot be combined.
    """
    from headrace.pipeline.query.plan_above import build_above

    catalyst = Catalyst(frame.sparkSession)
    top = catalyst.analyzed(frame)
    above, aggregate = _find_aggregate(top)
    below = _below(children(aggregate)[0])
    _check_expressions(catalyst, top, (*above, *below))
    keys, outputs = _grouping(aggregate)
    functions = _functions(catalyst, outputs)
    if any(function.how in ("first", "last", "min_by", "max_by") for function in functions):
        below = _widen(catalyst, below)
    offered = {str(each.name()): each for each in items(below[-1].output()) if str(each.name()) in POSITION}
    visible = {expression_id(each) for each in items(below[0].output())}
    position = {name: offered[name] for name in POSITION if name in offered and expression_id(offered[name]) in visible}
    upper = build_above(catalyst, top, above, outputs, keys, functions)
    names = tuple(str(each.name()) for each in items(top.output()))
    return AggregatePlan(catalyst, keys, functions, names, upper.order, upper.limit, position, below, upper.chain)


def _find_aggregate(top: JavaObject) -> tuple[list[JavaObject], JavaObject]:
    """The nodes above the Aggregate, topmost first, and the Aggregate itself. A DISTINCT counts as an Aggregate."""
    above: list[JavaObject] = []
    node = top
    while True:
        what = kind(node)
        if what == "Aggregate" or (what == "Distinct" and not _has_aggregate(node)):
            return above, node
        if what not in _TRANSPARENT:
            if what not in ("Project", "Filter", "Sort", "GlobalLimit", "LocalLimit"):
                _refuse(node)
            above.append(node)
        below = children(node)
        if not below:
            raise NotCombinable("it does not aggregate")
        node = below[0]


def _has_aggregate(node: JavaObject) -> bool:
    return any(kind(each) == "Aggregate" for each in walk(node)[1:])


def _below(node: JavaObject) -> tuple[JavaObject, ...]:
    """The nodes below the Aggregate without those that have no effect. The last one is the relation of the events.

    :raises NotCombinable: also if the relation has other rows, such as VALUES. New events would count them again.
    """
    chain = []
    while True:
        what, below = kind(node), children(node)
        if what not in _TRANSPARENT:
            if below and what not in _ROW_WISE:
                _refuse(node)
            if not below and what != _EVENTS:
                raise NotCombinable("it does not read the events")
            chain.append(node)
        if not below:
            return tuple(chain)
        node = below[0]


def _refuse(node: JavaObject) -> None:
    what = kind(node)
    if not children(node) and what not in _REASONS:
        raise NotCombinable("it does not aggregate")
    raise NotCombinable(_REASONS.get(what, f"it has the operator {what}, which Headrace cannot compute row by row"))


def _check_expressions(catalyst: Catalyst, top: JavaObject, nodes: Sequence[JavaObject]) -> None:
    if catalyst.contains(top, "PLAN_EXPRESSION"):
        raise NotCombinable("it has a subquery inside of an expression")
    if catalyst.contains(top, "WINDOW_EXPRESSION"):
        raise NotCombinable(_REASONS["Window"])
    if catalyst.contains(top, "CURRENT_LIKE"):
        raise NotCombinable("it uses the current time, which changes")
    for node in nodes:
        for expression in items(node.expressions()):
            if not expression.deterministic():
                raise NotCombinable(f"{expression.sql()} has a different value each time it is computed")


def _grouping(aggregate: JavaObject) -> tuple[tuple[Key, ...], list[JavaObject]]:
    if kind(aggregate) == "Distinct":
        outputs = items(aggregate.output())
        grouped = outputs
    else:
        outputs, grouped = items(aggregate.aggregateExpressions()), items(aggregate.groupingExpressions())
    return tuple(_key(number, expression) for number, expression in enumerate(grouped)), outputs


def _key(number: int, expression: JavaObject) -> Key:
    from pyspark.sql.types import StructType

    name, type_ = f"_k{number}", data_type(expression)
    what = f"it groups by {expression.sql()},"
    if is_session_window(expression):
        raise NotCombinable("two session windows may merge into one")
    if not isinstance(type_, StructType):
        _check_type(type_, f"{what} which")
        return Key((name,), (), expression)
    if expression.nullable() and not is_window(
        expression
    ):  # a NULL and a struct of NULLs are two groups, but their fields are equal
        raise NotCombinable(f"{what} which is a struct that may be NULL: group by its fields instead")
    for field in type_:
        _check_type(field.dataType, f"{what} whose field {field.name}")
    return Key(tuple(f"{name}_{field.name}" for field in type_), tuple(type_.names), expression)


def _check_type(type_: DataType, what: str) -> None:
    """Allows only types that a database returns unchanged, and compares as Spark does."""
    from pyspark.sql import types

    if isinstance(type_, types.StringType) and type_.collation != "UTF8_BINARY":
        raise NotCombinable(f"{what} has the collation {type_.collation}; only UTF8_BINARY works")
    known = (types.StringType, types.BinaryType, types.BooleanType, types.NumericType, types.DateType,
             types.TimestampType, types.TimestampNTZType, types.NullType)  # fmt: skip
    if not isinstance(type_, known):
        raise NotCombinable(f"{what} has the type {type_.simpleString()}")


def _functions(catalyst: Catalyst, outputs: Sequence[JavaObject]) -> tuple[Function, ...]:
    found: list[JavaObject] = []
    for output in outputs:
        for part in walk(output) if catalyst.contains(output, "AGGREGATE_EXPRESSION") else ():
            if kind(part) == "AggregateExpression" and not any(part.semanticEquals(known) for known in found):
                found.append(part)
    return tuple(_function(number, each) for number, each in enumerate(found))


def _function(number: int, expression: JavaObject) -> Function:
    function = expression.aggregateFunction()
    name = str(function.prettyName())
    how = FUNCTIONS.get(kind(function))
    if how is None or name.startswith("try_"):
        raise NotCombinable(f"{name}() over all events cannot be computed from {name}() over parts of them")
    if expression.isDistinct() and how not in ("min", "max"):
        hint = ": use approx_count_distinct(...)" if how == "count" else ""
        raise NotCombinable(f"{name}(DISTINCT ...) cannot be combined from parts{hint}")
    if not all(argument.deterministic() for argument in children(function)):
        raise NotCombinable(f"{function.sql()} has a different value each time it is computed")
    condition = expression.filter()
    made = Function(
        column=f"_f{number}",
        how=how,
        type=data_type(expression),
        arguments=tuple(children(function)),
        filter=condition.get() if condition.isDefined() else None,
        expression=expression,
    )
    _check_types(made, name)
    return made


def _check_types(function: Function, name: str) -> None:
    if function.how == "count":
        return
    check = _check_hashed if function.how == "approx_count_distinct" else _check_type
    for argument in function.arguments:
        check(data_type(argument), f"{name}() has the argument {argument.sql()}, which")


def _check_hashed(type_: DataType, what: str) -> None:
    """Allows only types that xxhash64 hashes as approx_count_distinct does: partial results are computed with it."""
    from pyspark.sql import types

    if isinstance(type_, types.StringType) and type_.collation != "UTF8_BINARY":
        raise NotCombinable(f"{what} has the collation {type_.collation}; only UTF8_BINARY works")
    if isinstance(type_, types.MapType | types.VariantType):
        raise NotCombinable(f"{what} has the type {type_.simpleString()}")
    if isinstance(type_, types.ArrayType):
        _check_hashed(type_.elementType, what)
    if isinstance(type_, types.StructType):
        for field in type_:
            _check_hashed(field.dataType, f"{what} has a field {field.name} that")


def _widen(catalyst: Catalyst, chain: tuple[JavaObject, ...]) -> tuple[JavaObject, ...]:
    """The same chain; projections that leave out columns of ``POSITION`` keep them."""
    wanted = [each for each in items(chain[-1].output()) if str(each.name()) in POSITION]
    widened = [chain[-1]]
    for node in reversed(chain[:-1]):
        child = widened[0]
        if kind(node) == "Project":
            kept = {expression_id(each) for each in items(node.output())}
            offered = {expression_id(each) for each in items(child.output())}
            more = [each for each in wanted if expression_id(each) in offered - kept]
            node = catalyst.project([*items(node.projectList()), *more], child)
        else:
            node = catalyst.with_children(node, [child])
        widened.insert(0, node)
    return tuple(widened)
