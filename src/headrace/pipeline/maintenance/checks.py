"""Checks views with Spark: whether their queries are valid, and how their answers can be kept up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.maintenance.choice import choose
from headrace.pipeline.maintenance.ways import MEANINGS, Maintenance, Way
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.export_checks import check_exported_columns
from headrace.pipeline.query.project_checks import Checked, ViewToCheck
from headrace.pipeline.query.publish_checks import check_published_key
from headrace.pipeline.query.validation import checked_query
from headrace.pipeline.query.view_query import ViewError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckedView(NamedTuple):
    """:ivar maintenance: None if there are problems, or if the view's file has some already."""

    problems: list[Problem]
    maintenance: Maintenance | None


def check_view(
    spark: SparkSession, definition: ViewDefinition, invalid_fields: Collection[str] = frozenset()
) -> CheckedView:
    """
    :param invalid_fields: fields and tables of the view's file that already have a problem. What depends on them is
        not checked.
    """
    try:
        query = checked_query(spark, definition, invalid_fields)
        if query is None or {"architecture", "key", "watermark", "maintain"} & set(invalid_fields):
            return CheckedView([], None)
        maintenance = choose(spark, definition, query)
        check_published_key(definition, query)
        check_exported_columns(definition, query)
        return CheckedView([], maintenance)
    except ViewError as error:
        return CheckedView([error.problem], None)


def check_views(spark: SparkSession, views: Iterable[ViewToCheck]) -> Checked:
    views = list(views)
    asked_for = {view.definition.name for view in views if view.definition.maintain}
    found = {view.definition.name: check_view(spark, *view) for view in views}
    problems = [problem for each in found.values() for problem in each.problems]
    ways = {name: str(each.maintenance.way) for name, each in found.items() if each.maintenance is not None}
    notes = {
        name: _note(each.maintenance)
        for name, each in found.items()
        if each.maintenance is not None and each.maintenance.way is Way.WHOLE and name not in asked_for
    }
    return Checked(problems, ways, notes)


def _note(maintenance: Maintenance) -> str:
    """Returns a note for users about whole answers that the project did not ask for."""
    refused = "; ".join(f"not {each.way}: {each.why}" for each in maintenance.refused)
    return f"{MEANINGS[Way.WHOLE]} ({refused}). Each record is read {maintenance.cost.reads}"
