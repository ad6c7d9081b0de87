"""Finds what makes an answer depend on more than the records: chance, the clock, the place of a row, a file.

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
#: Texts that Spark replaces by the present time where it expects a time or a date (``WHERE day = 'today'``).
_CLOCK_WORDS = frozenset({"now", "today", "tomorrow", "yesterday"})
_TIME_TYPES = frozenset({"date", "timestamp", "timestamp_ntz"})
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


#: Relations of files and tables, as Spark reads them.
_OUTSIDE = frozenset({"LogicalRelation", "DataSourceV2Relation", "HiveTableRelation"})
_FILE = (
    "it reads a file or a table outside of the log, whose rows can change without a record: send the rows to a topic "
    'and read them as a source of kind = "table", or write them into the query with VALUES'
)


def nondeterminism(query: DataFrame) -> str | None:
    """Why the answer is another one each time it is computed, and the way out; None if the query is deterministic."""
    catalyst = Catalyst(query.sparkSession)
    top = catalyst.analyzed(query)
    # Subqueries first: an expression around a subquery is not deterministic if the subquery is not.
    for plan in (*items(top.subqueriesAll()), top):
        if word := _clock_word(catalyst, plan):
            return clock_word_reason(word)
        for node in walk(plan):
            if kind(node) == "Sample":
                return _SAMPLE
            if kind(node) in _OUTSIDE:
                return _FILE
            for expression in items(node.expressions()):
                if found := _culprit(catalyst, expression):
                    return _explained(found)
    return None


def is_clock_word(text: str) -> bool:
    """Whether Spark reads a text as the present time, the present day or a day beside it."""
    return text.strip().lower() in _CLOCK_WORDS


def clock_word_reason(word: str) -> str:
    return f"as a time, '{word}' has another value each time the query is computed: {_TIME}"


def _clock_word(catalyst: Catalyst, plan: JavaObject) -> str | None:
    """The text that Spark's optimizer replaces by the present time, if there is one."""
    plan = catalyst.rule("org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(plan)
    replaced = catalyst.rule("org.apache.spark.sql.catalyst.optimizer.SpecialDatetimeValues").apply(plan)
    if replaced.fastEquals(plan):
        return None
    for node in walk(plan):
        for expression in items(node.expressions()):
            for cast in (part for part in walk(expression) if kind(part) == "Cast"):
                if word := _clock_word_of(cast):
                    return word
    return None  # 'epoch' is always the same time


def _clock_word_of(cast: JavaObject) -> str | None:
    (text,) = children(cast)
    if cast.dataType().typeName() not in _TIME_TYPES or text.dataType().typeName() != "string" or not text.foldable():
        return None
    value = text.eval(None)
    return str(value).strip() if value is not None and is_clock_word(str(value)) else None


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
