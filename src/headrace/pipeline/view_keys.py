"""Which output columns of a query tell its rows apart: those that it groups by, found in its plan.

Unlike ``plan`` this has to work for any query that Spark can keep as a stream.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.catalyst import Catalyst, Java, children, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: In the metadata of a session window's column.
_SESSION_WINDOW = "spark.sessionWindow"


class Grouping(NamedTuple):
    """
    :ivar columns: the output columns that are grouped by, or fields of it (a window's start).
    :ivar missing: what is grouped by and does not show in any output column, as SQL.
    :ivar numbers: of each of ``columns``, which of the things that are grouped by it shows.
    :ivar settled: the output columns that have one value for all of a group's life.
    :ivar is_of_sessions_only: whether session windows are all that is grouped by.
    :ivar is_whole: whether what changed does not say which rows are gone: something above the groups sorts or limits
        them, filters them by what may change, or makes several rows of one; or they are session windows, which grow
        together.
    """

    columns: tuple[str, ...]
    missing: tuple[str, ...]
    is_whole: bool
    numbers: tuple[int, ...]
    settled: frozenset[str]
    is_of_sessions_only: bool

    def left_out_by(self, key: Collection[str]) -> list[str]:
        """Columns that groups may differ in which are the same in all of these."""
        covered = {number for name, number in zip(self.columns, self.numbers, strict=True) if name in key}
        return [name for name, number in zip(self.columns, self.numbers, strict=True) if number not in covered]


def grouping_of(frame: DataFrame) -> Grouping | None:
    """Nothing if the query does not aggregate."""
    top = Catalyst(frame.sparkSession).analyzed(frame)
    above, node = [], top
    while kind(node) not in ("Aggregate", "Distinct", "Deduplicate"):
        below = children(node)
        if len(below) != 1:
            return None
        above.append(node)
        node = below[0]
    grouped, carried = _of_aggregate(node)
    settled = {expression_id(each) for each in items(node.output())} - _counted(node)
    is_whole = False
    for each in reversed(above):
        is_whole |= kind(node) == "Aggregate" and _may_take_rows_away(each, carried)
        if kind(each) == "Project":
            carried = _through(each, carried)
            settled = {expression_id(one) for one in items(each.projectList()) if _references(one) <= settled}
    columns = [(str(each.name()), carried.get(expression_id(each))) for each in items(top.output())]
    shown = {number for _, number in columns}
    missing = [str(key.sql()) for number, key in enumerate(grouped) if number not in shown and not key.foldable()]
    is_whole |= any(kind(each) in ("Sort", "GlobalLimit") for each in above)
    is_whole |= any(is_session_window(each) for each in grouped)
    return Grouping(
        columns=tuple(name for name, number in columns if number is not None),
        missing=tuple(missing),
        is_whole=is_whole,
        numbers=tuple(number for _, number in columns if number is not None),
        is_of_sessions_only=len(grouped) == 1 and is_session_window(grouped[0]),
        settled=frozenset(str(each.name()) for each in items(top.output()) if expression_id(each) in settled),
    )


def is_session_window(key: Java) -> bool:
    return kind(key) == "AttributeReference" and bool(key.metadata().contains(_SESSION_WINDOW))


def _may_take_rows_away(node: Java, carried: dict[int, int]) -> bool:
    """A condition on what is grouped by always says the same of a group; one on what is counted may not."""
    if kind(node) == "Filter":
        return not _references(node.condition()) <= carried.keys()
    return kind(node) == "Generate"


def _references(expression: Java) -> set[int]:
    return {expression_id(each) for each in items(expression.references().toSeq())}


def _counted(node: Java) -> set[int]:
    """The outputs that change as a group grows."""
    if kind(node) != "Aggregate":
        return set()
    outputs = items(node.aggregateExpressions())
    return {expression_id(each) for each in outputs if any(kind(part) == "AggregateExpression" for part in walk(each))}


def _of_aggregate(node: Java) -> tuple[list[Java], dict[int, int]]:
    """What is grouped by; and for each output that is such a thing, by its id, which one."""
    if kind(node) == "Aggregate":
        grouped, outputs = items(node.groupingExpressions()), items(node.aggregateExpressions())
    else:
        outputs = items(node.output())
        grouped = outputs if kind(node) == "Distinct" else items(node.keys())
    carried = {}
    for output in outputs:
        inner = _inner(output)
        for number, key in enumerate(grouped):
            if inner.semanticEquals(key):
                carried[expression_id(output)] = number
    return grouped, carried


def _through(project: Java, carried: dict[int, int]) -> dict[int, int]:
    passed = {}
    for each in items(project.projectList()):
        inner = _inner(each)
        if kind(inner) == "AttributeReference" and expression_id(inner) in carried:
            passed[expression_id(each)] = carried[expression_id(inner)]
    return passed


def _inner(expression: Java) -> Java:
    """What an output is a name for; of a struct's field, the struct."""
    while kind(expression) in ("Alias", "GetStructField"):
        expression = children(expression)[0]
    return expression
