"""Finds the output columns of a query that identify its rows: those that show what the query groups by.

Unlike ``plan`` this has to work for any query that Spark can run as a stream. Outputs and keys are compared as Catalyst
expressions, not by name: ``GROUP BY customer.id``, ``GROUP BY cid`` and ``GROUP BY 1`` are the same expression in the
analyzed plan, whatever the output is called.

An output may show a field of a key. One field of a time window is enough to identify the window. Of any other struct
all fields are needed, and they are enough only if the struct is never NULL: a NULL and a struct of NULLs are two groups
whose fields are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, expression_id, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Keys in the metadata of a window's column.
_SESSION_WINDOW, _TIME_WINDOW = "spark.sessionWindow", "spark.timeWindow"


class Shown(NamedTuple):
    """The part of a key that an output column shows.

    :ivar number: the number of the key.
    :ivar path: the ordinals of the fields from the key to the output; empty for the whole key.
    """

    number: int
    path: tuple[int, ...] = ()


class Shape(NamedTuple):
    """The parts of a key that identify its values.

    :ivar fields: the fields of a struct, if all of them together identify it.
    :ivar is_window: whether any field is enough.
    """

    fields: tuple[Shape, ...] = ()
    is_window: bool = False

    def is_identified_by(self, paths: Collection[tuple[int, ...]]) -> bool:
        if () in paths or (self.is_window and paths):
            return True
        below = [[path[1:] for path in paths if path[0] == ordinal] for ordinal in range(len(self.fields))]
        return bool(below) and all(each.is_identified_by(found) for each, found in zip(self.fields, below, strict=True))


class Grouping(NamedTuple):
    """
    :ivar columns: the output columns that show keys, or fields of keys such as the start of a window.
    :ivar missing: the keys that no output column shows, as SQL.
    :ivar shown: for each of ``columns``, the part of a key that it shows.
    :ivar shapes: the shapes of the keys.
    :ivar settled: the output columns whose value never changes for a group.
    :ivar is_of_sessions_only: whether the query groups by a session window only.
    :ivar repeats_groups: whether a group may have several rows, because something above the groups makes them of one.
    :ivar is_whole: whether every batch has to return all rows, because the rows that changed do not show which rows
        are gone. That is so if something above the groups sorts or limits them, filters them by values that may change,
        or makes several rows of one; and for session windows, which may merge.
    """

    columns: tuple[str, ...]
    missing: tuple[str, ...]
    is_whole: bool
    shown: tuple[Shown, ...]
    shapes: tuple[Shape, ...]
    settled: frozenset[str]
    is_of_sessions_only: bool
    repeats_groups: bool = False

    def left_out_by(self, key: Collection[str]) -> list[str]:
        """The columns in which groups may differ although they are equal in all columns of this key."""
        columns = list(zip(self.columns, self.shown, strict=True))
        identified = _identified(self.shapes, [shown for name, shown in columns if name in key])
        return [name for name, shown in columns if name not in key and shown.number not in identified]


def grouping_of(frame: DataFrame) -> Grouping | None:
    """The grouping of a query; None if it does not aggregate."""
    top = Catalyst(frame.sparkSession).analyzed(frame)
    above, node = [], top
    while kind(node) not in ("Aggregate", "Distinct", "Deduplicate"):
        below = children(node)
        if len(below) != 1:
            return None
        above.append(node)
        node = below[0]
    grouped, carried = _of_aggregate(node)
    settled = {expression_id(each) for each in items(node.output())} - _changing(node)
    is_whole = False
    for each in reversed(above):
        is_whole |= kind(node) == "Aggregate" and _may_take_rows_away(each, carried)
        if kind(each) == "Project":
            carried = _through(each, carried)
            settled = {expression_id(one) for one in items(each.projectList()) if _references(one) <= settled}
    outputs = [(str(each.name()), carried.get(expression_id(each))) for each in items(top.output())]
    columns = {name: shown for name, shown in outputs if shown is not None}
    shapes = tuple(_shape(key) for key in grouped)
    identified = _identified(shapes, columns.values())
    missing = [str(key.sql()) for number, key in enumerate(grouped) if number not in identified and not key.foldable()]
    is_whole |= any(kind(each) in ("Sort", "GlobalLimit") for each in above)
    is_whole |= any(is_session_window(each) for each in grouped)
    return Grouping(
        columns=tuple(columns),
        missing=tuple(missing),
        is_whole=is_whole,
        shown=tuple(columns.values()),
        shapes=shapes,
        is_of_sessions_only=len(grouped) == 1 and is_session_window(grouped[0]),
        repeats_groups=any(kind(each) in ("Generate", "Expand") for each in above),
        settled=frozenset(str(each.name()) for each in items(top.output()) if expression_id(each) in settled),
    )


def is_session_window(key: JavaObject) -> bool:
    return _has_metadata(key, _SESSION_WINDOW)


def is_window(key: JavaObject) -> bool:
    """Whether this is a time window of any kind. It is never NULL, but Spark's analysis does not always know that."""
    return is_session_window(key) or _has_metadata(key, _TIME_WINDOW)


