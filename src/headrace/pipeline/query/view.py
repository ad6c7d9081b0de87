"""From a definition to a DataFrame: records decoded, the query applied; and all that can be checked before it runs.

    build          raw records -> what the query says of them
    validate_view  a definition -> everything that would not work, each with file and line

A query reads ``FROM events`` or from a topic (``query_tables``); a Python function is given the events as its only
argument. A struct with start and end, which is what ``window()`` gives, becomes two columns, ``NAME_start``
and ``NAME_end``: tables have no structs worth querying.

Validation runs the query over no records at all, as a batch or as a stream as its architecture wants: whatever Spark
has to say, it says it there. Only the outcome of user code on real records is left for later.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.pipeline.decoding.decoding import UnsuitableDecode, decode_frame, event_schema, good_rows, load_function
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.project import Problem
from headrace.pipeline.project.toml_files import did_you_mean
from headrace.pipeline.query.catalyst import Catalyst, streaming_leaves
from headrace.pipeline.query.plan import NotCombinable, analyze
from headrace.pipeline.query.problems import query_problem, sql_problem
from headrace.pipeline.query.tables import missing_table, named_tables, topics_by_table
from headrace.pipeline.query.view_keys import Grouping, grouping_of
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.spark.errors import Known, explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Names that tables of the serving database give to columns of their own.
_OWN_COLUMNS = re.compile(r"_key|_batch_id|_hidden|_span|_order_\d+|_[kp]\d+(_\w+)?", re.IGNORECASE)


class ViewError(HeadraceError):
    """A view that cannot be built; ``problem`` says where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


# ------------------------------------------------------------------------------------------------------------ building


def build(spark: SparkSession, definition: ViewDefinition, frame: DataFrame) -> DataFrame:
    """The query over records as the log has them (``format("headrace")``), bad ones left out.

    :raises ViewError: if the definition does not work.
    """
    return apply_query(spark, definition, good_rows(decode_frame(definition.decode, frame)))


def apply_query(spark: SparkSession, definition: ViewDefinition, events: DataFrame) -> DataFrame:
    """The query over decoded events (``decoding.good_rows``); a watermark is set if the events are a stream.

    :raises ViewError: if the query does not work.
    """
    if definition.watermark and events.isStreaming:
        events = events.withWatermark(definition.watermark.column, definition.watermark.delay)
    made = _by_python(definition, events) if definition.query.is_python else _by_sql(spark, definition, events)
    _check_names(definition, made)
    flat = _flattened(made)
    _check_names(definition, flat)
    return flat


