"""The operators of a query that is maintained by touched keys.

A plan in normal form (``normal_form``) has two kinds of nodes:

**Linear** ones: Project, Filter, Generate, Expand, Union. The change of their output is the node over the change of
their input. They need no state.

**Keyed** ones: each output row depends only on the input rows with the same key. So the output changes only for keys
that occur in the change of the input (the *touched* keys):

=====================  ============================================================================================
Aggregate              the grouping expressions, without session windows: a new event can merge two sessions
Window                 PARTITION BY
Join                   the expressions that the condition says are equal; the rest of the condition is computed as is
Limit below the top    no key: all rows are touched by every change
=====================  ============================================================================================

An operator without a key (a total, a join without an equality) has one key for all rows. That is correct and may be
slow; ``explain`` tells so.

The tree alternates: a keyed operator has one or two :class:`Input`; an input is a tree of linear nodes over other
operators. The rows of an input are what the operator keeps as state; of an Aggregate that needs sums only, one row per
group (``sums``). Sort and Limit at the top of the query are done by the SQL view when it is read.

**Order.** A keyed operator is computed twice over the rows of its touched keys, without and with the change, and only
the difference goes on. So the result over the same rows must be the same each time, whatever their order. Where it may
depend on the order (row_number() with ties, collect_list, sums of doubles), the rows are sorted first: by their
position in the log where the query still has it, then by all columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, kind
from headrace.pipeline.touched.top import Shown

if TYPE_CHECKING:
    from headrace.pipeline.touched.keeping import Kept

#: Joins in which each output row belongs to one row of the left side.
_BY_LEFT = {"LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "LeftSingle"}


@dataclass(eq=False)
class Operator:
    """A part of the tree whose output is the input of another operator.

    :ivar output: the columns, as Catalyst's attributes.
    :ivar target: the input that reads the output.
    """

    output: list[JavaObject]
    target: Input = field(init=False)


@dataclass(eq=False)
class Leaf(Operator):
    """The rows of a source."""

    source: str


@dataclass(eq=False)
class Constant(Operator):
    """Rows that the query itself contains (VALUES). They never change."""

    node: JavaObject


@dataclass(eq=False)
class Keyed(Operator):
    """
    :ivar how: the kind of the node, or ``Limit``.
    :ivar node: the node; of a Limit, a tuple of nodes, the topmost first.
    :ivar order: where the result may depend on the order of rows: the sort orders that fix it.
    :ivar needs_copies: False if several equal input rows count as one.
    """

    how: str
    node: JavaObject
    inputs: tuple[Input, ...]
    order: tuple[JavaObject, ...] = ()
    needs_copies: bool = True

    @property
    def join_type(self) -> str:
        return kind(self.node.joinType()) if self.how == "Join" else ""

    @property
    def is_bilinear(self) -> bool:
        """Whether the change of the output is the change of one side joined with the rows of the other."""
        return self.join_type in ("Inner", "Cross")

    @property
    def main_side(self) -> int | None:
        """Of a join in which each output row belongs to one row of one side: that side."""
        return 0 if self.join_type in _BY_LEFT else 1 if self.join_type == "RightOuter" else None

    @property
    def has_key(self) -> bool:
        return bool(self.inputs[0].keys)


@dataclass(eq=False)
class Linear:
    """A linear node over other parts."""

    node: JavaObject
    parts: tuple[Part, ...]


Part: TypeAlias = Linear | Operator


@dataclass(eq=False)
class Input:
    """The input of a keyed operator, or of the view.

    :ivar columns: the columns of its rows.
    :ivar keys: the expressions of the key.
    :ivar groups: if the rows of a group are kept as one row (``sums``): how many columns say the group. The other
        columns are added up.
    :ivar key_texts: the key as the query has it, if ``keys`` are other columns.
    :ivar time: if rows are dropped by ``[keep]``, the expression of their time (``keeping``).
    """

    tree: Part
    columns: list[JavaObject]
    keys: tuple[JavaObject, ...] = ()
    number: int = -1
    groups: int | None = None
    key_texts: tuple[str, ...] = ()
    time: JavaObject | None = None

    def operators(self) -> list[Operator]:
        """The operators whose outputs this input reads."""
        return list(_operators(self.tree))


@dataclass(frozen=True)
class Tree:
    """A query, cut into operators.

    :ivar root: the rows of the view: the output columns, then the sort keys that are not among them.
    :ivar operators: all operators, each after the operators that it reads.
    :ivar kept: what ``[keep]`` means for the query.
    """

    catalyst: Catalyst
    root: Input
    operators: tuple[Operator, ...]
    shown: Shown
    kept: Kept | None = None

    @property
    def leaves(self) -> list[Leaf]:
        return [each for each in self.operators if isinstance(each, Leaf)]

    @property
    def keyed(self) -> list[Keyed]:
        return [each for each in self.operators if isinstance(each, Keyed)]

    @property
    def inputs(self) -> list[Input]:
        """The inputs that are kept as state, by number."""
        return [each for operator in self.keyed for each in operator.inputs]


def assembled(catalyst: Catalyst, part: Part, bound: Mapping[Operator, JavaObject]) -> JavaObject:
    """The plan of a part over the plans of its operators."""
    if isinstance(part, Operator):
        return bound[part]
    return catalyst.with_children(part.node, [assembled(catalyst, each, bound) for each in part.parts])


def keyed_plan(catalyst: Catalyst, operator: Keyed, inputs: Sequence[JavaObject], *, is_small: bool) -> JavaObject:
    """The plan of a keyed operator over the plans of its inputs.

    :param is_small: whether each input has one partition, so that rows need not be moved.
    """
    if operator.how == "Limit":
        made = catalyst.sort(operator.order, inputs[0], is_global=True)
        for node in reversed(operator.node):
            made = catalyst.with_children(node, [made])
        return catalyst.project(operator.output, made)
    if operator.order:
        (rows,) = inputs
        if not is_small:
            keys = [catalyst.column(each) for each in operator.inputs[0].keys]
            frame = catalyst.frame(rows)
            moved = frame.repartition(*keys) if keys else frame.coalesce(1)
            rows = moved._jdf.queryExecution().analyzed()
        inputs = [catalyst.sort(operator.order, rows, is_global=False)]
    return catalyst.with_children(operator.node, inputs)


def whole_plan(catalyst: Catalyst, target: Input, leaves: Mapping[Leaf, JavaObject]) -> JavaObject:
    """The plan of all rows of an input, over the rows of the sources."""

    def of(operator: Operator) -> JavaObject:
        if isinstance(operator, Leaf):
            return leaves[operator]
        if isinstance(operator, Constant):
            return operator.node
        assert isinstance(operator, Keyed)
        inputs = [whole_plan(catalyst, each, leaves) for each in operator.inputs]
        return keyed_plan(catalyst, operator, inputs, is_small=False)

    return assembled(catalyst, target.tree, {each: of(each) for each in target.operators()})


def _operators(part: Part) -> Iterator[Operator]:
    if isinstance(part, Operator):
        yield part
        return
    for each in part.parts:
        yield from _operators(each)
