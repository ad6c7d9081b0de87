"""Checks [publish] of the views of a project: their topics, and that a row has a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.pipeline.changes.published_topic import COMPACTED, not_compacted
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.view_query import ViewError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def publish_topics(views: Iterable[ViewDefinition]) -> set[str]:
    """The topics that views are published to."""
    return {view.publish.topic for view in views if view.publish is not None}


def publish_problems(views: Iterable[ViewDefinition], policies: Mapping[str, str]) -> list[Problem]:
    """
    :param policies: the ``cleanup.policy`` of those topics that exist. Others are created when publishing begins.
    """
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for view in sorted(views, key=lambda each: each.name):
        if view.publish is None:
            continue
        topic = view.publish.topic
        if topic in first:
            problems.append(_problem(view, f"{first[topic]} is published to {topic} too: use a topic per view"))
        elif policies.get(topic, COMPACTED) != COMPACTED:
            problems.append(_problem(view, not_compacted(topic, policies[topic])))
        first.setdefault(topic, view.name)
    return problems


def check_published_key(definition: ViewDefinition, query: DataFrame) -> None:
    """
    :raises ViewError: if the view is published and no columns identify a row.
    """
    if definition.publish is not None and identifying_columns(definition, query) is None:
        hint = 'set key to the columns that identify a row, such as key = ["id"]'
        raise ViewError(
            _problem(definition, f"a record of a compacted topic needs a key, and the rows have none: {hint}")
        )


def _problem(view: ViewDefinition, message: str) -> Problem:
    return Problem(view.file, view.line("publish", "topic") or view.line("publish"), message)
