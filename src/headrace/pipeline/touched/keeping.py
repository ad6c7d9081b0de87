"""Says what ``[keep]`` means for a query: which rows of its answer, and of its state, are kept.

The meaning depends on the data only. T is the largest time of the source's events so far. A row of the answer is kept
as long as its time is after T minus ``for``::

    [keep] column = "day", for = "7 days"
    SELECT date_trunc('day', at) AS day, ...      a row is kept while day > max(at) - 7 days

The restricted answer is exact, and state can be deleted, only if the time of a row is known in all rows that it is
computed from. So the column is followed down through the operators, from the answer to the events:

=====================  ============================================================================================
Project, Filter, ...   the expression of the column
Aggregate              it must be a function of what the query groups by; not of a session window, which may grow
Window                 it must be a function of PARTITION BY
Join                   it must belong to one side, which keeps all of its rows or is of an inner join. If the other side
                       is joined by the same time, the rows of that side are dropped too
Limit below the top    refused: dropping a row would let another row in
a source               it must be a function of one time column of events; rows of tables change
=====================  ============================================================================================

Each input on the way gets its time (``operators.Input.time``). Its rows are deleted when T has passed them, without
computing anything: the rows above that depend on them have the same time, and are deleted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import Keep, ViewDefinition, duration_ms
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, expression_id, items, kind
from headrace.pipeline.touched.operators import Input, Keyed, Leaf, Linear, Operator, Part, Tree
from headrace.pipeline.touched.top import NotTouchable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.project.source_definition import SourceDefinition

#: Spark's types of times.
TIME_TYPES = ("timestamp", "timestamp_ntz", "date")
_WAY_OUT = "name a column of the answer that is a time of the events, or the end of a time window that it groups by"


class NotKept(NotTouchable):
    """``[keep]`` has no exact meaning for the query."""

    def __init__(self, keep: Keep, why: str) -> None:
        super().__init__(f'[keep] column = "{keep.column}": {why}; {_WAY_OUT}, or remove [keep]')


@dataclass(frozen=True)
class Kept:
    """
    :ivar column: the output column with the time of a row.
    :ivar clocks: by the name of a source, the column whose largest value is T.
    """

    column: str
    clocks: Mapping[str, str]
    keep: Keep

    @property
    def duration_us(self) -> int:
        return 1000 * duration_ms(self.keep.duration)


def keep_in(tree: Tree, definition: ViewDefinition) -> Kept:
    """Finds the time of the rows of each input.

    :raises NotKept: if the query does not allow it.
    """
    assert definition.keep is not None
    tracer = _Tracer(tree, definition)
    found = tracer.resolved()
    for target, time in found.times:
        target.time = time
    return Kept(found.column, found.clocks, definition.keep)


def keep_by_name(query: DataFrame, definition: ViewDefinition) -> Kept:
    """Of a query that cannot be cut: the column of the answer has the same name as the column of the events.

    :param query: the query over no rows.
    :raises NotKept: if there is no such column.
    """
    keep = definition.keep
    assert keep is not None
    from headrace.pipeline.decoding.source_rows import source_schema

    clocks = {
        source.name: keep.column
        for source in definition.inputs
        if not source.is_table and any(_is_time_field(each, keep.column) for each in source_schema(source))
    }
    if not any(_is_time_field(each, keep.column) for each in query.schema) or not clocks:
        raise NotKept(keep, "the answer and a source of kind events need a time column of this name")
    return Kept(keep.column, clocks, keep)


def _is_time_field(field: object, name: str) -> bool:
    return getattr(field, "name", "") == name and getattr(field, "dataType").typeName() in TIME_TYPES  # noqa: B009


# ------------------------------------------------------------------------------------------------------------- tracing


@dataclass
class _Found:
    column: str
    clocks: dict[str, str] = field(default_factory=dict)
    times: list[tuple[Input, JavaObject]] = field(default_factory=list)


class _Tracer:
    def __init__(self, tree: Tree, definition: ViewDefinition) -> None:
        assert definition.keep is not None
        self._tree, self._keep = tree, definition.keep
        self._catalyst: Catalyst = tree.catalyst
        self._sources: dict[str, SourceDefinition] = {source.name: source for source in definition.inputs}

    def resolved(self) -> _Found:
        shown = self._tree.shown.output
        outputs = dict(zip(shown, self._tree.root.columns, strict=False))
        wanted = self._keep.column
        if wanted in outputs:
            return self._traced(wanted, outputs[wanted])
        found = []
        for name, column in outputs.items():
            try:
                found.append(self._traced(name, column))
            except NotKept:
                continue
        candidates = [each for each in found if wanted in each.clocks.values()]
        ends = [each for each in candidates if each.column.endswith("_end")]
        if len(candidates) == 1 or len(ends) == 1:
            return ends[0] if ends else candidates[0]
        if candidates:
            raise self._refused(f"{' and '.join(each.column for each in candidates)} come from it: name one of them")
        raise self._refused("no column of the answer has this name or is computed from it alone")

    def _traced(self, name: str, column: JavaObject) -> _Found:
        found = _Found(name)
        if str(column.dataType().typeName()) not in TIME_TYPES:
            raise self._refused(f"it has the type {column.dataType().simpleString()}, which is not a time")
        self._input(found, self._tree.root, column)
        return found

    def _refused(self, why: str) -> NotKept:
        return NotKept(self._keep, why)

    def _input(self, found: _Found, target: Input, time: JavaObject) -> None:
        found.times.append((target, time))
        for operator, below in self._through(target.tree, time):
            self._operator(found, operator, below)

    # -------------------------------------------------------------------------------------------------- linear nodes

    def _through(self, part: Part, time: JavaObject) -> Iterator[tuple[Operator, JavaObject]]:
        """The operators below a part, each with the time as an expression of its columns."""
        if isinstance(part, Operator):
            yield part, time
            return
        for below, expression in self._below(part, time):
            yield from self._through(below, expression)

    def _below(self, part: Linear, time: JavaObject) -> list[tuple[Part, JavaObject]]:
        node, name = part.node, kind(part.node)
        if name == "Project":
            return [(part.parts[0], self._replaced(time, _by_id(items(node.projectList()))))]
        if name == "Union":
            columns = items(node.output())
            return [
                (below, self._replaced(time, _pairs(columns, items(child.output()))))
                for below, child in zip(part.parts, children(node), strict=True)
            ]
        if name == "Expand":
            return self._below_expand(part, time)
        if name == "Generate" and _references(time) & {expression_id(each) for each in items(node.generatorOutput())}:
            raise self._refused("it is made by explode, and a row may have several")
        return [(part.parts[0], time)]

    def _below_expand(self, part: Linear, time: JavaObject) -> list[tuple[Part, JavaObject]]:
        columns = items(part.node.output())
        made = [self._replaced(time, _pairs(columns, items(each))) for each in items(part.node.projections())]
        if any(each.foldable() for each in made):
            raise self._refused("some rows of GROUPING SETS, ROLLUP or CUBE have no time")
        (below,) = part.parts
        if any(not isinstance(operator, Leaf) for each in made for operator, _ in self._through(below, each)):
            if any(not made[0].semanticEquals(each) for each in made):
                raise self._refused("a row of a group or join becomes several rows with other times")
            return [(below, made[0])]
        return [(below, each) for each in made]

    # ------------------------------------------------------------------------------------------------------ operators

    def _operator(self, found: _Found, operator: Operator, time: JavaObject) -> None:
        if isinstance(operator, Leaf):
            self._leaf(found, operator, time)
            return
        if not isinstance(operator, Keyed):
            raise self._refused("the query has rows of its own (VALUES), which are not events")
        steps = {"Aggregate": self._aggregate, "Window": self._window, "Join": self._join}
        if operator.how not in steps:
            raise self._refused(f"the query has {operator.how.upper()} below its top, and another row would follow")
        steps[operator.how](found, operator, time)

    def _aggregate(self, found: _Found, operator: Keyed, time: JavaObject) -> None:
        below = self._replaced(time, _by_id(items(operator.node.aggregateExpressions())))
        if not _is_of(below, operator.inputs[0].keys):
            raise self._refused("it is not what the query groups by, so old events still count for new rows")
        self._input(found, operator.inputs[0], below)

    def _window(self, found: _Found, operator: Keyed, time: JavaObject) -> None:
        if not _is_of(time, operator.inputs[0].keys):
            raise self._refused("it is not in PARTITION BY, so window functions of new rows read old rows")
        self._input(found, operator.inputs[0], time)

    def _join(self, found: _Found, operator: Keyed, time: JavaObject) -> None:
        wanted = _references(time)
        sides = [
            side
            for side, each in enumerate(operator.inputs)
            if wanted <= {expression_id(column) for column in each.columns}
        ]
        allowed = (0, 1) if operator.is_bilinear else (operator.main_side,)
        if len(sides) != 1 or sides[0] not in allowed:
            raise self._refused("it comes from a side of an outer join that may have no row, or from both sides")
        side = sides[0]
        self._input(found, operator.inputs[side], time)
        other = operator.inputs[1 - side]
        for own, same in zip(operator.inputs[side].keys, other.keys, strict=True):
            if own.semanticEquals(time):
                self._input(found, other, same)
                break

    def _leaf(self, found: _Found, leaf: Leaf, time: JavaObject) -> None:
        columns = {str(each.name()): each for each in items(time.references().toSeq())}
        if len(columns) != 1:
            raise self._refused("it is not computed from one column of the events")
        ((name, column),) = columns.items()
        if self._sources[leaf.source].is_table:
            raise self._refused(f"it comes from {leaf.source}, a table whose rows change")
        if data_type(column).typeName() not in TIME_TYPES:
            raise self._refused(f"it comes from {leaf.source}.{name} of type {column.dataType().simpleString()}")
        if found.clocks.setdefault(leaf.source, name) != name:
            raise self._refused(f"it comes from two columns of {leaf.source}")

    def _replaced(self, expression: JavaObject, by_id: Mapping[int, JavaObject]) -> JavaObject:
        def replace(part: JavaObject) -> JavaObject | None:
            return by_id.get(expression_id(part)) if kind(part) == "AttributeReference" else None

        return self._catalyst.rewrite(expression, replace)


def _by_id(expressions: Sequence[JavaObject]) -> dict[int, JavaObject]:
    return {expression_id(each): each.child() for each in expressions if kind(each) == "Alias"}


def _pairs(columns: Sequence[JavaObject], expressions: Sequence[JavaObject]) -> dict[int, JavaObject]:
    return {expression_id(column): each for column, each in zip(columns, expressions, strict=True)}


def _references(expression: JavaObject) -> set[int]:
    return {expression_id(each) for each in items(expression.references().toSeq())}


def _is_of(expression: JavaObject, keys: Sequence[JavaObject]) -> bool:
    """Whether the expression is computed from these keys alone."""
    if any(expression.semanticEquals(key) for key in keys):
        return True
    if kind(expression) in ("AttributeReference", "AggregateExpression", "PythonUDAF"):
        return False
    return all(_is_of(part, keys) for part in children(expression))
