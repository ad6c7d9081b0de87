"""Builds a DataFrame from a view's definition: decodes records and applies the query.

A query in SQL reads ``FROM events``, from a topic, or from sources (``tables``). A Python function gets the events, or
the rows of each source in the order of ``definition.sources``, and returns a DataFrame. In a query that names views,
the answer of each view is its own query over the same rows (``project.upstream``). A struct with the fields start
and end, as ``window()`` returns it, becomes two columns, ``NAME_start`` and ``NAME_end``: structs in tables are hard to
query.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.decoding.events import decode_frame, event_schema, good_rows, load_function
from headrace.pipeline.decoding.source_rows import current_rows, decode_source, records_of, source_schema
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import Watermark
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.problems import query_problem, sql_problem
from headrace.pipeline.query.tables import missing_table, named_tables, tables_by_name
from headrace.pipeline.spark.errors import KnownNames, explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Names of columns that the tables of the serving database use themselves.
_OWN_COLUMNS = re.compile(r"_key|_keep_us|_batch_id|_hidden|_span|_copies|_order_\d+|_[kp]\d+(_\w+)?", re.IGNORECASE)


class ViewError(HeadraceError):
    """The view cannot be built. ``problem`` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


# ------------------------------------------------------------------------------------------------------------ building


def build(spark: SparkSession, definition: ViewDefinition, frame: DataFrame) -> DataFrame:
    """The query over records of the log (``format("headrace")``), without bad ones.

    :param frame: for a view with ``definition.sources``, the records of the topics of all sources, as a batch.
    :raises ViewError: if Spark cannot run the definition.
    """
    if definition.sources:
        raw = {source.name: records_of(source, frame) for source in definition.sources}
        rows = {
            source.name: current_rows(source, good_rows(decode_source(source, raw[source.name])))
            for source in definition.sources
        }
        return apply_query(spark, definition, None, rows)
    return apply_query(spark, definition, good_rows(decode_frame(definition.decode, frame)))