def template(spark: SparkSession, definition: ViewDefinition, *, is_stream: bool = False) -> DataFrame:
    """No events, with the columns that the query sees. ``plan.analyze(apply_query(spark, definition, template))`` is
    how a Lambda view gets its plan."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = event_schema(definition.decode)
    if not is_stream:
        return spark.createDataFrame([], schema)
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return spark.readStream.format("rate").load().select(*columns)


def output_mode(query: DataFrame) -> str:
    """Of ``writeStream``: ``update`` for groups, ``complete`` if rows of theirs may go again (HAVING, LIMIT), else
    ``append``."""
    grouping = grouping_of(query)
    if grouping is None:
        return "append"
    return "complete" if grouping.is_whole else "update"


def key_columns(definition: ViewDefinition, query: DataFrame) -> tuple[str, ...]:
    """The output columns that make up a row's key in the serving database.

    :raises ViewError: if there are none that tell its rows apart.
    """
    names = query.columns
    unknown = [name for name in definition.key if name not in names]
    if unknown:
        message = f"key: the query has no column {unknown[0]!r}{did_you_mean(unknown[0], names)}"
        raise ViewError(Problem(definition.file, definition.line("key"), message))
    grouping = grouping_of(query)
    if definition.key:
        if grouping is not None:
            _check_key(definition, grouping)
        return definition.key
    if grouping is None:
        hint = 'name the columns that tell its rows apart, key = ["id"]'
        raise ViewError(_of_key(definition, f"the query does not group, so it has no key by itself: {hint}"))
    if grouping.missing:
        hint = "add it to SELECT" if "grouping_id" not in grouping.missing[0] else "add grouping_id() to SELECT"
        message = f"rows are told apart by {grouping.missing[0]}, which is not among the output columns: {hint}"
        raise ViewError(query_problem(definition, message))
    return grouping.columns


def _check_key(definition: ViewDefinition, grouping: Grouping) -> None:
    """That each group has a row of its own, and one only."""
    left_out = [*grouping.missing, *grouping.left_out_by(definition.key)]
    changing = [] if grouping.is_whole else [name for name in definition.key if name not in grouping.settled]
    if left_out:
        message = f"key: rows that differ in {left_out[0]} only would overwrite each other"
    elif changing:
        message = f"key: {changing[0]} changes as its group grows, and would leave a row for each of its values"
    else:
        return
    raise ViewError(_of_key(definition, f"{message}: leave key out, it is what the query groups by"))


def _by_sql(spark: SparkSession, definition: ViewDefinition, events: DataFrame) -> DataFrame:
    from pyspark.errors import PySparkException

    known = Known(
        events.columns, topics_by_table(definition), partial(_functions, spark), partial(missing_table, definition)
    )
    try:
        _check_is_query(spark, definition)
        with named_tables(spark, definition, events):
            return spark.sql(definition.query.text)
    except PySparkException as error:
        raise ViewError(sql_problem(definition, error, known)) from error


def _functions(spark: SparkSession) -> list[str]:
    return [str(row[0]) for row in spark.sql("SHOW FUNCTIONS").collect()]


def _check_is_query(spark: SparkSession, definition: ViewDefinition) -> None:
    """``spark.sql`` runs commands at once; a view must not create, drop or set anything."""
    if not definition.query.text.strip():
        raise ViewError(Problem(Path(definition.query.file), 1, "there is no query in it"))
    jvm = spark._jvm
    assert jvm is not None
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(definition.query.text)
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    for kind in ("Command", "ParsedStatement"):
        if jvm.java.lang.Class.forName(f"{logical}.{kind}").isInstance(plan):
            raise ViewError(Problem(Path(definition.query.file), 1, "a view is a query: one SELECT or WITH"))


def _by_python(definition: ViewDefinition, events: DataFrame) -> DataFrame:
    from pyspark.sql import DataFrame

    with _user_code(definition, events.columns):
        made = load_function(definition.query)(events)
    if not isinstance(made, DataFrame):
        what = f"{definition.query.function}() gave {type(made).__name__}, not a DataFrame"
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
            message = explained(error, Known(columns))
        raise ViewError(Problem(Path(file), lines[-1] if lines else None, message)) from error


def _check_names(definition: ViewDefinition, made: DataFrame) -> None:
    seen: set[str] = set()
    for name in made.columns:
        if name.lower() in seen:
            message = f"two columns are named {name!r}: rename one with AS"
            raise ViewError(query_problem(definition, message, name, number=1))
        seen.add(name.lower())
        if _OWN_COLUMNS.fullmatch(name):
            message = f"{name} is a name that our tables need themselves: rename it with AS"
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


# ------------------------------------------------------------------------------------------------------------ messages


def _of_key(definition: ViewDefinition, message: str) -> Problem:
    """A problem that ``key`` solves or makes: at its line in the view's file."""
    return Problem(definition.file, definition.line("key") or definition.line("query"), message)


# ---------------------------------------------------------------------------------------------------------- validation


def validate_view(spark: SparkSession, definition: ViewDefinition, topics: Collection[str]) -> list[Problem]:
    """Everything that keeps the view from running.

    :param topics: those that the log has.
    """
    return missing_topics(definition, topics) + spark_problems(spark, definition)


