"""The part of a query above its Aggregate, rebuilt to run over finished groups: columns _k and _f in, outputs out.

The Aggregate becomes a projection: each function in its output is replaced by the column _f that holds its value, each
grouping expression by its column _k. Projections above keep their expressions and pass on what was added; a Filter
becomes a column, ``_hidden``; Sort and Limit are taken off and described. Nothing is computed for rows that are hidden
already: the query may have hidden them because it cannot be (a division by zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.query.plan import HIDDEN, ORDER, NotCombinable, SortBy
from headrace.pipeline.spark.catalyst import Catalyst, Java, children, data_type, expression_id, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.pipeline.query.plan import Function, Key


class Above(NamedTuple):
    #: One projection over another, the topmost first; the last is a relation with the columns _k and _f.
    chain: tuple[Java, ...]
    order: tuple[SortBy, ...]
    limit: int | None


def build_above(
    catalyst: Catalyst,
    top: Java,
    above: Sequence[Java],
    outputs: Sequence[Java],
    keys: Sequence[Key],
    functions: Sequence[Function],
) -> Above:
    """
    :param top: the whole query.
    :param above: its nodes above the Aggregate, the topmost first.
    :param outputs: what the Aggregate gives out.
    """
    return _Builder(catalyst, items(top.output()), keys, functions).build(above, outputs)


class _Builder:
    def __init__(
        self, catalyst: Catalyst, top: Sequence[Java], keys: Sequence[Key], functions: Sequence[Function]
    ) -> None:
        self._catalyst, self._top, self._keys, self._functions = catalyst, top, keys, functions
        self._leaf = self._values_leaf()
        self._by_name = {str(each.name()): each for each in items(self._leaf.output())}
        self._chain: list[Java] = [self._leaf]
        self._hidden: Java | None = None
        self._orders: list[tuple[Java, Java]] = []  # the attribute that carries it, and the SortOrder
        self._limit: int | None = None

    def build(self, above: Sequence[Java], outputs: Sequence[Java]) -> Above:
        self._push(self._catalyst.project([self._finished(each) for each in outputs], self._leaf))
        for node in reversed(above):
            step = {"Project": self._project, "Filter": self._filter, "Sort": self._sort,
                    "GlobalLimit": self._take, "LocalLimit": self._skip}[kind(node)]  # fmt: skip
            step(node)
        order = self._finish()
        return Above(tuple(reversed(self._chain)), order, self._limit)

    def _values_leaf(self) -> Java:
        """An empty relation with the columns _k and _f."""
        from pyspark.sql.types import StructField, StructType

        fields = [StructField(function.column, function.type) for function in self._functions]
        for key in self._keys:
            type_ = data_type(key.expression)
            types = [field.dataType for field in type_] if isinstance(type_, StructType) else [type_]
            fields += [StructField(name, each) for name, each in zip(key.columns, types, strict=True)]
        frame = self._catalyst.spark.createDataFrame([], StructType(fields))
        return frame._jdf.queryExecution().analyzed()

    def _push(self, node: Java) -> None:
        self._chain.append(node)

    @property
    def _outputs(self) -> list[Java]:
        return items(self._chain[-1].output())

    # ------------------------------------------------------------------------------------------- the Aggregate

    def _finished(self, output: Java) -> Java:
        replaced = self._catalyst.rewrite(output, self._value_of)
        if not replaced.deterministic():
            raise NotCombinable(f"{output.sql()} has another value each time that it is asked")
        return replaced if kind(output) == "Alias" else self._catalyst.alias(replaced, output)

    def _value_of(self, part: Java) -> Java | None:
        if kind(part) == "Alias":
            return None
        if kind(part) == "AggregateExpression":
            found = next(each for each in self._functions if part.semanticEquals(each.expression))
            return self._by_name[found.column]
        for key in self._keys:
            if part.semanticEquals(key.expression):
                return self._key_value(key)
        return None

    def _key_value(self, key: Key) -> Java:
        if not key.fields:
            return self._by_name[key.columns[0]]
        fields = zip(key.fields, key.columns, strict=True)
        return self._catalyst.struct([(field, self._by_name[column]) for field, column in fields])

    # ------------------------------------------------------------------------------------------- what is above

    def _carried(self) -> list[Java]:
        hidden = [] if self._hidden is None else [self._hidden]
        return [*hidden, *(attribute for attribute, _ in self._orders)]

    def _project(self, node: Java) -> None:
        known = {expression_id(each) for each in items(node.output())}
        more = [each for each in self._carried() if expression_id(each) not in known]
        outputs = [self._unless_hidden(each) for each in items(node.projectList())]
        self._push(self._catalyst.project([*outputs, *more], self._chain[-1]))

    def _unless_hidden(self, output: Java) -> Java:
        if self._hidden is None or kind(output) != "Alias" or kind(output.child()) == "AttributeReference":
            return output
        return self._catalyst.with_children(output, [self._catalyst.null_if(self._hidden, output.child())])

    def _filter(self, node: Java) -> None:
        if self._limit is not None:
            raise NotCombinable("it filters what a LIMIT has left")
        from pyspark.sql import functions as F  # noqa: N812

        hides = ~F.coalesce(self._catalyst.column(node.condition()), F.lit(False))
        if self._hidden is not None:
            hides = F.when(self._catalyst.column(self._hidden), F.lit(True)).otherwise(hides)
        self._hidden = self._added(hides, HIDDEN)

    def _added(self, column: Column, name: str) -> Java:
        """One more column, beside those that there are; its attribute."""
        known = [self._catalyst.column(each) for each in self._outputs]
        self._push(self._catalyst.select(self._chain[-1], [*known, column.alias(name)]))
        return self._outputs[-1]

    def _sort(self, node: Java) -> None:
        if self._limit is not None:
            raise NotCombinable("it sorts what a LIMIT has left")
        self._orders = []
        for number, each in enumerate(items(node.order())):
            expression = children(each)[0]
            if kind(expression) == "AttributeReference":
                self._orders.append((expression, each))
            else:
                if self._hidden is not None:
                    expression = self._catalyst.null_if(self._hidden, expression)
                column = self._catalyst.column(expression)
                self._orders.append((self._added(column, f"{ORDER}{number}"), each))

    def _take(self, node: Java) -> None:
        limit = node.limitExpr()
        if not limit.foldable():
            raise NotCombinable("its LIMIT is not a number")
        number = int(limit.eval(None))
        self._limit = number if self._limit is None else min(self._limit, number)

    def _skip(self, _node: Java) -> None:
        """LocalLimit: the GlobalLimit above it says the same."""

    def _finish(self) -> tuple[SortBy, ...]:
        """The outputs, then what to sort by that is not among them, then ``_hidden``."""
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
