"""What a query does, read from its analyzed plan: whether its answer can be put together from answers over parts.

A query qualifies (runs as a Lambda view) if its plan is one chain:

    Sort, Limit, Project, Filter (HAVING)     above     row by row over the groups; Sort and Limit go onto the SQL view
    Aggregate                                           keys and functions that ``aggregates`` knows how to combine
    Project, Filter, Generate, Expand         below     row by row over the events
    a relation                                          the events

``analyze`` cuts it there. Columns get names that do not depend on the query: ``_k0, _k1, ...`` are the keys (a struct,
such as a time window, gives one column a field: ``_k0_start``, ``_k0_end``) and ``_f0, _f1, ...`` the values of the
functions. ``AggregatePlan.rows`` runs the lower part over any frame of events; ``AggregatePlan.outputs`` runs the upper
part over any frame with the columns _k and _f.

HAVING does not drop rows here: a group that was shown and no longer qualifies must be hidden where it was. So
``outputs`` has all groups, with the column ``_hidden``. The columns ``_order_0, ...`` are what to sort by, where that
is not an output column.

Whatever does not qualify is refused with ``NotCombinable`` and its reason; nothing is ever computed approximately
because it was not understood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipeline.query.grouping import is_session_window, is_window
from headrace.pipeline.spark.catalyst import Catalyst, Java, children, data_type, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

HIDDEN = "_hidden"
ORDER = "_order_"
#: Where an event stands in the log; in this order they also break ties, so that every run gives the same answer.
POSITION = ("_timestamp", "_topic", "_partition", "_offset")

_TRANSPARENT = {"SubqueryAlias", "View", "EventTimeWatermark", "ResolvedHint", "Repartition", "RepartitionByExpression"}
_ROW_WISE = {"Project", "Filter", "Generate", "Expand"}
_REASONS = {
    "Join": "it joins",
    "AsOfJoin": "it joins",
    "Union": "it puts several queries together with UNION",
    "Intersect": "it puts several queries together with INTERSECT",
    "Except": "it puts several queries together with EXCEPT",
    "Window": "it uses window functions (OVER)",
    "Sort": "it sorts inside of a subquery",
    "GlobalLimit": "it has a LIMIT inside of a subquery",
    "LocalLimit": "it has a LIMIT inside of a subquery",
    "Offset": "it has an OFFSET",
    "Tail": "it takes the last rows",
    "Sample": "it takes a sample",
    "Aggregate": "it aggregates what is already aggregated",
    "Distinct": "it has a DISTINCT beside its aggregate",
    "Deduplicate": "it drops duplicates",
    "OneRowRelation": "it does not read the events",
    "UpdatingSessions": "session windows grow together",
    "Pivot": "it pivots",
}  # fmt: skip

#: Class of Catalyst -> how it is combined; see ``aggregates``.
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
    """The query's answer over all data cannot be put together from its answers over parts."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this query cannot run as a Lambda view: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Key:
    """What is grouped by. ``columns`` are one, or one a field of a struct."""

    columns: tuple[str, ...]
    fields: tuple[str, ...]
    expression: Java


@dataclass(frozen=True)
class Function:
    """An aggregate function of the query.

    :param column: ``_f0``, ...; what its value is called.
    :param how: how it is combined, one of the values of ``FUNCTIONS``.
    :param expression: the whole of it in Catalyst, with its FILTER.
    """

    column: str
    how: str
    type: DataType
    arguments: tuple[Java, ...]
    filter: Java | None
    expression: Java

    @property
    def ignores_nulls(self) -> bool:
        """``first(x, true)``: asked only of first and last."""
        return bool(self.expression.aggregateFunction().ignoreNulls())


