"""Runs one test with Spark, against a log that has none of its topics yet.

The records of a step are sent to the log. Then each architecture reads them in the way that ``views explain`` names,
and Spark computes the query over all records so far as a batch. After the last step a Lambda view that is combined also
runs a batch, which has to give the same rows as its speed layer. Other ways have no second code for it.

All architectures read the same log. Each has a serving database (SQLite), an archive and checkpoints of its own, in a
temporary folder.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.admin.sync_admin import Admin
from headrace.client.producer.sync_producer import Producer
from headrace.pipeline.maintenance.choice import choose_way
from headrace.pipeline.maintenance.ways import Way
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import ProjectError
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.grouping import grouping_of
from headrace.pipeline.query.validation import checked_query
from headrace.pipeline.query.view_query import ViewError, build
from headrace.pipeline.spark.source.data_source import spark_schema
from headrace.pipeline.spark.spark_threads import start_spark_thread
from headrace.pipeline.version.failures import summary_of
from headrace.pipeline.view_tests.architectures import definitions_of, has_batch_answer
from headrace.pipeline.view_tests.cases import ArchitectureOutcome, FoundRows, Outcome, Record, ViewTest
from headrace.pipeline.view_tests.cells import Row, rows_of
from headrace.pipeline.view_tests.stepping import SteppedView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = count(1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Compiling a query takes longer than computing it over a few rows. The answers are the same.
_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


class SparkForTests:
    """A session for tests, beside another one in the same Java process: with settings for few rows, and own tables.

    It is a clone, because the data source ``headrace`` is registered with a session.
    """

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.sql import SparkSession

        self.session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        for name, value in _FEW_ROWS.items():
            self.session.conf.set(name, value)
        self._sessions = SparkSession._get_j_spark_session_class(spark._jvm)
        #: By the hash of a definition and the architectures that a test names. Further tests need no analysis.
        self.analyzed: dict[tuple[str, tuple[str, ...]], _Analyzed] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within this context, Spark takes the settings of this thread from this session."""
        before = self._sessions.getActiveSession()
        self._sessions.setActiveSession(self.session._jsparkSession)
        try:
            yield
        finally:
            if before.isDefined():
                self._sessions.setActiveSession(before.get())
            else:
                self._sessions.clearActiveSession()

    def together(self, works: Sequence[Callable[[], None]]) -> None:
        """Does the first work in this thread and the others beside it: most of the time one core would wait."""
        errors: list[BaseException] = []
        threads = [start_spark_thread(partial(self._run_active, work), errors.append) for work in works[1:]]
        works[0]()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _run_active(self, work: Callable[[], None]) -> None:
        with self.active():
            work()


@lru_cache(maxsize=1)
def spark_for_tests(spark: SparkSession) -> SparkForTests:
    """The session for tests that belongs to this one."""
    return SparkForTests(spark)


@dataclass
class _Tried:
    """An architecture while the test runs."""

    architecture: str
    way: str = ""
    skipped: str = ""
    error: str = ""
    version: SteppedView | None = None
    steps: list[FoundRows] = field(default_factory=list)
    after_batch: FoundRows | None = None

    @property
    def is_going(self) -> bool:
        return self.version is not None and not self.error

    def outcome(self) -> ArchitectureOutcome:
        steps = tuple(self.steps)
        return ArchitectureOutcome(self.architecture, self.way, self.skipped, self.error, steps, self.after_batch)


def run_test(spark: SparkForTests, bootstrap: str, test: ViewTest, definition: ViewDefinition) -> Outcome:
    """
    :param bootstrap: a log without the topics of the view.
    :raises ProjectError: if the view's own architecture cannot run its query.
    """
    with spark.active():
        return _run(spark, bootstrap, test, definition)


def _run(spark: SparkForTests, bootstrap: str, test: ViewTest, definition: ViewDefinition) -> Outcome:
    began = time.monotonic()
    # No batch runs by the clock: a test runs it.
    definition = replace(definition, lambda_=replace(definition.lambda_, batch_every_ms=0))
    analyzed = _analyzed(spark, definition, test.architectures)
    name = f"{definition.name}_test{next(_numbers)}"
    note = has_batch_answer(definition)
    batches = _Batches(spark.session, definition, analyzed.schema, note)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-view-test-")))
        log = stack.enter_context(_log(bootstrap, definition, test))
        tried = [_tried(stack, spark, bootstrap, folder, each, name, analyzed.schema) for each in analyzed.ways]
        for step in test.steps:
            log.send(step.records)
            spark.together([partial(batches.add, log), *(partial(_advance, each) for each in tried if each.is_going)])
        for each in tried:
            _rebuild(each)
    no_batch = f"there is no batch answer to compare with: {note}" if note else ""
    outcomes = tuple(each.outcome() for each in tried)
    seconds = time.monotonic() - began
    return Outcome(analyzed.schema, analyzed.key, outcomes, tuple(batches.answers), no_batch, seconds, batches.error)


