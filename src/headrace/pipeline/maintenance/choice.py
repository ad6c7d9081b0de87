"""Chooses the way in which the answer of a view is kept up to date: the cheapest exact way for the query.

``maintain = "..."`` in the view's file asks for a way. It is refused if that way is not exact for the query. The last
resort is ``whole``: it is exact for every query that Spark runs as a batch. Nothing is ever computed approximately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.kappa.view import why_stream
from headrace.pipeline.maintenance.costs import (
    cost_of_combining,
    cost_of_combining_log,
    cost_of_streaming,
    cost_of_whole,
)
from headrace.pipeline.maintenance.touched_costs import cost_of_touching, reason_for_touching
from headrace.pipeline.maintenance.ways import WAYS_OF, Cost, Maintenance, Refusal, Way
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.plan import NotCombinable, analyze
from headrace.pipeline.query.problems import query_problem
from headrace.pipeline.query.row_keys import check_key_names, key_columns, key_problem
from headrace.pipeline.query.validation import empty_query, stream_problem
from headrace.pipeline.query.view_query import ViewError, apply_query, empty_events
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.version.failures import summary_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Attempt(NamedTuple):
    spark: SparkSession
    definition: ViewDefinition
    query: DataFrame


class _Accepted(NamedTuple):
    reason: str
    cost: Callable[[], Cost]


def choose(spark: SparkSession, definition: ViewDefinition, query: DataFrame | None = None) -> Maintenance:
    """
    :param query: the query over no rows, if it is there already.
    :raises ViewError: if the way that the view's file asks for is not exact for the query, or if [keep] has no exact
        meaning for it.
    """
    attempt = _Attempt(spark, definition, empty_query(spark, definition) if query is None else query)
    check_key_names(definition, attempt.query.columns)
    if definition.maintain:
        return _asked_for(attempt, Way(definition.maintain))
    way, found, refused = _cheapest(attempt)
    return Maintenance(way, found.reason, refused, found.cost())


def choose_way(spark: SparkSession, definition: ViewDefinition, query: DataFrame) -> Way:
    """As :func:`choose`, without the cost, which takes longer to find out than the way."""
    attempt = _Attempt(spark, definition, query)
    check_key_names(definition, query.columns)
    return _asked_for(attempt, Way(definition.maintain)).way if definition.maintain else _cheapest(attempt)[0]


def _cheapest(attempt: _Attempt) -> tuple[Way, _Accepted, tuple[Refusal, ...]]:
    """The first way that is exact, and the refusals of those before it."""
    refused: list[Refusal] = []
    for way in WAYS_OF[attempt.definition.architecture]:
        found = _TRIED[way](attempt)
        if isinstance(found, _Accepted):
            return way, found, tuple(refused)
        refused.append(found)
    raise ViewError(refused[-1].problem)


def _asked_for(attempt: _Attempt, way: Way) -> Maintenance:
    definition = attempt.definition
    ways = WAYS_OF[definition.architecture]
    if way not in ways:
        others = " or ".join(f'"{each}"' for each in ways)
        message = (
            f'maintain = "{way}" is not a way of a {definition.architecture} view: set {others}, or remove maintain'
        )
        raise ViewError(Problem(definition.file, definition.line("maintain"), message))
    found = _TRIED[way](attempt)
    if isinstance(found, Refusal):
        message = f'maintain = "{way}" is not exact for this query: {found.why}'
        raise ViewError(Problem(definition.file, definition.line("maintain"), message))
    tried = [(each, _TRIED[each](attempt)) for each in ways[: ways.index(way)]]
    left_out = f'it would be exact, but maintain = "{way}" asks for another way'
    refused = [
        each if isinstance(each, Refusal) else Refusal(cheaper, left_out, key_problem(definition, left_out))
        for cheaper, each in tried
    ]
    return Maintenance(way, f'maintain = "{way}" asks for it', tuple(refused), found.cost())


def _streamed(attempt: _Attempt) -> DataFrame:
    """The query over a stream."""
    spark, definition, _ = attempt
    return apply_query(spark, definition, empty_events(spark, definition, is_stream=True))


# ------------------------------------------------------------------------------------------------------------ the ways


def _combine(attempt: _Attempt) -> _Accepted | Refusal:
    spark, definition, query = attempt
    if definition.sources:
        return _of_sources(Way.COMBINE, definition)
    if definition.keep is not None:
        return _cannot_keep(Way.COMBINE, definition)
    if refusal := _of_variant(Way.COMBINE, attempt):
        return refusal
    if definition.architecture == "kappa" and (why := why_stream(spark, definition)):
        return Refusal(Way.COMBINE, why, query_problem(definition, why))
    try:
        algebra = Algebra(analyze(query))
    except NotCombinable as error:
        return Refusal(Way.COMBINE, error.reason, query_problem(definition, str(error)))
    if definition.key and not _is_key(definition, query):
        if definition.architecture == "kappa":
            why = "its key is not what the query groups by"
            return Refusal(Way.COMBINE, why, key_problem(definition, why))
        why = "the key of a Lambda view is always what its query groups by: remove key"
        raise ViewError(key_problem(definition, why))
    groups = ", ".join(str(key.expression.sql()) for key in algebra.plan.keys) or "nothing: one row"
    functions = ", ".join(dict.fromkeys(function.how for function in algebra.plan.functions)) or "none"
    reason = f"it groups by {groups}, and its functions ({functions}) can be combined from parts"
    cost = cost_of_combining if definition.architecture == "lambda" else cost_of_combining_log
    return _Accepted(reason, lambda: cost(spark, definition, algebra))


def _is_key(definition: ViewDefinition, query: DataFrame) -> bool:
    groups = grouping_of(query)
    return groups is not None and set(definition.key) == set(groups.columns) and not groups.missing


def _of_sources(way: Way, definition: ViewDefinition) -> Refusal:
    is_one = len(definition.sources) == 1
    why = (
        f"it reads the table {definition.sources[0].name}, whose rows change" if is_one else "it reads several sources"
    )
    message = f"the answer of this query cannot be kept up to date: not {way}: {why}"
    return Refusal(way, why, query_problem(definition, message))


def _of_variant(way: Way, attempt: _Attempt) -> Refusal | None:
    """Refuses an answer with a VARIANT: this way would store Spark's bytes of the value instead of its JSON."""
    from pyspark.sql.types import VariantType

    name = next((field.name for field in attempt.query.schema if isinstance(field.dataType, VariantType)), None)
    if name is None:
        return None
    why = f"its column {name} is a VARIANT, which this way cannot store: to_json({name}) is the same as a text"
    return Refusal(way, why, query_problem(attempt.definition, why, name))


