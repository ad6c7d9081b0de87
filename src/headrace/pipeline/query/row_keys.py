"""Chooses the key columns of a view's rows, and Spark's output mode for its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem, did_you_mean
from headrace.pipeline.query.grouping import Grouping, grouping_of
from headrace.pipeline.query.problems import query_problem
from headrace.pipeline.query.view_query import ViewError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def output_mode(query: DataFrame) -> str:
    """Spark's output mode: ``update`` for groups, ``complete`` if their rows may disappear again (HAVING, LIMIT), else
    ``append``."""
    grouping = grouping_of(query)
    if grouping is None:
        return "append"
    return "complete" if grouping.is_whole else "update"


def key_columns(definition: ViewDefinition, query: DataFrame) -> tuple[str, ...]:
    """The output columns that form the key of a row in the serving database.

    :raises ViewError: if no output columns identify the rows.
    """
    check_key_names(definition, query.columns)
    grouping = grouping_of(query)
    if definition.key:
        if grouping is not None:
            _check_key(definition, grouping)
        return definition.key
    if grouping is None:
        hint = 'set key to the columns that identify a row, such as key = ["id"]'
        raise ViewError(key_problem(definition, f"the query has no GROUP BY, so it has no key: {hint}"))
    if grouping.missing:
        hint = "add it to SELECT" if "grouping_id" not in grouping.missing[0] else "add grouping_id() to SELECT"
        message = f"rows are identified by {grouping.missing[0]}, which is not an output column: {hint}"
        raise ViewError(query_problem(definition, message))
    return grouping.columns


def identifying_columns(definition: ViewDefinition, query: DataFrame) -> tuple[str, ...] | None:
    """The output columns that identify a row; empty if there is only one row, None if no columns are known to."""
    if definition.key:
        return definition.key
    grouping = grouping_of(query)
    if grouping is None or grouping.missing or grouping.repeats_groups:
        return None
    return grouping.columns


def check_key_names(definition: ViewDefinition, names: Sequence[str]) -> None:
    """
    :param names: the output columns of the query.
    :raises ViewError: if ``key`` names a column that the query does not have.
    """
    unknown = [name for name in definition.key if name not in names]
    if unknown:
        message = f"key: the query has no column {unknown[0]!r}{did_you_mean(unknown[0], names)}"
        raise ViewError(Problem(definition.file, definition.line("key"), message))


def _check_key(definition: ViewDefinition, grouping: Grouping) -> None:
    """Checks that each group has exactly one row."""
    left_out = [*grouping.missing, *grouping.left_out_by(definition.key)]
    changing = [] if grouping.is_whole else [name for name in definition.key if name not in grouping.settled]
    if left_out:
        message = f"key: rows that differ only in {left_out[0]} would overwrite each other"
    elif changing:
        message = (
            f"key: {changing[0]} changes when its group gets more events, and would leave a row for each of its values"
        )
    else:
        return
    raise ViewError(key_problem(definition, f"{message}: remove key, so that the columns of GROUP BY are the key"))


def key_problem(definition: ViewDefinition, message: str) -> Problem:
    """A problem that ``key`` causes or can solve, at the line of ``key`` in the view's file."""
    return Problem(definition.file, definition.line("key") or definition.line("query"), message)
