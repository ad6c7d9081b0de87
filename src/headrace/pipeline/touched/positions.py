"""Carries the positions of records in the log up through a plan, for operators whose result depends on the order."""

from __future__ import annotations

from headrace.pipeline.query.plan import POSITION
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, children, expression_id, items, kind

#: Nodes that change the order or the place of rows, and nothing else.
TRANSPARENT = {"Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
#: The leaf of a source (``placeholders``).
PLACEHOLDER = "LogicalRDD"


def widened(catalyst: Catalyst, node: JavaObject) -> tuple[JavaObject, list[JavaObject]]:
    """The same rows with their positions in the log as more columns, and these columns; none if rows have no position.

    The positions of a joined row are those of its left row, then those of its right row.
    """
    name, below = kind(node), children(node)
    if name == PLACEHOLDER:
        by_name = {str(each.name()): each for each in items(node.output())}
        return node, [by_name[each] for each in POSITION if each in by_name]
    if name in ("Filter", "Project", "Generate", "Window", *TRANSPARENT):
        child, positions = widened(catalyst, below[0])
        if name == "Project":
            known = {expression_id(each) for each in items(node.output())}
            more = [each for each in positions if expression_id(each) not in known]
            return catalyst.project([*items(node.projectList()), *more], child), positions
        made = catalyst.with_children(node, [child])
        kept = {expression_id(each) for each in items(made.output())}
        return made, [each for each in positions if expression_id(each) in kept]
    if name == "Join":
        sides = [widened(catalyst, each) for each in below]
        made = catalyst.with_children(node, [side for side, _ in sides])
        kept = {expression_id(each) for each in items(made.output())}
        return made, [each for _, positions in sides for each in positions if expression_id(each) in kept]
    return node, []
