"""Replaces scalar subqueries that are not correlated by left outer joins with their one row.

======================================  ==============================================================================
a subquery is an expression of          its row is joined
======================================  ==============================================================================
an Aggregate, beside its functions      above the Aggregate, which then computes only its keys and functions
an Aggregate, inside of a function      below the Aggregate
a Join                                  to the left side, so that the condition can use it
any other node                          below the node
======================================  ==============================================================================
"""

from __future__ import annotations

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, expression_id, items, kind, walk

_FUNCTIONS = ("AggregateExpression", "PythonUDAF")


class ScalarSubqueries:
    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def joined(self, plan: JavaObject) -> JavaObject:
        """The plan with joins in place of subqueries."""
        if not self._catalyst.contains(plan, "SCALAR_SUBQUERY"):
            return plan
        old = children(plan)
        plan = self._catalyst.with_children(plan, [self.joined(each) for each in old]) if old else plan
        if not old or not any(self._has(each) for each in items(plan.expressions())):
            return plan
        if kind(plan) == "Aggregate":
            return self._of_aggregate(plan)
        return self._of_join(plan) if kind(plan) == "Join" else self._below(plan)

    def _has(self, expression: JavaObject) -> bool:
        return self._catalyst.contains(expression, "SCALAR_SUBQUERY")

    def _below(self, node: JavaObject) -> JavaObject:
        """Joins the rows of a node's subqueries to the child of the node."""
        (child,) = children(node)
        found: list[JavaObject] = []
        replaced = [(each, self._replaced(each, found)) for each in items(node.expressions()) if self._has(each)]
        made = self._catalyst.with_expressions(node, replaced, self._with_rows(child, found))
        if kind(node) in ("Project", "Aggregate"):
            return made
        return self._catalyst.project(items(node.output()), made)

    def _of_join(self, node: JavaObject) -> JavaObject:
        left, right = children(node)
        found: list[JavaObject] = []
        condition = self._replaced(node.condition().get(), found)
        made = self._catalyst.join_like(node, self._with_rows(left, found), right, condition)
        return self._catalyst.project(items(node.output()), made)

    def _replaced(self, expression: JavaObject, found: list[JavaObject]) -> JavaObject:
        """The expression with columns in place of subqueries, which are added to ``found``."""

        def replace(part: JavaObject) -> JavaObject | None:
            if kind(part) != "ScalarSubquery" or items(part.outerAttrs()):
                return None
            if not any(expression_id(each) == expression_id(part) for each in found):
                found.append(part)
            return items(part.plan().output())[0]

        return self._catalyst.rewrite(expression, replace)

    def _with_rows(self, plan: JavaObject, subqueries: list[JavaObject]) -> JavaObject:
        for subquery in subqueries:
            plan = self._catalyst.join(plan, subquery.plan(), "LeftSingle")
        return plan

    # ----------------------------------------------------------------------------------------------------- aggregates

    def _of_aggregate(self, node: JavaObject) -> JavaObject:
        from pyspark.sql import functions as F  # noqa: N812

        catalyst, outputs, grouping = (
            self._catalyst,
            items(node.aggregateExpressions()),
            items(node.groupingExpressions()),
        )
        functions = [part for each in outputs for part in walk(each) if kind(part) in _FUNCTIONS]
        keys = [catalyst.column(each).alias(f"_g{at}") for at, each in enumerate(grouping)]
        values = [catalyst.column(each).alias(f"_a{at}") for at, each in enumerate(functions)]
        rows = catalyst.frame(children(node)[0])
        values = values or [F.count("*").alias("_a0")]
        lower = (rows.groupBy(*keys).agg(*values) if keys else rows.agg(*values))._jdf.queryExecution().analyzed()
        columns = items(lower.output())
        known = [*zip(grouping, columns, strict=False), *zip(functions, columns[len(keys) :], strict=False)]

        def replace(part: JavaObject) -> JavaObject | None:
            return next((column for of, column in known if part.semanticEquals(of)), None)

        above = [self._named(catalyst.rewrite(each, replace), each) for each in outputs]
        if not any(map(self._has, above)):
            return self._below(node)
        is_inside = any(map(self._has, items(lower.expressions())))
        return self._below(catalyst.project(above, self._below(lower) if is_inside else lower))

    def _named(self, expression: JavaObject, output: JavaObject) -> JavaObject:
        return expression if kind(output) == "Alias" else self._catalyst.alias(expression, output)
