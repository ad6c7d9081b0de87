"""Cuts the plan of a query into operators; ``operators`` says which kinds there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.pipeline.query.grouping import is_session_window
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, expression_id, items, kind, walk
from headrace.pipeline.touched.normal_form import normalized
from headrace.pipeline.touched.operators import Constant, Input, Keyed, Leaf, Linear, Operator, Part, Tree
from headrace.pipeline.touched.positions import PLACEHOLDER, TRANSPARENT, widened
from headrace.pipeline.touched.sums import Summed, summed
from headrace.pipeline.touched.top import LIMITS, NotTouchable, Shown, Top

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LINEAR = {"Project", "Filter", "Generate", "Expand", "Union"}
_CONSTANTS = {"LocalRelation", "OneRowRelation", "Range"}
_REASONS = {
    "Sample": "it takes a sample, which is another one each time",
    "AsOfJoin": "it has an AS OF join",
    "MapInPandas": "mapInPandas sees whole partitions, and not single rows",
    "MapInArrow": "mapInArrow sees whole partitions, and not single rows",
    "PythonMapInArrow": "mapInArrow sees whole partitions, and not single rows",
    "FlatMapGroupsInPandas": "it uses applyInPandas",
    "FlatMapGroupsInArrow": "it uses applyInArrow",
    "FlatMapCoGroupsInPandas": "it uses cogroup().applyInPandas",
    "FlatMapCoGroupsInArrow": "it uses cogroup().applyInArrow",
}
#: Functions whose value does not depend on the order of the rows.
_ORDER_FREE = {"Count", "CountIf", "Min", "Max", "BoolAnd", "BoolOr", "HyperLogLogPlusPlus", "Percentile",
               "BitAndAgg", "BitOrAgg", "BitXorAgg"}  # fmt: skip
#: Functions for which the records' order in the log matters to a reader.
_BY_POSITION = {"CollectList", "CollectSet", "First", "Last", "AnyValue", "ListAgg", "MinBy", "MaxBy"}


def cut(query: DataFrame, sources: Mapping[int, str]) -> Tree:
    """
    :param query: the query over placeholders (``placeholders.Placeholders``).
    :param sources: by the id of a placeholder's RDD, the name of its source.
    :raises NotTouchable: if the query has a part that is neither linear nor keyed.
    """
    catalyst = Catalyst(query.sparkSession)
    cutter = _Cutter(catalyst, sources)
    plan = normalized(catalyst, query)
    output = tuple(str(each.name()) for each in items(plan.output()))
    top = Top.of(catalyst, plan)
    root = Input(cutter.part(top.plan), top.columns)
    cutter.finish(root)
    return Tree(catalyst, root, tuple(cutter.found), Shown(output, top.order, top.limit, top.offset))


# ------------------------------------------------------------------------------------------------------------- cutting


class _Cutter:
    def __init__(self, catalyst: Catalyst, sources: Mapping[int, str]) -> None:
        self._catalyst, self._sources = catalyst, sources
        self.found: list[Operator] = []
        self._numbers = 0

    def finish(self, root: Input) -> None:
        for target in [
            root,
            *(each for operator in self.found if isinstance(operator, Keyed) for each in operator.inputs),
        ]:
            for operator in target.operators():
                operator.target = target
            needed = _needed(target)
            for leaf in target.operators():
                if isinstance(leaf, Leaf):
                    leaf.output = [each for each in leaf.output if expression_id(each) in needed]

    def part(self, node: JavaObject) -> Part:
        name = kind(node)
        if name in TRANSPARENT:
            return self.part(children(node)[0])
        if name in _LINEAR:
            self._check_rows(node)
            return Linear(node, tuple(self.part(each) for each in children(node)))
        if name in _CONSTANTS:
            return self._add(Constant(items(node.output()), node))
        if name == PLACEHOLDER:
            return self._add(Leaf(items(node.output()), self._sources[int(node.rdd().id())]))
        if name in LIMITS:
            return self._limit(node)
        if name == "Aggregate" and (made := summed(self._catalyst, node)) is not None:
            self._check_rows(made.results)
            return Linear(made.results, (self._add(self._sums(made)),))
        make = {"Aggregate": self._aggregate, "Window": self._window, "Join": self._join}.get(name)
        if make is None:
            raise NotTouchable(_REASONS.get(name, f"it has the operator {name}"))
        return self._add(make(node))

    def _add(self, operator: Operator) -> Operator:
        self.found.append(operator)
        return operator

    def _input(self, child: JavaObject, keys: Sequence[JavaObject]) -> Input:
        tree = self.part(child)
        made = Input(tree, items(child.output()), tuple(map(_plain, keys)), self._numbers)
        for key in made.keys:
            _check_key(key)
        self._numbers += 1
        return made

    def _check_rows(self, node: JavaObject) -> None:
        for expression in items(node.expressions()):
            if not expression.deterministic():
                raise NotTouchable(f"{expression.sql()} has a different value each time it is computed")

    # --------------------------------------------------------------------------------------------------- keyed nodes

    def _sums(self, made: Summed) -> Keyed:
        (child,) = children(made.sums)
        read = self._input(child, items(child.output())[: made.groups])
        read.groups, read.key_texts = made.groups, made.key_texts
        return Keyed(items(made.sums.output()), "Aggregate", made.sums, (read,))

    def _aggregate(self, node: JavaObject) -> Keyed:
        functions = [
            part for each in items(node.aggregateExpressions())
            if self._catalyst.contains(each, "AGGREGATE_EXPRESSION") or self._catalyst.contains(each, "PYTHON_UDF")
            for part in walk(each) if kind(part) in ("AggregateExpression", "PythonUDAF")
        ]  # fmt: skip
        grouping = [_plain(each) for each in items(node.groupingExpressions())]
        (child,) = children(node)
        positions: list[JavaObject] = []
        if any(_name(each) in _BY_POSITION for each in functions):
            child, positions = widened(self._catalyst, child)
            node = self._catalyst.with_children(node, [child])
        keys = [each for each in grouping if not is_session_window(each)]
        made = Keyed(items(node.output()), "Aggregate", node, (self._input(child, keys),))
        if not all(_is_order_free(each) for each in functions):
            made.order = self._order([*grouping, *positions], items(child.output()))
        made.needs_copies = not all(kind(each) == "AggregateExpression" and _ignores_copies(each) for each in functions)
        return made

    def _window(self, node: JavaObject) -> Keyed:
        (child,) = children(node)
        keys = items(node.partitionSpec())
        made = Keyed(items(node.output()), "Window", node, (self._input(child, keys),))
        first = [self._ascending(each) for each in keys]
        made.order = (*first, *items(node.orderSpec()), *self._order([], items(child.output())))
        return made

    def _join(self, node: JavaObject) -> Keyed:
        left, right = children(node)
        found = self._catalyst.module("org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys").unapply(node)
        left_keys, right_keys = (found.get()._2(), found.get()._3()) if found.isDefined() else (None, None)
        inputs = (
            self._input(left, items(left_keys) if left_keys is not None else ()),
            self._input(right, items(right_keys) if right_keys is not None else ()),
        )
        return Keyed(items(node.output()), "Join", node, inputs)

    def _limit(self, node: JavaObject) -> Part:
        """Limit and Offset with the Sort below them. Spark puts projections between them, which may follow as well."""
        chain, below = [node], children(node)[0]
        while kind(below) in LIMITS:
            chain.append(below)
            (below,) = children(below)
        if kind(below) == "Project" and kind(children(below)[0]) == "Sort":
            self._check_rows(below)
            lower = children(below)[0]
            for each in reversed(chain):
                lower = self._catalyst.with_children(each, [lower])
            return Linear(below, (self._limit(lower),))
        terms = items(below.order()) if kind(below) == "Sort" else []
        child = children(below)[0] if kind(below) == "Sort" else below
        positions: list[JavaObject] = []
        if not terms:
            child, positions = widened(self._catalyst, child)
        made = Keyed(items(node.output()), "Limit", tuple(chain), (self._input(child, ()),))
        made.order = (*terms, *self._order(positions, items(child.output())))
        return self._add(made)

    # --------------------------------------------------------------------------------------------------------- order

    def _order(self, first: Sequence[JavaObject], columns: Sequence[JavaObject]) -> tuple[JavaObject, ...]:
        """Sort orders over some expressions, and then all columns: equal for equal rows only."""
        known = [expression_id(each) for each in first if kind(each) == "AttributeReference"]
        others = [each for each in columns if expression_id(each) not in known]
        return tuple(self._ascending(each) for each in [*first, *others])

    def _ascending(self, expression: JavaObject) -> JavaObject:
        if not self._catalyst.is_orderable(expression):  # maps and variants
            expression = self._catalyst.as_text(expression)
        return self._catalyst.ascending(expression)


def _needed(target: Input) -> set[int]:
    """The ids of the columns that an input reads of its operators."""
    wanted = [*target.columns, *(each for key in target.keys for each in items(key.references().toSeq()))]
    parts = [target.tree]
    while parts:
        part = parts.pop()
        if isinstance(part, Linear):
            parts += part.parts
            wanted += items(part.node.references().toSeq())
            if kind(part.node) == "Union":  # its columns are matched by place
                wanted += [each for child in children(part.node) for each in items(child.output())]
    return {expression_id(each) for each in wanted}


def _plain(expression: JavaObject) -> JavaObject:
    return expression.child() if kind(expression) == "Alias" else expression


def _check_key(expression: JavaObject) -> None:
    from pyspark.sql import types

    def parts(type_: types.DataType) -> Iterator[types.DataType]:
        yield type_
        if isinstance(type_, types.ArrayType):
            yield from parts(type_.elementType)
        if isinstance(type_, types.StructType):
            for each in type_:
                yield from parts(each.dataType)

    for type_ in parts(data_type(expression)):
        # Texts that a collation takes for equal have different hashes.
        is_collated = isinstance(type_, types.StringType) and type_.collation != "UTF8_BINARY"
        if is_collated or isinstance(type_, types.MapType | types.VariantType):
            raise NotTouchable(f"it groups or joins by {expression.sql()}, which has the type {type_.simpleString()}")


def _name(function: JavaObject) -> str:
    return kind(function.aggregateFunction()) if kind(function) == "AggregateExpression" else kind(function)


def _is_order_free(function: JavaObject) -> bool:
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    name = _name(function)
    if name == "Sum":
        return not isinstance(data_type(function), DoubleType | FloatType)
    if name == "Average":
        return isinstance(data_type(function), DecimalType)
    return name in _ORDER_FREE


def _ignores_copies(function: JavaObject) -> bool:
    return bool(function.isDistinct()) or _name(function) in ("Min", "Max", "BoolAnd", "BoolOr", "HyperLogLogPlusPlus")
