"""Finds what makes the answer of a query depend on more than the records: chance, the clock, the place of a row.

A view is the query over a prefix of the log. If the query has ``rand()`` or ``current_timestamp()``, there is no such
answer: each computation would give another one. Functions whose value depends on the order of rows (``collect_list``,
``first``) are not meant: Headrace gives them the order of the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, items, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FROM_RECORD = "derive the value from the record, such as xxhash64(_topic, _partition, _offset)"
_TIME = (
    "use _timestamp or a column of the events; to compare with the present time, do it in the SQL that reads the view"
)
_PLACE = "use _topic, _partition and _offset, which identify a record"
#: By the kind of an expression, what to write instead.
_WAYS_OUT = {
    **dict.fromkeys(("Rand", "Randn", "Uniform", "RandStr", "Uuid", "Shuffle"), _FROM_RECORD),
    **dict.fromkeys(("CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"), _TIME),
    **dict.fromkeys(
        ("MonotonicallyIncreasingID", "SparkPartitionID", "InputFileName", "InputFileBlockStart",
         "InputFileBlockLength"), _PLACE,
    ),
    "CurrentUser": "write the name as a text",
}  # fmt: skip
_SAMPLE = (
    "a sample has other rows each time: select by the record instead, such as "
    "WHERE pmod(xxhash64(_topic, _partition, _offset), 10) = 0"
)


def nondeterminism(query: DataFrame) -> str | None:
    """Why the answer is another one each time it is computed, and the way out; None if the query is deterministic."""
    catalyst = Catalyst(query.sparkSession)
    top = catalyst.analyzed(query)
    # Subqueries first: an expression around a subquery is not deterministic if the subquery is not.
    for plan in (*items(top.subqueriesAll()), top):
        for node in walk(plan):
            if kind(node) == "Sample":
                return _SAMPLE
            for expression in items(node.expressions()):
                if found := _culprit(catalyst, expression):
                    return _explained(found)
    return None


def _culprit(catalyst: Catalyst, expression: JavaObject) -> JavaObject | None:
    """The innermost part of the expression that has another value each time."""
    if kind(expression) in _WAYS_OUT:
        return expression
    if expression.deterministic() and not catalyst.contains(expression, "CURRENT_LIKE"):
        return None
    below = children(expression)
    for child in below:
        if (found := _culprit(catalyst, child)) is not None:
            return found
    is_own = not expression.deterministic() and all(child.deterministic() for child in below)
    return expression if is_own and not catalyst.is_aggregate_function(expression) else None


def _explained(expression: JavaObject) -> str:
    what = kind(expression)
    if what.startswith("Python"):
        name = str(expression.name())
        advice = f"if {name} returns the same for the same arguments, do not mark it with asNondeterministic()"
        return f"the function {name} is marked as not deterministic, so its values change: {advice}"
    name = str(expression.prettyName()).lower()
    advice = _WAYS_OUT.get(what, _FROM_RECORD)
    return f"{name}() has another value each time the query is computed: {advice}"
