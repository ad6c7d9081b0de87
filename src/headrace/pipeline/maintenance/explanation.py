"""Explains a view for ``headrace views explain``: as JSON values, and as lines for people.

Commands import this module also if they do not start Spark, so it imports what needs Spark only where it uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipeline.maintenance.ways import MEANINGS, Maintenance, Way
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.maintenance.joins import JoinWarning


class Explained(NamedTuple):
    """:ivar explanation: None if there are problems."""

    problems: list[Problem]
    explanation: dict[str, Any] | None


def explain_view(spark: SparkSession, definition: ViewDefinition, log_options: Mapping[str, str]) -> Explained:
    """The explanation of a view, or the problems that Spark finds in it.

    :param log_options: the options with which ``format("headrace")`` reaches the log, for statistics.
    """
    from headrace.pipeline.maintenance.checks import check_view
    from headrace.pipeline.maintenance.joins import join_warnings

    problems, chosen = check_view(spark, definition)
    if chosen is None:
        return Explained(problems, None)
    return Explained([], _values(definition, chosen, join_warnings(spark, definition, log_options)))


def _values(definition: ViewDefinition, chosen: Maintenance, warnings: list[JoinWarning]) -> dict[str, Any]:
    cost = chosen.cost
    return {
        "view": definition.name,
        "architecture": definition.architecture,
        "way": str(chosen.way),
        "reason": chosen.reason,
        "refused": [{"way": str(each.way), "why": each.why} for each in chosen.refused],
        "cost": {
            "records_read_per_event": cost.records_read,
            "reads": cost.reads,
            "spark_jobs_per_micro_batch": cost.jobs,
            "work": cost.work,
            "state": cost.state,
        },
        "warnings": [{"text": each.text, "rows": each.rows} for each in warnings],
    }


def lines_of(explanation: dict[str, Any]) -> list[str]:
    """The explanation for people."""
    way, cost = explanation["way"], explanation["cost"]
    lines = [
        f"{explanation['view']} ({explanation['architecture']}) is kept up to date by {way}: {MEANINGS[Way(way)]}",
        f"why: {explanation['reason']}",
    ]
    lines += [f"not {each['way']}: {each['why']}" for each in explanation["refused"]]
    lines.append(f"each record is read {_times(cost['records_read_per_event'])}: {cost['reads']}")
    lines += [f"work: {cost['work']}", f"state: {cost['state']}"]
    if explanation.get("own_offsets"):
        lines.append(f"offsets of its own: {explanation['own_offsets']}")
    lines += [f"warning: {each['text']}" for each in explanation["warnings"]]
    return lines


def _times(count: int | None) -> str:
    return {None: "as often as the data needs", 1: "once", 2: "twice"}.get(count, f"{count} times")