class _Batches:
    """Spark's batch answers.

    :param note: why there are none; empty if there are.
    """

    def __init__(self, spark: SparkSession, definition: ViewDefinition, schema: pa.Schema, note: str) -> None:
        self._spark, self._definition, self._schema = spark, definition, schema
        self._note = note
        self.answers: list[Sequence[Row]] = []
        self.error = ""

    def add(self, log: _Log) -> None:
        """Computes the answer over all records so far."""
        if self._note or self.error:
            return
        try:
            answer = build(self._spark, self._definition, log.frame(self._spark)).toArrow()
            self.answers.append(rows_of(answer.cast(self._schema)))
        except Exception as error:  # noqa: BLE001  the result of the test
            self.error = summary_of(error)


# ------------------------------------------------------------------------------------------------------- architectures


class _Way(NamedTuple):
    """How an architecture is tried, or why it is not."""

    definition: ViewDefinition
    way: str = ""
    skipped: str = ""


class _Analyzed(NamedTuple):
    """
    :ivar schema: the columns of the answer.
    :ivar key: the columns that identify a row, if they are known.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    ways: tuple[_Way, ...]


def _analyzed(spark: SparkForTests, definition: ViewDefinition, wanted: tuple[str, ...]) -> _Analyzed:
    """
    :raises ProjectError: if the view's own architecture cannot run the query.
    """
    place = (definition.definition_hash, wanted)
    if place not in spark.analyzed:
        try:
            query = checked_query(spark.session, definition, frozenset())
            assert query is not None, "the definition has no invalid fields"
            grouping = grouping_of(query)
            key = definition.key or (grouping.columns if grouping is not None and not grouping.missing else ())
            ways = _ways(spark.session, definition, query, wanted)
        except ViewError as error:
            raise ProjectError([error.problem]) from error
        spark.analyzed[place] = _Analyzed(arrow_schema(query.schema), tuple(key), tuple(ways))
    return spark.analyzed[place]


def _ways(spark: SparkSession, definition: ViewDefinition, query: DataFrame, wanted: tuple[str, ...]) -> Iterator[_Way]:
    for architecture, made in definitions_of(definition, wanted).items():
        if isinstance(made, str):
            yield _Way(replace(definition, architecture=architecture), skipped=made)
            continue
        try:
            yield _Way(made, str(choose_way(spark, made, query)))
        except ViewError as error:
            if architecture == definition.architecture:
                raise
            yield _Way(made, skipped=error.problem.message)


def _tried(
    stack: ExitStack, spark: SparkForTests, bootstrap: str, folder: Path, way: _Way, name: str, schema: pa.Schema
) -> _Tried:
    architecture = way.definition.architecture
    if way.skipped:
        return _Tried(architecture, skipped=way.skipped)
    own = folder / architecture
    own.mkdir()
    definition = replace(way.definition, name=name)
    version = SteppedView(spark.session, bootstrap, own, definition, way.way, schema)
    stack.callback(version.close)
    return _Tried(architecture, way.way, version=version)


def _advance(tried: _Tried) -> None:
    assert tried.version is not None
    try:
        tried.steps.append(tried.version.advance())
    except Exception as error:  # noqa: BLE001  the result of the test
        tried.error = summary_of(error)


def _rebuild(tried: _Tried) -> None:
    if not tried.is_going or (tried.architecture, tried.way) != ("lambda", Way.COMBINE):
        return
    assert tried.version is not None
    try:
        tried.after_batch = tried.version.rebuild()
    except Exception as error:  # noqa: BLE001  the result of the test
        tried.error = f"the batch after the last step failed: {summary_of(error)}"


# ------------------------------------------------------------------------------------------------------------- the log


class _Log:
    """The topics of a test."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._rows: list[tuple[object, ...]] = []
        self._ends: dict[tuple[str, int], int] = {}

    def send(self, records: Sequence[Record]) -> None:
        sent = []
        for record in records:
            place = (record.topic, record.partition)
            offset = self._ends.get(place, 0)
            self._ends[place] = offset + 1
            at = _EPOCH + timedelta(milliseconds=record.timestamp_ms)
            self._rows.append((record.key, record.value, *place, offset, at, 0))
            sent.append(
                self._producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
            )
        self._producer.flush()
        for each in sent:
            each.result()

    def frame(self, spark: SparkSession) -> DataFrame:
        """All records so far."""
        return spark.createDataFrame(self._rows, spark_schema(include_headers=False))


@contextmanager
def _log(bootstrap: str, definition: ViewDefinition, test: ViewTest) -> Iterator[_Log]:
    partitions: Mapping[str, int] = test.topics
    topics = {topic for source in definition.inputs for topic in source.topics} | set(partitions)
    with Admin(bootstrap_servers=bootstrap, enable_metrics_push=False) as admin:
        for topic in sorted(topics):
            admin.create_topic(topic, num_partitions=partitions.get(topic, 1))
    with Producer(bootstrap_servers=bootstrap, enable_metrics_push=False) as producer:
        yield _Log(producer)
