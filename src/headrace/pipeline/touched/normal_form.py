"""Brings the plan of a query into the form that ``operators`` cuts: a tree of relational operators without subqueries.

Spark's own rules do the work, one by one. Spark's whole optimizer cannot be used: some of its rules make plans that
cannot be analyzed a second time, and others split an operator that is cheaper to maintain as one (count(DISTINCT ...)).

    EXISTS, IN, correlated scalar subqueries     joins, by Spark's rules
    other scalar subqueries                      a left outer join with their one row     (``scalar_subqueries``)
    DISTINCT, INTERSECT, EXCEPT                  aggregates and joins, by Spark's rules
    conditions                                   moved down, so that less is kept as state
    columns                                      removed where nothing needs them, for the same reason
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject
from headrace.pipeline.touched.scalar_subqueries import ScalarSubqueries
from headrace.pipeline.touched.top import NotTouchable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"

_FIRST = (
    f"{_ANALYSIS}.EliminateSubqueryAliases",
    f"{_ANALYSIS}.EliminateView",
    f"{_ANALYSIS}.EliminateEventTimeWatermark",
    f"{_OPTIMIZER}.EliminateResolvedHint",
    f"{_OPTIMIZER}.ReplaceExpressions",
    f"{_OPTIMIZER}.RewriteWithExpression",
    f"{_OPTIMIZER}.RewriteNonCorrelatedExists",
)
_SUBQUERIES = (
    f"{_OPTIMIZER}.PullupCorrelatedPredicates",
    f"{_OPTIMIZER}.RewritePredicateSubquery",
    f"{_OPTIMIZER}.RewriteCorrelatedScalarSubquery",
    f"{_OPTIMIZER}.RewriteLateralSubquery",
)
_REPLACED = (
    f"{_OPTIMIZER}.RewriteExceptAll",
    f"{_OPTIMIZER}.RewriteIntersectAll",
    f"{_OPTIMIZER}.ReplaceIntersectWithSemiJoin",
    f"{_OPTIMIZER}.ReplaceExceptWithAntiJoin",
    f"{_OPTIMIZER}.ReplaceDistinctWithAggregate",
    f"{_OPTIMIZER}.ReplaceDeduplicateWithAggregate",
)
_MOVED = (
    f"{_OPTIMIZER}.ReorderJoin",
    f"{_OPTIMIZER}.EliminateOuterJoin",
    f"{_OPTIMIZER}.PushDownPredicates",
    f"{_OPTIMIZER}.ColumnPruning",
    f"{_OPTIMIZER}.CollapseProject",
    f"{_OPTIMIZER}.CombineUnions",
    f"{_OPTIMIZER}.RemoveNoopOperators",
    f"{_OPTIMIZER}.ConstantFolding",
    f"{_OPTIMIZER}.BooleanSimplification",
)
_MAX_ROUNDS = 50


def normalized(catalyst: Catalyst, frame: DataFrame) -> JavaObject:
    """The plan of a query in normal form. Its leaves are those of the frame.

    :raises NotTouchable: if a subquery is left.
    """
    rules = _Rules(catalyst)
    plan = rules.once(catalyst.analyzed(frame), _FIRST)
    for _ in range(_MAX_ROUNDS):
        if not catalyst.contains(plan, "PLAN_EXPRESSION") and not catalyst.contains(plan, "LATERAL_JOIN"):
            break
        plan = rules.once(plan, (*_SUBQUERIES, *_FIRST))
        plan = ScalarSubqueries(catalyst).joined(plan)
    if catalyst.contains(plan, "PLAN_EXPRESSION"):
        raise NotTouchable("it has a subquery in a place where Headrace cannot make it a join")
    plan = rules.until_stable(rules.once(plan, _FIRST), _REPLACED)
    return rules.until_stable(plan, _MOVED)


class _Rules:
    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst

    def once(self, plan: JavaObject, names: tuple[str, ...]) -> JavaObject:
        for name in names:
            plan = self._catalyst.rule(name).apply(plan)
        return plan

    def until_stable(self, plan: JavaObject, names: tuple[str, ...]) -> JavaObject:
        for _ in range(_MAX_ROUNDS):
            before = plan
            plan = self.once(plan, names)
            if plan.fastEquals(before):
                break
        return plan