def _cannot_keep(way: Way, definition: ViewDefinition) -> Refusal:
    why = "it has [keep], and this way never deletes rows"
    return Refusal(way, why, _keep_problem(definition, why))


def _keep_problem(definition: ViewDefinition, message: str) -> Problem:
    return Problem(definition.file, definition.line("keep", "column"), message)


def _stream(attempt: _Attempt) -> _Accepted | Refusal:
    spark, definition, _ = attempt
    if definition.sources:
        return _of_sources(Way.STREAM, definition)
    if definition.keep is not None:
        return _cannot_keep(Way.STREAM, definition)
    if refusal := _of_variant(Way.STREAM, attempt):
        return refusal
    try:
        streamed = _streamed(attempt)
        key_columns(definition, streamed)
    except ViewError as error:
        if definition.key and error.problem.file == definition.file:
            raise
        return Refusal(Way.STREAM, error.problem.message, error.problem)
    if why := stream_problem(spark, streamed):
        return Refusal(Way.STREAM, why, query_problem(definition, f"this query cannot run as a stream: {why}"))
    return _Accepted("Spark can run it as a stream", lambda: cost_of_streaming(definition, streamed))


def _touched(attempt: _Attempt) -> _Accepted | Refusal:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from headrace.pipeline.touched.engine import Engine
    from headrace.pipeline.touched.keeping import NotKept
    from headrace.pipeline.touched.maintainer import tree_of
    from headrace.pipeline.touched.top import NotTouchable

    spark, definition, _ = attempt
    try:
        tree = tree_of(spark, definition)
        jobs = Engine(tree).jobs
        for target in (tree.root, *tree.inputs):
            jobs.codec(target)
    except NotKept as error:
        return Refusal(Way.TOUCHED, error.reason, _keep_problem(definition, error.reason))
    except NotTouchable as error:
        return Refusal(Way.TOUCHED, error.reason, query_problem(definition, str(error)))
    except UnsuitableSchema as error:
        return Refusal(Way.TOUCHED, str(error), query_problem(definition, str(error)))
    except Py4JError as error:  # a plan that the code does not expect: better no view than a wrong one
        why = f"its plan has a form that Headrace cannot cut ({summary_of(error)})"
        return Refusal(Way.TOUCHED, why, query_problem(definition, why))
    return _Accepted(reason_for_touching(tree), lambda: cost_of_touching(definition, tree))


def _whole(attempt: _Attempt) -> _Accepted | Refusal:
    from headrace.pipeline.touched.keeping import NotKept
    from headrace.pipeline.whole.answer import kept_of

    try:
        kept_of(attempt.spark, attempt.definition)
    except NotKept as error:
        return Refusal(Way.WHOLE, error.reason, _keep_problem(attempt.definition, error.reason))
    reason = "no cheaper way is exact for it, and every query can be computed from the start"
    return _Accepted(reason, lambda: cost_of_whole(attempt.definition))


_TRIED: dict[Way, Callable[[_Attempt], _Accepted | Refusal]] = {
    Way.COMBINE: _combine,
    Way.STREAM: _stream,
    Way.TOUCHED: _touched,
    Way.WHOLE: _whole,
}