@dataclass(frozen=True)
class SortBy:
    """``column`` is one of the output, or ``_order_n``."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class AggregatePlan:
    """A query that qualifies.

    :param output: names of the columns that readers see.
    :param order: what the SQL view sorts by; empty if the query does not.
    :param limit: how many rows it then shows.
    :param position: the columns of ``POSITION`` that the events have, in the JVM, for ties.
    """

    catalyst: Catalyst
    keys: tuple[Key, ...]
    functions: tuple[Function, ...]
    output: tuple[str, ...]
    order: tuple[SortBy, ...]
    limit: int | None
    position: dict[str, Java]
    below: tuple[Java, ...]
    above: tuple[Java, ...]

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(column for key in self.keys for column in key.columns)

    def rows(self, events: DataFrame | None = None) -> DataFrame:
        """What the Aggregate sees of these events (of those that the query was built on, if not given)."""
        if events is None:
            return self.catalyst.frame(self.below[0])
        return self.catalyst.frame(self.catalyst.replace_leaf(self.below, events))

    def outputs(self, values: DataFrame) -> DataFrame:
        """The query's output columns, ``_order_n`` and ``_hidden``, from columns _k and _f; others are dropped."""
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
    """Cuts the query at its one Aggregate.

    :raises NotCombinable: if there is none, or more, or anything that does not combine.
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


def _find_aggregate(top: Java) -> tuple[list[Java], Java]:
    """The nodes above the Aggregate, topmost first, and the Aggregate (or a DISTINCT, which is one)."""
    above: list[Java] = []
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


def _has_aggregate(node: Java) -> bool:
    return any(kind(each) == "Aggregate" for each in walk(node)[1:])


def _below(node: Java) -> tuple[Java, ...]:
    """The nodes under the Aggregate, those that do nothing left out; the last one is the relation."""
    chain = []
    while True:
        what, below = kind(node), children(node)
        if what not in _TRANSPARENT:
            if (below and what not in _ROW_WISE) or what == "OneRowRelation":
                _refuse(node)
            chain.append(node)
        if not below:
            return tuple(chain)
        node = below[0]


def _refuse(node: Java) -> None:
    what = kind(node)
    if not children(node) and what not in _REASONS:
        raise NotCombinable("it does not aggregate")
    raise NotCombinable(_REASONS.get(what, f"it has the operator {what}, which is not known to work row by row"))


def _check_expressions(catalyst: Catalyst, top: Java, nodes: Sequence[Java]) -> None:
    if catalyst.contains(top, "PLAN_EXPRESSION"):
        raise NotCombinable("it has a subquery inside of an expression")
    if catalyst.contains(top, "WINDOW_EXPRESSION"):
        raise NotCombinable(_REASONS["Window"])
    if catalyst.contains(top, "CURRENT_LIKE"):
        raise NotCombinable("it asks for the current time, which is another one each time")
    for node in nodes:
        for expression in items(node.expressions()):
            if not expression.deterministic():
                raise NotCombinable(f"{expression.sql()} has another value each time that it is asked")


def _grouping(aggregate: Java) -> tuple[tuple[Key, ...], list[Java]]:
    if kind(aggregate) == "Distinct":
        outputs = items(aggregate.output())
        grouped = outputs
    else:
        outputs, grouped = items(aggregate.aggregateExpressions()), items(aggregate.groupingExpressions())
    return tuple(_key(number, expression) for number, expression in enumerate(grouped)), outputs


def _key(number: int, expression: Java) -> Key:
    from pyspark.sql.types import StructType

    name, type_ = f"_k{number}", data_type(expression)
    what = f"it groups by {expression.sql()},"
    if is_session_window(expression):
        raise NotCombinable("session windows of two parts may grow together")
    if not isinstance(type_, StructType):
        _check_type(type_, what)
        return Key((name,), (), expression)
    if expression.nullable() and not is_window(
        expression
    ):  # the fields of a NULL are those of a struct of NULLs, which is another group
        raise NotCombinable(f"{what} a struct that may be NULL: group by its fields instead")
    for field in type_:
        _check_type(field.dataType, f"{what} with the field {field.name}")
    return Key(tuple(f"{name}_{field.name}" for field in type_), tuple(type_.names), expression)


def _check_type(type_: DataType, what: str) -> None:
    """Only what comes back from a database as it went in, and is compared there and here as in Spark."""
    from pyspark.sql import types

    if isinstance(type_, types.StringType) and type_.collation != "UTF8_BINARY":
        raise NotCombinable(f"{what} a text with the collation {type_.collation}")
    known = (types.StringType, types.BinaryType, types.BooleanType, types.NumericType, types.DateType,
             types.TimestampType, types.TimestampNTZType, types.NullType)  # fmt: skip
    if not isinstance(type_, known):
        raise NotCombinable(f"{what} of the type {type_.simpleString()}")


def _functions(catalyst: Catalyst, outputs: Sequence[Java]) -> tuple[Function, ...]:
    found: list[Java] = []
    for output in outputs:
        for part in walk(output) if catalyst.contains(output, "AGGREGATE_EXPRESSION") else ():
            if kind(part) == "AggregateExpression" and not any(part.semanticEquals(known) for known in found):
                found.append(part)
    return tuple(_function(number, each) for number, each in enumerate(found))


def _function(number: int, expression: Java) -> Function:
    function = expression.aggregateFunction()
    name = str(function.prettyName())
    how = FUNCTIONS.get(kind(function))
    if how is None or name.startswith("try_"):
        raise NotCombinable(f"{name}() over everything does not follow from {name}() over parts")
    if expression.isDistinct() and how not in ("min", "max"):
        hint = ": approx_count_distinct(...) does" if how == "count" else ""
        raise NotCombinable(f"{name}(DISTINCT ...) does not combine{hint}")
    if not all(argument.deterministic() for argument in children(function)):
        raise NotCombinable(f"{function.sql()} has another value each time that it is asked")
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
        check(data_type(argument), f"{name}() is asked for {argument.sql()},")


def _check_hashed(type_: DataType, what: str) -> None:
    """Only what the function xxhash64 hashes as approx_count_distinct does: the partial results are made with it."""
    from pyspark.sql import types

    if isinstance(type_, types.StringType) and type_.collation != "UTF8_BINARY":
        raise NotCombinable(f"{what} a text with the collation {type_.collation}")
    if isinstance(type_, types.MapType | types.VariantType):
        raise NotCombinable(f"{what} of the type {type_.simpleString()}")
    if isinstance(type_, types.ArrayType):
        _check_hashed(type_.elementType, what)
    if isinstance(type_, types.StructType):
        for field in type_:
            _check_hashed(field.dataType, f"{what} with the field {field.name},")


def _widen(catalyst: Catalyst, chain: tuple[Java, ...]) -> tuple[Java, ...]:
    """The same chain, with the columns of ``POSITION`` kept by projections that leave them out."""
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
