"""Checks a view before it runs: its topics, its decoding, its query, its key.

The query runs over no records at all, as a batch and, for a Kappa view, as a stream. Spark reports its errors there.
Only what user code does with real records shows later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.events import UnsuitableDecode, decode_frame, event_schema
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem, did_you_mean
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.plan import NotCombinable, analyze
from headrace.pipeline.query.problems import query_problem
from headrace.pipeline.query.row_keys import key_columns, key_problem, output_mode
from headrace.pipeline.query.view_query import ViewError, apply_query, empty_events
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.spark.catalyst import Catalyst, streaming_leaves
from headrace.pipeline.spark.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def missing_topics(definition: ViewDefinition, topics: Collection[str]) -> list[Problem]:
    line = definition.line("topics") or definition.line("pattern")
    problems = [
        Problem(definition.file, line, f"there is no topic {topic!r}{did_you_mean(topic, topics)}")
        for topic in definition.topics
        if topic not in topics
    ]
    if definition.pattern and not any(re.fullmatch(definition.pattern, topic) for topic in topics):
        problems.append(Problem(definition.file, line, f"no topic matches the pattern {definition.pattern!r}"))
    return problems


def spark_problems(
    spark: SparkSession, definition: ViewDefinition, invalid_fields: Collection[str] = frozenset()
) -> list[Problem]:
    """The problems that Spark finds. At most one, because further ones often follow from it.

    :param invalid_fields: fields and tables of the view's file that already have a problem. What depends on them is
        not checked.
    """
    try:
        _check_query(spark, definition, frozenset(invalid_fields))
    except ViewError as error:
        return [error.problem]
    except UnsuitableDecode as error:
        return [Problem(definition.file, definition.line("decode", "schema"), str(error))]
    return []


def _check_query(spark: SparkSession, definition: ViewDefinition, invalid_fields: frozenset[str]) -> None:
    if "decode" in invalid_fields:
        return
    _check_decoding(spark, definition)
    if invalid_fields & {"query", "topics", "pattern"}:
        return
    query = apply_query(spark, definition, empty_events(spark, definition))
    _check_storable(definition, query)
    if invalid_fields & {"architecture", "key", "watermark"}:
        return
    if definition.architecture == "lambda":
        _check_lambda(spark, definition, query)
    else:
        _check_kappa(spark, definition)


def _check_decoding(spark: SparkSession, definition: ViewDefinition) -> None:
    """Checks the options and functions of the decoding, without a record."""
    from pyspark.errors import PySparkException

    from headrace.pipeline.spark.source.data_source import spark_schema

    watermark, columns = definition.watermark, event_schema(definition.decode).names
    if watermark and watermark.column not in columns:
        message = f"there is no column {watermark.column}{did_you_mean(watermark.column, columns)}"
        raise ViewError(Problem(definition.file, definition.line("watermark", "column"), message))
    try:
        decode_frame(definition.decode, spark.createDataFrame([], spark_schema(include_headers=False)))
    except UnsuitableDecode:
        raise
    except PySparkException as error:
        raise ViewError(Problem(definition.file, definition.line("decode"), explain(error))) from error
    except Exception as error:  # loading a function runs the user's file
        function = definition.decode.function
        file = Path(function.file) if function else definition.file
        raise ViewError(Problem(file, None, f"{type(error).__name__}: {error}")) from error


def _check_storable(definition: ViewDefinition, query: DataFrame) -> None:
    from headrace.pipeline.query.aggregates import arrow_schema
    from headrace.pipeline.serving.tables import data_table

    try:
        data_table(definition.name, arrow_schema(query.schema), ())
    except UnsuitableSchema as error:
        raise ViewError(query_problem(definition, str(error))) from error


def _check_lambda(spark: SparkSession, definition: ViewDefinition, query: DataFrame) -> None:
    from headrace.pipeline.query.aggregates import Algebra

    try:
        Algebra(analyze(query))
    except NotCombinable as error:
        advice = (
            'change the query, or set architecture = "kappa"' if _streams(spark, definition) else "change the query"
        )
        raise ViewError(query_problem(definition, f"{error}; {advice}")) from error
    if definition.key:
        groups = grouping_of(query)
        if groups is None or set(definition.key) != set(groups.columns) or groups.missing:
            message = "the key of a Lambda view is always what its query groups by: remove key"
            raise ViewError(key_problem(definition, message))


def _check_kappa(spark: SparkSession, definition: ViewDefinition) -> None:
    query = apply_query(spark, definition, empty_events(spark, definition, is_stream=True))
    key_columns(definition, query)
    problem = _stream_problem(spark, query)
    if problem:
        raise ViewError(query_problem(definition, f"this query cannot run as a stream: {problem}"))


def _streams(spark: SparkSession, definition: ViewDefinition) -> bool:
    try:
        return not _stream_problem(
            spark, apply_query(spark, definition, empty_events(spark, definition, is_stream=True))
        )
    except ViewError:  # Spark refuses some queries over streams already in the analysis
        return False


def _stream_problem(spark: SparkSession, query: DataFrame) -> str | None:
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