def missing_topics(definition: ViewDefinition, topics: Collection[str]) -> list[Problem]:
    line = definition.line("topics") or definition.line("pattern")
    problems = [
        Problem(definition.file, line, f"there is no topic {topic!r}{did_you_mean(topic, topics)}")
        for topic in definition.topics
        if topic not in topics
    ]
    if definition.pattern and not any(re.fullmatch(definition.pattern, topic) for topic in topics):
        problems.append(Problem(definition.file, line, f"no topic fits the pattern {definition.pattern!r}"))
    return problems


def spark_problems(
    spark: SparkSession, definition: ViewDefinition, doubtful: Collection[str] = frozenset()
) -> list[Problem]:
    """Whether Spark can decode and run it. One problem at most, because the others often follow from it.

    :param doubtful: fields and tables of the view's file that have a problem already. What depends on them is not
        looked at.
    """
    try:
        _check_query(spark, definition, frozenset(doubtful))
    except ViewError as error:
        return [error.problem]
    except UnsuitableDecode as error:
        return [Problem(definition.file, definition.line("decode", "schema"), str(error))]
    return []


def _check_query(spark: SparkSession, definition: ViewDefinition, doubtful: frozenset[str]) -> None:
    if "decode" in doubtful:
        return
    _check_decoding(spark, definition)
    if doubtful & {"query", "topics", "pattern"}:
        return
    query = apply_query(spark, definition, template(spark, definition))
    _check_storable(definition, query)
    if doubtful & {"architecture", "key", "watermark"}:
        return
    if definition.architecture == "lambda":
        _check_lambda(spark, definition, query)
    else:
        _check_kappa(spark, definition)


def _check_decoding(spark: SparkSession, definition: ViewDefinition) -> None:
    """Options and functions of the decoding, on no record."""
    from pyspark.errors import PySparkException

    from headrace.pipeline.spark.source import spark_schema

    watermark, columns = definition.watermark, event_schema(definition.decode).names
    if watermark and watermark.column not in columns:
        message = f"there is no column {watermark.column}{did_you_mean(watermark.column, columns)}"
        raise ViewError(Problem(definition.file, definition.line("watermark", "column"), message))
    try:
        decode_frame(definition.decode, spark.createDataFrame([], spark_schema(include_headers=False)))
    except UnsuitableDecode:
        raise
    except PySparkException as error:
        raise ViewError(Problem(definition.file, definition.line("decode"), explained(error))) from error
    except Exception as error:  # user code is run to get at its functions
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
            message = "the key of a Lambda view is what its query groups by: leave key out"
            raise ViewError(_of_key(definition, message))


def _check_kappa(spark: SparkSession, definition: ViewDefinition) -> None:
    query = apply_query(spark, definition, template(spark, definition, is_stream=True))
    key_columns(definition, query)
    problem = _stream_problem(spark, query)
    if problem:
        raise ViewError(query_problem(definition, f"this query cannot run as a stream: {problem}"))


def _streams(spark: SparkSession, definition: ViewDefinition) -> bool:
    try:
        return not _stream_problem(spark, apply_query(spark, definition, template(spark, definition, is_stream=True)))
    except ViewError:  # Spark refuses some queries over streams when it analyzes them
        return False


def _stream_problem(spark: SparkSession, query: DataFrame) -> str | None:
    from pyspark.errors import PySparkException

    grouping = grouping_of(query)
    if grouping is not None and grouping.is_of_sessions_only:  # Spark says so only once it runs
        return "session windows are grouped by something else besides: GROUP BY session_window(...), user"
    catalyst = Catalyst(spark)
    try:
        catalyst.check_stream(query, output_mode(query))
    except PySparkException as error:
        return explained(error)
    if (readings := len(streaming_leaves(catalyst.analyzed(query)))) > 1:
        why = "each reading may stop at another offset, so the view would not be the query over one prefix of the log"
        return f"it reads the log {readings} times (JOIN, UNION), and {why}; write it with one FROM"
    return None
