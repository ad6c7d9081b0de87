"""Checks a view before it runs: its topics, its decoding, its query.

The query runs over no records at all. Spark reports its errors there. Only what user code does with real records shows
later. Whether and how the answer can be kept up to date is for ``maintenance`` to say.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.events import UnsuitableDecode
from headrace.pipeline.decoding.source_rows import decode_source, source_schema
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.project.toml_files import Problem, did_you_mean
from headrace.pipeline.query.determinism import nondeterminism
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.problems import query_problem
from headrace.pipeline.query.row_keys import output_mode
from headrace.pipeline.query.view_query import ViewError, apply_query, empty_events, empty_sources, upstream_answers
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.spark.catalyst import Catalyst, streaming_leaves
from headrace.pipeline.spark.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def missing_topics(definition: ViewDefinition, topics: Collection[str]) -> list[Problem]:
    problems = []
    for source in definition.inputs:
        line = source.line("topics") or source.line("pattern")
        problems += [
            Problem(source.file, line, f"there is no topic {topic!r}{did_you_mean(topic, topics)}")
            for topic in source.topics
            if topic not in topics
        ]
        if source.pattern and not any(source.reads(topic) for topic in topics):
            problems.append(Problem(source.file, line, f"no topic matches the pattern {source.pattern!r}"))
    return problems


def checked_query(
    spark: SparkSession, definition: ViewDefinition, invalid_fields: Collection[str] = frozenset()
) -> DataFrame | None:
    """The query over no rows, after the checks that do not depend on how its answer is kept up to date.

    :param invalid_fields: fields and tables of the view's file that already have a problem. What depends on them is
        not checked.
    :return: None if the query cannot be checked because of these fields.
    :raises ViewError: the first problem. Only one, because further ones often follow from it.
    """
    invalid = frozenset(invalid_fields)
    if "decode" in invalid:
        return None
    for source in definition.inputs:
        _check_decoding(spark, definition, source)
    if invalid & {"query", "topics", "pattern", "sources"}:
        return None
    query = empty_query(spark, definition)
    _check_upstream(spark, definition)
    _check_storable(definition, query)
    if why := nondeterminism(query):
        raise ViewError(query_problem(definition, f"a view needs one answer for the same records, but {why}"))
    return query


def empty_query(spark: SparkSession, definition: ViewDefinition) -> DataFrame:
    """The query over no rows.

    :raises ViewError: if Spark cannot run the query.
    """
    if definition.sources:
        return apply_query(spark, definition, None, empty_sources(spark, definition))
    return apply_query(spark, definition, empty_events(spark, definition))


def _check_decoding(spark: SparkSession, definition: ViewDefinition, source: SourceDefinition) -> None:
    """Checks the options and functions of the decoding, without a record."""
    from pyspark.errors import PySparkException

    from headrace.pipeline.spark.source.data_source import spark_schema

    watermark = source.watermark
    try:
        columns = source_schema(source).names
        decode_source(source, spark.createDataFrame([], spark_schema(include_headers=False)))
        if watermark and watermark.column not in columns:
            message = f"there is no column {watermark.column}{did_you_mean(watermark.column, columns)}"
            # A view of one source may have a watermark of its own.
            owner = definition if ("watermark",) in definition.lines else source
            raise ViewError(Problem(owner.file, owner.line("watermark", "column"), message))
    except UnsuitableDecode as error:
        raise ViewError(Problem(source.file, source.line("decode", "schema"), str(error))) from error
    except PySparkException as error:
        raise ViewError(Problem(source.file, source.line("decode"), explain(error))) from error
    except ViewError:
        raise
    except Exception as error:  # loading a function runs the user's file
        function = source.decode.function
        file = Path(function.file) if function else source.file
        raise ViewError(Problem(file, None, f"{type(error).__name__}: {error}")) from error


def _check_upstream(spark: SparkSession, definition: ViewDefinition) -> None:
    """Refuses to read a view whose rows replace each other by key: its query has more rows than the view."""
    if not any(view.replaced_by for view in definition.views):
        return
    rows = empty_sources(spark, definition) or {definition.own_source.name: empty_events(spark, definition)}
    answers = upstream_answers(spark, definition, rows)
    for view in definition.views:
        if view.replaced_by and grouping_of(answers[view.name]) is None:
            key = ", ".join(view.replaced_by)
            message = (
                f"in {view.name}, a later row replaces the row with the same key ({key}), which a query over "
                f'{view.name} cannot see: set maintain = "touched" in views/{view.name}.toml, and select the newest '
                f"row of each key with ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY ...)"
            )
            raise ViewError(query_problem(definition, message, view.name))


def _check_storable(definition: ViewDefinition, query: DataFrame) -> None:
    from pyspark.sql.types import VariantType

    from headrace.pipeline.query.aggregates import arrow_schema
    from headrace.pipeline.serving.tables import data_table

    for field in query.schema:
        if not isinstance(field.dataType, VariantType) and _has_variant(field.dataType):
            message = f"column {field.name!r} has a VARIANT inside of another value: convert the VARIANT with to_json()"
            raise ViewError(query_problem(definition, message, field.name))
    try:
        data_table(definition.name, arrow_schema(query.schema), ())
    except UnsuitableSchema as error:
        raise ViewError(query_problem(definition, str(error))) from error


def _has_variant(type_: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(type_, types.StructType):
        return any(_has_variant(field.dataType) for field in type_)
    if isinstance(type_, types.MapType):
        return _has_variant(type_.keyType) or _has_variant(type_.valueType)
    if isinstance(type_, types.ArrayType):
        return _has_variant(type_.elementType)
    return isinstance(type_, types.VariantType)


def stream_problem(spark: SparkSession, query: DataFrame) -> str | None:
    """Why Spark cannot run a query as a stream; None if Spark can.

    :param query: the query over a stream of events.
    """
    from pyspark.errors import PySparkException

    grouping = grouping_of(query)
    if grouping is not None and grouping.is_of_sessions_only:  # Spark refuses it only when it runs
        return "it groups by a session window only: add another key, such as GROUP BY session_window(...), user"
    catalyst = Catalyst(spark)
    try:
        catalyst.check_stream(query, output_mode(query))
    except PySparkException as error:
        return explain(error)
    if (readings := len(streaming_leaves(catalyst.analyzed(query)))) > 1:
        why = "each of them may stop at another offset, so the view would not be the query over one prefix of the log"
        return f"it reads the log {readings} times (JOIN, UNION): {why}; write it with one FROM"
    return None