def _has_metadata(key: JavaObject, name: str) -> bool:
    return kind(key) == "AttributeReference" and bool(key.metadata().contains(name))


def _shape(key: JavaObject) -> Shape:
    from pyspark.sql.types import DataType, StructType

    def of_type(type_: DataType, *, is_nullable: bool) -> Shape:
        if not isinstance(type_, StructType) or is_nullable:
            return Shape()
        return Shape(tuple(of_type(field.dataType, is_nullable=field.nullable) for field in type_))

    if is_window(key):
        return Shape(is_window=True)
    return of_type(data_type(key), is_nullable=bool(key.nullable()))


def _identified(shapes: Sequence[Shape], shown: Collection[Shown]) -> set[int]:
    """The numbers of the keys that these columns identify."""
    return {
        number
        for number, shape in enumerate(shapes)
        if shape.is_identified_by([each.path for each in shown if each.number == number])
    }


def _may_take_rows_away(node: JavaObject, carried: Collection[int]) -> bool:
    """Whether a node may remove rows later.

    A condition on keys has one result per group; one on aggregates may change.
    """
    if kind(node) == "Filter":
        return not _references(node.condition()) <= set(carried)
    return kind(node) == "Generate"


def _references(expression: JavaObject) -> set[int]:
    return {expression_id(each) for each in items(expression.references().toSeq())}


def _changing(node: JavaObject) -> set[int]:
    """The outputs whose values change when a group gets more rows."""
    if kind(node) != "Aggregate":
        return set()
    outputs = items(node.aggregateExpressions())
    return {expression_id(each) for each in outputs if any(kind(part) == "AggregateExpression" for part in walk(each))}


def _of_aggregate(node: JavaObject) -> tuple[list[JavaObject], dict[int, Shown]]:
    """The keys; and by id, the part of a key that each output shows."""
    if kind(node) == "Aggregate":
        grouped, outputs = items(node.groupingExpressions()), items(node.aggregateExpressions())
    else:
        outputs = items(node.output())
        grouped = outputs if kind(node) == "Distinct" else items(node.keys())
    keys: list[JavaObject] = []
    for key in grouped:  # GROUP BY page, page
        if not any(key.semanticEquals(known) for known in keys):
            keys.append(key)

    def of_key(expression: JavaObject) -> Shown | None:
        return next((Shown(number) for number, key in enumerate(keys) if expression.semanticEquals(key)), None)

    return keys, _shown_by(outputs, of_key)


def _through(project: JavaObject, carried: dict[int, Shown]) -> dict[int, Shown]:
    def of_attribute(expression: JavaObject) -> Shown | None:
        return carried.get(expression_id(expression)) if kind(expression) == "AttributeReference" else None

    return _shown_by(items(project.projectList()), of_attribute)


def _shown_by(outputs: Sequence[JavaObject], find: Callable[[JavaObject], Shown | None]) -> dict[int, Shown]:
    """By id, the part of a key that each output shows: a key under another name, or a field of a key."""
    found = {}
    for output in outputs:
        expression, path = output, tuple[int, ...]()
        while (shown := find(expression)) is None and kind(expression) in ("Alias", "GetStructField"):
            if kind(expression) == "GetStructField":
                path = (int(expression.ordinal()), *path)
            expression = children(expression)[0]
        if shown is not None:
            found[expression_id(output)] = Shown(shown.number, (*shown.path, *path))
    return found
