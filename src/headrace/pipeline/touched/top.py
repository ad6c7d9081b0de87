"""ORDER BY, LIMIT and OFFSET at the top of a query: the SQL view does them when it is read.

If the databases do not sort as Spark does (``query.sorting``), LIMIT and OFFSET are an operator instead, and the SQL
view shows the rows in no order.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.pipeline.query.plan import ORDER, SortBy
from headrace.pipeline.query.sorting import nan_flag, sorts_alike
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, data_type, items, kind

LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail"}


class NotTouchable(Exception):
    """The query cannot be maintained by touched keys."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this query cannot be maintained by touched keys: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Shown:
    """How the SQL view shows the rows of a view.

    :ivar output: the names of the columns that readers see.
    """

    output: tuple[str, ...]
    order: tuple[SortBy, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class Top:
    """The query without ORDER BY and LIMIT at its top, which the SQL view does."""

    plan: JavaObject
    columns: list[JavaObject]
    order: tuple[SortBy, ...]
    limit: int | None
    offset: int

    @classmethod
    def of(cls, catalyst: Catalyst, plan: JavaObject) -> Top:
        projection, node, limit, offset = None, plan, None, 0
        if kind(node) == "Project" and kind(children(node)[0]) in (LIMITS | {"Sort"}):
            projection, node = node, children(node)[0]
        while kind(node) in ("GlobalLimit", "LocalLimit"):
            count = _number(node.limitExpr())
            limit = count if limit is None else min(limit, count)
            (node,) = children(node)
        if kind(node) == "Offset":
            offset = _number(node.offsetExpr())
            (node,) = children(node)
        if projection is None and kind(node) == "Project" and kind(children(node)[0]) == "Sort":
            projection, node = node, children(node)[0]
        sort = node if kind(node) == "Sort" and getattr(node, "global")() else None
        if sort is not None and not all(sorts_alike(data_type(children(term)[0])) for term in items(sort.order())):
            return cls(plan, items(plan.output()), (), None, 0)
        if kind(node) in LIMITS or (sort is None and limit is None and not offset):  # nothing to move
            return cls(plan, items(plan.output()), (), None, 0)
        below = children(sort)[0] if sort is not None else node
        return cls._moved(catalyst, plan, projection, sort, below, limit, offset)

    @classmethod
    def _moved(
        cls, catalyst: Catalyst, plan: JavaObject, projection: JavaObject, sort: JavaObject, below: JavaObject,
        limit: int | None, offset: int,
    ) -> Top:  # fmt: skip
        outputs = items(projection.projectList()) if projection is not None else items(below.output())
        shown = items(plan.output())
        terms = items(sort.order()) if sort is not None else []
        columns = [catalyst.column(each) for each in outputs]
        order: list[SortBy] = []
        for term in terms:
            (expression,) = children(term)
            direction = kind(term.direction()) == "Descending", kind(term.nullOrdering()) == "NullsFirst"
            if (flag := nan_flag(catalyst, expression)) is not None:
                columns.append(flag.alias(f"{ORDER}{len(order)}"))
                order.append(SortBy(f"{ORDER}{len(order)}", *direction))
            same = [one for one, of in zip(shown, outputs, strict=True) if of.semanticEquals(expression)]
            name = str(same[0].name()) if same else f"{ORDER}{len(order)}"
            if not same:
                columns.append(catalyst.column(expression).alias(name))
            order.append(SortBy(name, *direction))
        made = catalyst.select(below, columns)
        return cls(made, items(made.output()), tuple(order), limit, offset)


def _number(expression: JavaObject) -> int:
    if not expression.foldable():
        raise NotTouchable("its LIMIT is not a number")
    return int(expression.eval(None))
