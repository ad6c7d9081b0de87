"""Implements HAVING in a stream that emits only the groups that changed.

When a group no longer satisfies the condition, a filter would emit no row for it, and its last row would stay in the
table. So groups are not filtered. Each row has a column that says whether it is hidden, and the SQL view leaves hidden
rows out. The table also contains the hidden groups, but a batch still costs only the groups that it touches. (Spark's
mode ``complete`` would also be correct, but every batch would write all groups.) Nothing is computed for rows that are
already hidden, as in ``query.plan_above``: the condition may protect the computation, for example from a division by
zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HIDDEN = "_hidden"


def mark_hidden_groups(query: DataFrame) -> DataFrame:
    """The query with all groups and the column ``_hidden``.

    The query itself if it does not filter its groups, or does something else with them too, such as sorting.
    """
    from pyspark.sql import functions as F  # noqa: N812

    catalyst = Catalyst(query.sparkSession)
    above: list[JavaObject] = []
    node = catalyst.analyzed(query)
    while kind(node) in ("Project", "Filter", "SubqueryAlias"):
        above.append(node)
        (node,) = children(node)
    if kind(node) != "Aggregate" or not any(kind(each) == "Filter" for each in above):
        return query
    made = catalyst.frame(node).withColumn(HIDDEN, F.lit(False))
    for each in reversed(above):
        if kind(each) == "Filter":
            hides = ~F.coalesce(catalyst.column(each.condition()), F.lit(False))
            shown = [catalyst.column(one) for one in items(each.output())]
            made = made.select(*shown, F.when(F.col(HIDDEN), F.lit(True)).otherwise(hides).alias(HIDDEN))
        elif kind(each) == "Project":
            made = made.select(*_unless_hidden(catalyst, made, items(each.projectList())), HIDDEN)
    return made


def _unless_hidden(catalyst: Catalyst, made: DataFrame, outputs: list[JavaObject]) -> list[Column]:
    hidden = items(catalyst.analyzed(made).output())[-1]
    guarded = [
        catalyst.with_children(one, [catalyst.null_if(hidden, one.child())])
        if kind(one) == "Alias" and kind(one.child()) != "AttributeReference"
        else one
        for one in outputs
    ]
    return [catalyst.column(one) for one in guarded]