def apply_query(
    spark: SparkSession,
    definition: ViewDefinition,
    events: DataFrame | None,
    sources: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """The query over events, or over the rows of sources. If they are a stream, the watermark is set.

    :param events: ``decoding.events.good_rows`` of a view without ``definition.sources``; None for one with sources.
    :param sources: the rows of each of ``definition.sources``, by the source's name (``decoding.source_rows``).
    :raises ViewError: if Spark cannot run the query.
    """
    rows = {each.name: _with_watermark((sources or {})[each.name], each.watermark) for each in definition.sources}
    if events is not None:
        events = _with_watermark(events, definition.watermark)
    leaves = rows if events is None else {definition.own_source.name: events}
    views = upstream_answers(spark, definition, leaves) if definition.views else {}
    if not definition.query.is_python:
        return _answer(spark, definition, {**tables_by_name(definition, events, rows), **views})
    if views:
        by_name = {name.lower(): frame for name, frame in {**leaves, **views}.items()}
        return _answer(spark, definition, {name: by_name[name] for name in definition.reads_directly})
    return _answer(spark, definition, leaves)


def upstream_answers(
    spark: SparkSession, definition: ViewDefinition, rows: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The answers of the views that the query reads, by name: their queries over the same rows.

    :param rows: of each source of the view, by the source's name.
    :raises ViewError: if Spark cannot run one of the queries.
    """
    from pyspark.sql import functions as F  # noqa: N812

    by_name = {name.lower(): frame for name, frame in rows.items()}
    answers: dict[str, DataFrame] = {}
    for view in definition.views:
        tables = {}
        for table in view.tables:
            found = answers[table.reads] if table.reads in answers else by_name[table.reads.lower()]
            tables[table.name] = found.where(F.col("_topic") == table.topic) if table.topic else found
        alone = replace(definition, name=view.name, query=view.query, topics=(), pattern="", sources=(), views=())
        answers[view.name] = _answer(spark, alone, tables)
    return answers


def _answer(spark: SparkSession, definition: ViewDefinition, tables: Mapping[str, DataFrame]) -> DataFrame:
    """
    :param tables: in the order of the arguments, if the query is a Python function.
    """
    if definition.query.is_python:
        made = _by_python(definition, list(tables.values()))
    else:
        made = _by_sql(spark, definition, tables)
    _check_names(definition, made)
    flat = _flattened(made)
    _check_names(definition, flat)
    return flat


def _with_watermark(rows: DataFrame, watermark: Watermark | None) -> DataFrame:
    return rows.withWatermark(watermark.column, watermark.delay) if watermark and rows.isStreaming else rows


def empty_sources(spark: SparkSession, definition: ViewDefinition) -> dict[str, DataFrame]:
    """A frame without rows for each source, by the source's name."""
    return {source.name: spark.createDataFrame([], source_schema(source)) for source in definition.sources}


def empty_events(spark: SparkSession, definition: ViewDefinition, *, is_stream: bool = False) -> DataFrame:
    """A frame without events, with the columns that the query can use."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = event_schema(definition.decode)
    if not is_stream:
        return spark.createDataFrame([], schema)
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.readStream.format("rate").load().select(*columns)


def _by_sql(spark: SparkSession, definition: ViewDefinition, tables: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.errors import PySparkException

    known = KnownNames(
        _columns_of(tables.values()), tables, partial(_functions, spark), partial(missing_table, definition)
    )
    try:
        _check_is_query(spark, definition)
        with named_tables(spark, tables):
            return spark.sql(definition.query.text)
    except PySparkException as error:
        raise ViewError(sql_problem(definition, error, known)) from error


def _columns_of(frames: Collection[DataFrame]) -> list[str]:
    return list(dict.fromkeys(name for frame in frames for name in frame.columns))


def _functions(spark: SparkSession) -> list[str]:
    return [str(row[0]) for row in spark.sql("SHOW FUNCTIONS").collect()]


def _check_is_query(spark: SparkSession, definition: ViewDefinition) -> None:
    """Refuses commands. ``spark.sql`` would run them at once, and a view must not create, drop or set anything."""
    if not definition.query.text.strip():
        raise ViewError(Problem(Path(definition.query.file), 1, "the file has no query: write one SELECT or WITH"))
    jvm = spark._jvm
    assert jvm is not None
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(definition.query.text)
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    for kind in ("Command", "ParsedStatement"):
        if jvm.java.lang.Class.forName(f"{logical}.{kind}").isInstance(plan):
            raise ViewError(
                Problem(Path(definition.query.file), 1, "a view needs a query: one SELECT or WITH, not a command")
            )


def _by_python(definition: ViewDefinition, arguments: list[DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    with _user_code(definition, _columns_of(arguments)):
        made = load_function(definition.query)(*arguments)
    if not isinstance(made, DataFrame):
        what = f"{definition.query.function}() returned {type(made).__name__}, not a DataFrame"
        raise ViewError(Problem(Path(definition.query.file), None, what))
    return made


@contextmanager
def _user_code(definition: ViewDefinition, columns: Collection[str]) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except Exception as error:
        file = definition.query.file
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, PySparkException):
            message = explain(error, KnownNames(columns))
        raise ViewError(Problem(Path(file), lines[-1] if lines else None, message)) from error


def _check_names(definition: ViewDefinition, made: DataFrame) -> None:
    seen: set[str] = set()
    for name in made.columns:
        if name.lower() in seen:
            message = f"two columns are named {name!r}: rename one with AS"
            raise ViewError(query_problem(definition, message, name, number=1))
        seen.add(name.lower())
        if _OWN_COLUMNS.fullmatch(name):
            way_out = "rename it with AS"
            if name == "_key":  # the key of the record, which SELECT * has
                way_out = "leave it out with SELECT * EXCEPT (_key), or rename it with _key AS record_key"
            message = f"the name {name} is reserved for Headrace's own columns: {way_out}"
            raise ViewError(query_problem(definition, message, name))


def _flattened(made: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    columns = []
    for field in made.schema:
        column = F.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, StructType) and field.dataType.names == ["start", "end"]:
            columns += [column.getField(part).alias(f"{field.name}_{part}") for part in ("start", "end")]
        else:
            columns.append(column)
    return made if len(columns) == len(made.columns) else made.select(*columns)
