"""Rebuilds the part of a query above its Aggregate, so that it computes the output columns from the columns _k and _f.

The Aggregate becomes a projection: each function in its output is replaced by the column _f with its value, and each
grouping expression by its column _k. Projections keep their expressions and pass the added columns on. A Filter becomes
the column ``_hidden``. Sort and Limit are removed and returned as values. Nothing is computed for rows that are already
hidden: the condition may protect the computation, for example from a division by zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.query.plan import HIDDEN, ORDER, NotCombinable, SortBy
from headrace.pipeline.query.sorting import nan_flag, sorts_alike
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, expression_id, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.pipeline.query.plan import Function, Key


class UpperPlan(NamedTuple):
    #: One projection over another, the topmost first; the last is a relation with the columns _k and _f.
    chain: tuple[JavaObject, ...]
    order: tuple[SortBy, ...]
    limit: int | None


def build_above(
    catalyst: Catalyst,
    top: JavaObject,
    above: Sequence[JavaObject],
    outputs: Sequence[JavaObject],
    keys: Sequence[Key],
    functions: Sequence[Function],
) -> UpperPlan:
    """
    :param top: the plan of the whole query.
    :param above: the nodes above the Aggregate, the topmost first.
    :param outputs: the outputs of the Aggregate.
    """
    return _Builder(catalyst, items(top.output()), keys, functions).build(above, outputs)


class _Builder:
    def __init__(
        self, catalyst: Catalyst, top: Sequence[JavaObject], keys: Sequence[Key], functions: Sequence[Function]
    ) -> None:
        self._catalyst, self._top, self._keys, self._functions = catalyst, top, keys, functions
        self._leaf = self._values_leaf()
        self._by_name = {str(each.name()): each for each in items(self._leaf.output())}
        self._chain: list[JavaObject] = [self._leaf]
        self._hidden: JavaObject | None = None
        self._orders: list[tuple[JavaObject, JavaObject]] = []  # the attribute to sort by, and the SortOrder
        self._limit: int | None = None

    def build(self, above: Sequence[JavaObject], outputs: Sequence[JavaObject]) -> UpperPlan:
        self._push(self._catalyst.project([self._finished(each) for each in outputs], self._leaf))
        for node in reversed(above):
            step = {"Project": self._project, "Filter": self._filter, "Sort": self._sort,
                    "GlobalLimit": self._take, "LocalLimit": self._skip}[kind(node)]  # fmt: skip
            step(node)
        order = self._finish()
        return UpperPlan(tuple(reversed(self._chain)), order, self._limit)

    def _values_leaf(self) -> JavaObject:
        """An empty relation with the columns _k and _f."""
        from pyspark.sql.types import StructField, StructType

        fields = [StructField(function.column, function.type) for function in self._functions]
        for key in self._keys:
            type_ = data_type(key.expression)
            types = [field.dataType for field in type_] if isinstance(type_, StructType) else [type_]
            fields += [StructField(name, each) for name, each in zip(key.columns, types, strict=True)]
        frame = self._catalyst.spark.createDataFrame([], StructType(fields))
        return frame._jdf.queryExecution().analyzed()

    def _push(self, node: JavaObject) -> None:
        self._chain.append(node)

    @property
    def _outputs(self) -> list[JavaObject]:
        return items(self._chain[-1].output())

    # ------------------------------------------------------------------------------------------- the Aggregate

    def _finished(self, output: JavaObject) -> JavaObject:
        replaced = self._catalyst.rewrite(output, self._value_of)
        if not replaced.deterministic():
            raise NotCombinable(f"{output.sql()} has a different value each time it is computed")
        return replaced if kind(output) == "Alias" else self._catalyst.alias(replaced, output)

    def _value_of(self, part: JavaObject) -> JavaObject | None:
        if kind(part) == "Alias":
            return None
        if kind(part) == "AggregateExpression":
            found = next(each for each in self._functions if part.semanticEquals(each.expression))
            return self._by_name[found.column]
        for key in self._keys:
            if part.semanticEquals(key.expression):
                return self._key_value(key)
        return None

    def _key_value(self, key: Key) -> JavaObject:
        if not key.fields:
            return self._by_name[key.columns[0]]
        fields = zip(key.fields, key.columns, strict=True)
        return self._catalyst.struct([(field, self._by_name[column]) for field, column in fields])

    # ------------------------------------------------------------------------------------------- what is above

    def _carried(self) -> list[JavaObject]:
        hidden = [] if self._hidden is None else [self._hidden]
        return [*hidden, *(attribute for attribute, _ in self._orders)]

    def _project(self, node: JavaObject) -> None:
        known = {expression_id(each) for each in items(node.output())}
        more = [each for each in self._carried() if expression_id(each) not in known]
        outputs = [self._unless_hidden(each) for each in items(node.projectList())]
        self._push(self._catalyst.project([*outputs, *more], self._chain[-1]))

    def _unless_hidden(self, output: JavaObject) -> JavaObject:
        if self._hidden is None or kind(output) != "Alias" or kind(output.child()) == "AttributeReference":
            return output
        return self._catalyst.with_children(output, [self._catalyst.null_if(self._hidden, output.child())])

    def _filter(self, node: JavaObject) -> None:
        if self._limit is not None:
            raise NotCombinable("it filters rows after a LIMIT")
        from pyspark.sql import functions as F  # noqa: N812

        hides = ~F.coalesce(self._catalyst.column(node.condition()), F.lit(False))
        if self._hidden is not None:
            hides = F.when(self._catalyst.column(self._hidden), F.lit(True)).otherwise(hides)
        self._hidden = self._added(hides, HIDDEN)

    def _added(self, column: Column, name: str) -> JavaObject:
        """Adds a column and returns its attribute."""
        known = [self._catalyst.column(each) for each in self._outputs]
        self._push(self._catalyst.select(self._chain[-1], [*known, column.alias(name)]))
        return self._outputs[-1]

    def _sort(self, node: JavaObject) -> None:
        if self._limit is not None:
            raise NotCombinable("it sorts rows after a LIMIT")
        self._orders = []
        for each in items(node.order()):
            expression = children(each)[0]
            if not sorts_alike(data_type(expression)):
                type_ = data_type(expression).simpleString()
                raise NotCombinable(f"it sorts by {expression.sql()}, which has the type {type_}")
            is_column = kind(expression) == "AttributeReference"
            if self._hidden is not None and not is_column:
                expression = self._catalyst.null_if(self._hidden, expression)
            if (flag := nan_flag(self._catalyst, expression)) is not None:
                self._add_order(flag, each)
            if is_column:
                self._orders.append((expression, each))
            else:
                self._add_order(self._catalyst.column(expression), each)

    def _add_order(self, column: Column, order: JavaObject) -> None:
        self._orders.append((self._added(column, f"{ORDER}{len(self._orders)}"), order))

    def _take(self, node: JavaObject) -> None:
        limit = node.limitExpr()
        if not limit.foldable():
            raise NotCombinable("its LIMIT is not a number")
        number = int(limit.eval(None))
        self._limit = number if self._limit is None else min(self._limit, number)

    def _skip(self, _node: JavaObject) -> None:
        """LocalLimit: the GlobalLimit above it has the same limit."""

    def _finish(self) -> tuple[SortBy, ...]:
        """Adds the last projection: the outputs, then sort keys that are not among them, then ``_hidden``."""
        from pyspark.sql import functions as F  # noqa: N812

        names = {expression_id(each): str(each.name()) for each in self._top}
        order, more = [], []
        for number, (attribute, each) in enumerate(self._orders):
            name = names.get(expression_id(attribute))
            if name is None:
                name = f"{ORDER}{number}"
                more.append(self._catalyst.column(attribute).alias(name))
            nulls_first = kind(each.nullOrdering()) == "NullsFirst"
            order.append(SortBy(name, kind(each.direction()) == "Descending", nulls_first))
        hidden = F.lit(False) if self._hidden is None else self._catalyst.column(self._hidden)
        outputs = [self._catalyst.column(each) for each in self._top]
        self._push(self._catalyst.select(self._chain[-1], [*outputs, *more, hidden.alias(HIDDEN)]))
        return tuple(order)
