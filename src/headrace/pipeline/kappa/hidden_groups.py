"""HAVING in a stream that only tells what changed.

A group that fits a condition no more gives no row, and so its last row would stay in the table. So groups are not
filtered: each row says whether it is hidden, and the SQL view leaves the hidden ones out. The table grows by the groups
that do not show; the cost of a batch stays that of the groups that it touches. (Spark's mode ``complete`` would do as
well, for the price of all groups in every batch.) Nothing is computed for rows that are hidden already, as in
``plan_above``: the query may have hidden them because it cannot be (a division by zero).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.spark.catalyst import Catalyst, Java, children, items, kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HIDDEN = "_hidden"


def hiding(query: DataFrame) -> DataFrame:
    """The query with a column more, and all groups; itself if it filters none, or does more than that with them."""
    from pyspark.sql import functions as F  # noqa: N812

    catalyst = Catalyst(query.sparkSession)
    above: list[Java] = []
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


def _unless_hidden(catalyst: Catalyst, made: DataFrame, outputs: list[Java]) -> list[Column]:
    hidden = items(catalyst.analyzed(made).output())[-1]
    guarded = [
        catalyst.with_children(one, [catalyst.null_if(hidden, one.child())])
        if kind(one) == "Alias" and kind(one.child()) != "AttributeReference"
        else one
        for one in outputs
    ]
    return [catalyst.column(one) for one in guarded]
