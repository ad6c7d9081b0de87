"""Computes what a change of the sources changes in every state and in the view's rows.

Operators are computed bottom-up. An operator whose input has not changed is left out. The others are computed over the
rows of their touched keys, in one Spark job each (``small_jobs``):

==========================  ==========================================================================================
in general                  the operator over the new rows of the touched keys, minus the operator over their old rows
inner join                  changed left rows joined with the new right rows, and old left rows joined with changed
                            right rows: other rows of a key are not joined again
left, semi and anti join    the left rows that have changed, and all left rows whose keys occur in the right change:
                            one order does not join the other orders of its customer again
==========================  ==========================================================================================

Where an aggregate needs sums only, the change is first added to the sums that are kept (``sums``).

The engine only reads. The caller writes the changes of all states and of the view in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.spark.catalyst import JavaObject
from headrace.pipeline.touched.bag import COUNT, Bag
from headrace.pipeline.touched.event_times import NOTHING_DROPPED
from headrace.pipeline.touched.operators import Input, Keyed, Leaf, Operator, Tree, keyed_plan
from headrace.pipeline.touched.small_jobs import SmallJobs, Variant, without_time
from headrace.pipeline.touched.sums import added_up

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: Reads the rows of an input that have one of these keys, as they were before the change.
ReadState = Callable[[Input, frozenset[int]], Bag]


class LeafChange(NamedTuple):
    """The change of a source: its rows, with the columns of the source by name. None if there are none.

    A column of type VARIANT is a text with its JSON (``small_jobs.sent``).
    """

    added: pa.Table | None
    removed: pa.Table | None = None


class Changes(NamedTuple):
    """
    :ivar states: by the number of an input, the change of its rows.
    :ivar rows: the change of the view's rows.
    """

    states: dict[int, Bag]
    rows: Bag


class Engine:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.jobs = SmallJobs(tree)

    def changes(self, sources: Mapping[str, LeafChange], read: ReadState, kept_after: int = NOTHING_DROPPED) -> Changes:
        """
        :param kept_after: new rows whose time is not after this one are left out (``keeping``). The caller deletes
            such rows from the states and from the view.
        """
        found: dict[int, Bag] = {}
        rows = Bag.empty(self.jobs.codec(self.tree.root))
        for operator in self.tree.operators:
            variants = self._variants(operator, sources, found, read)
            if not variants:
                continue
            target = operator.target
            plans = [Variant(each.weight, self.jobs.above(operator, each.plan)) for each in variants]
            made = self.jobs.run(target, plans, kept_after)
            if target is self.tree.root:
                rows = rows.plus(made)
            elif made:
                found[target.number] = found[target.number].plus(made) if target.number in found else made
        return Changes({number: bag for number, bag in found.items() if bag}, rows)

    def _variants(
        self, operator: Operator, sources: Mapping[str, LeafChange], found: dict[int, Bag], read: ReadState
    ) -> list[Variant]:
        if isinstance(operator, Leaf):
            return self._of_leaf(operator, sources.get(operator.source))
        if not isinstance(operator, Keyed):
            return []
        for each in operator.inputs:
            if each.groups is not None and (change := found.get(each.number)):
                old = read(each, frozenset(change.keys))
                found[each.number] = added_up(
                    self.jobs.codec(each), each.groups, old, change, has_times=each.time is not None
                )
        changes = [found.get(each.number) or Bag.empty(self.jobs.codec(each)) for each in operator.inputs]
        if not any(changes):
            return []
        if operator.is_bilinear:
            return self._of_inner_join(operator, changes, read)
        if operator.main_side is not None:
            return self._of_sided_join(operator, operator.main_side, changes, read)
        return self._of_keys(operator, changes, read)

    # ------------------------------------------------------------------------------------------------------- leaves

    def _of_leaf(self, leaf: Leaf, change: LeafChange | None) -> list[Variant]:
        tables = () if change is None else ((1, change.added), (-1, change.removed))
        return [
            Variant(weight, self.jobs.relation(leaf.output, _of_columns(leaf, rows)))
            for weight, rows in tables
            if rows is not None and rows.num_rows
        ]

    # ---------------------------------------------------------------------------------------------- keyed operators

    def _of_keys(self, operator: Keyed, changes: list[Bag], read: ReadState) -> list[Variant]:
        touched = frozenset(key for change in changes for key in change.keys)
        old = [read(each, touched) for each in operator.inputs]
        new = [before.plus(change) for before, change in zip(old, changes, strict=True)]
        return [*self._computed(operator, -1, old), *self._computed(operator, 1, new)]

    def _of_inner_join(self, operator: Keyed, changes: list[Bag], read: ReadState) -> list[Variant]:
        left_change, right_change = changes
        left, right = operator.inputs
        made: list[Variant] = []
        if left_change:
            new_right = read(right, frozenset(left_change.keys)).plus(right_change.of_keys(frozenset(left_change.keys)))
            for weight, side in ((1, left_change.part(is_positive=True)), (-1, left_change.part(is_positive=False))):
                made += self._computed(operator, weight, [side, new_right], needs_all=True)
        if right_change:
            old_left = read(left, frozenset(right_change.keys))
            for weight, side in ((1, right_change.part(is_positive=True)), (-1, right_change.part(is_positive=False))):
                made += self._computed(operator, weight, [old_left, side], needs_all=True)
        return made

    def _of_sided_join(self, operator: Keyed, main: int, changes: list[Bag], read: ReadState) -> list[Variant]:
        other = 1 - main
        main_change, other_change = changes[main], changes[other]
        touched = frozenset(other_change.keys)
        whole = read(operator.inputs[main], touched) if touched else Bag.empty(self.jobs.codec(operator.inputs[main]))
        single = main_change.of_keys(touched, is_in=False)
        old_main = whole.plus(single.part(is_positive=False))
        new_main = whole.plus(main_change.of_keys(touched)).plus(single.part(is_positive=True))
        old_other = read(operator.inputs[other], touched | frozenset(main_change.keys))
        new_other = old_other.plus(other_change)
        made: list[Variant] = []
        for weight, main_rows, other_rows in ((-1, old_main, old_other), (1, new_main, new_other)):
            if main_rows:
                rows = [main_rows, other_rows] if main == 0 else [other_rows, main_rows]
                made += self._computed(operator, weight, rows)
        return made

    def _computed(self, operator: Keyed, weight: int, rows: list[Bag], *, needs_all: bool = False) -> list[Variant]:
        """The operator over these rows; nothing if it is known to have no output.

        :param needs_all: whether there is no output without rows in every input.
        """
        if needs_all and not all(rows):
            return []
        if not any(rows) and not (operator.how == "Aggregate" and _is_total(operator)):
            return []
        plans: list[JavaObject] = [
            self.jobs.relation(each.columns, without_time(each, bag.copies(are_needed=operator.needs_copies)))
            if bag
            else self.jobs.nothing(each.columns)
            for each, bag in zip(operator.inputs, rows, strict=True)
        ]
        return [Variant(weight, keyed_plan(self.jobs.catalyst, operator, plans, is_small=True))]


def _is_total(operator: Keyed) -> bool:
    """Whether the aggregate has one row even if it has no input."""
    return not operator.node.groupingExpressions().size()


def _of_columns(leaf: Leaf, rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    wanted = rows.select([str(each.name()) for each in leaf.output])
    return wanted.append_column(COUNT, pa.nulls(rows.num_rows, pa.int64()))
