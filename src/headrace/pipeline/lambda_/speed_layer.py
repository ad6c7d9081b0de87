"""The speed layer of a view: computes the query over the records since the last micro-batch, again and again.

Lambda views have a batch layer beside it. A Kappa view whose answer can be combined has this layer only
(``kappa.combined``).

A step reads everything from the progress to the end of the log, computes partial results over exactly that, and commits
them with the new progress in one transaction (``store``). Offsets are stored in the serving database only. A step that
was not committed has no effect and is repeated. Bad records are sent to the dead-letter topic before the commit; a step
that is repeated does not send them again (``decoding.dead_letters``).

How the partial results are computed depends on the number of records:

==========================  =========================================================================================
up to 20,000 offsets        read and computed in the driver, without a Spark job (``query.row_partials``)
the same, but the query     read in the driver, computed by a Spark job
needs a job
more                        read and computed by Spark's tasks; at most a million offsets per step
==========================  =========================================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.common_cut.common_cut import LeftOut, Member, SoloFollower
from headrace.pipeline.decoding.events import ERROR, bad_rows, can_be_bad, decode_frame, good_rows
from headrace.pipeline.lambda_.speed_log import SpeedLog
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.progress.offsets import by_topic, offsets_between, ranges_between, updated
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.query.needed_columns import needed_columns, with_columns
from headrace.pipeline.query.row_partials import RowPartials, bad_records
from headrace.pipeline.spark.catalyst import JavaObject, chain
from headrace.pipeline.spark.job_progress import scanned_rows
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.spark.source.range_reader import COLUMNS
from headrace.pipeline.version.cpu_budget import ThreadCpu
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.serving.catalog import Offsets, Progress
    from headrace.pipeline.serving.database import Begin
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")
#: At most this many offsets per step.
MAX_RECORDS = 1_000_000
#: Up to this many offsets are read in the driver.
MAX_RECORDS_IN_DRIVER = 20_000
#: Up to this many steps in a row run in the driver, instead of one step by Spark's tasks.
DRIVER_STEPS = 5
#: A partition with more records than this is read by several tasks. Progress within a step is known per task.
_MAX_TASK_RECORDS = 500_000
_COUNTS = "headrace"
#: Functions whose partial results have the position of an event.
_BY_POSITION = ("first", "last", "min_by", "max_by")


class MicroBatchStore(Protocol):
    """The store of a speed layer's results."""

    view: str
    version: int

    def progress(self) -> Progress | None:
        """None if the layer must not begin yet."""

    def commit_micro_batch(
        self,
        next_offsets: Offsets,
        partials: pa.Table,
        *,
        events: int,
        dead_letters: int,
        first_offsets: Offsets | None = None,
        begin: Begin | None = None,
    ) -> None: ...

    def tidy_up(self) -> None:
        """Called after each commit."""


class _Computed(NamedTuple):
    """
    :ivar records: how many records were read, including bad ones.
    """

    partials: pa.Table
    records: int
    bad: int


class SpeedLayer:
    """The speed layer of one version. One thread calls ``step``; any thread may call ``lag``.

    :param trigger_ms: how often to look for new records; by default, what the definition says for Lambda views.
    :param max_records: at most this many offsets per step.
    :param starts: where the version began, to know how many records there are in all.
    """

    def __init__(
        self,
        context: RunContext,
        definition: ViewDefinition,
        store: MicroBatchStore,
        algebra: Algebra,
        dead_letters: DeadLetters,
        work: WorkInFlight | None = None,
        *,
        trigger_ms: int | None = None,
        max_records: int | None = None,
        starts: Offsets | None = None,
    ) -> None:
        self._context, self._definition = context, definition
        self._work = work or WorkInFlight()
        self._store, self._algebra, self._dead_letters = store, algebra, dead_letters
        self._log = SpeedLog(context, definition.which_topics, with_headers=bool(dead_letters.topic))
        self._trigger_ms = trigger_ms or definition.lambda_.trigger_ms
        self._max_records, self._starts = max_records, starts or {}
        #: The progress in the database; None if it has to be read again.
        self._read: Offsets | None = None
        self._lag_tracker: LagTracker | None = None
        self._has_stepped = False
        self._member: Member = SoloFollower(context.database)

    def close(self) -> None:
        self._log.close()

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that were read in the last step."""
        return self._log.topic_ids()

    def run(self, stop: threading.Event, each_round: Callable[[], object] = lambda: None) -> None:
        """Runs steps until ``stop`` is set: one after the other while one step cannot read everything.

        Otherwise steps begin every ``trigger_ms``, or less often if many versions run (``version.cpu_budget``).
        Versions with common topics read them in rounds (``common_cut``).

        :param each_round: called after each step.
        :raises Exception: what a step raised. Nothing of that step is committed then.
        """
        clock, budget, cpu = self._context.clock, self._context.budget, ThreadCpu(self._context.spark)
        key = self._store.view, self._store.version
        try:
            with self._context.follow(key, self._definition, self._work) as self._member:
                spent_s = cpu.seconds()
                while not stop.is_set():
                    before_s = spent_s
                    with suppress(LeftOut):
                        self.step()
                    each_round()
                    spent_s = cpu.seconds()
                    self._context.metrics.cpu(*key, spent_s - before_s)
                    own_ms = budget.interval_ms(self, self._trigger_ms, (spent_s - before_s) * 1000)
                    interval_ms = self._member.interval_ms(own_ms)
                    if not self._has_more():
                        # Versions with the same interval look at the same moments, so that they share what they read.
                        stop.wait((interval_ms - clock.monotonic_ms() % interval_ms) / 1000)
        finally:
            budget.forget(self)

    def step(self) -> bool:
        """Runs one micro-batch; False if there was nothing to read, or if the first batch is not committed yet."""
        try:
            has_read = self._step()
        except BaseException:
            self._read = None  # the commit may have happened although it raised
            self._member.leave()
            self._log.close_reader()
            raise
        self._has_stepped = True
        return has_read

    def lag(self) -> Lag:
        """The lag as last observed. Does no I/O. It is not known before the first step: until then the answer may be
        empty, although few records are missing."""
        tracker = self._lag_tracker if self._has_stepped else None
        return Lag() if tracker is None else tracker.lag(self._context.clock.monotonic_ms())

    # ------------------------------------------------------------------------------------------------------ a step

    def _step(self) -> bool:
        began_ms = self._context.clock.monotonic_ms()
        read = self._progress()
        if read is None:
            return False
        ends = self._log.ends(read)
        tracker = self._lag_tracker = self._lag_tracker or LagTracker(self._starts, read, {}, began_ms)
        tracker.observed(ends, self._log.asked_ms)
        cut = self._member.cut(read, ends)
        ranges = ranges_between(read, cut, self._limit(offsets_between(read, cut)))
        if not ranges:
            return False
        with self._work.of(Work.SPEED):
            self._process(read, ranges, tracker, began_ms)
        return True

    def _limit(self, waiting: int) -> int:
        """At most how many offsets this step reads. A few steps in the driver are faster than one Spark job."""
        most = self._max_records or MAX_RECORDS
        return min(most, MAX_RECORDS_IN_DRIVER) if waiting <= DRIVER_STEPS * MAX_RECORDS_IN_DRIVER else most

    def _process(self, read: Offsets, ranges: list[OffsetRange], tracker: LagTracker, began_ms: int) -> None:
        computed = self._computed(ranges)
        after = updated(read, by_topic({one.topic_partition: one.end for one in ranges}))
        self._dead_letters.sent_up_to(after)
        self._store.commit_micro_batch(
            after,
            computed.partials,
            events=computed.records,
            dead_letters=computed.bad,
            first_offsets=read,
            begin=self._member.begin,
        )
        self._read = after
        now_ms = self._context.clock.monotonic_ms()
        tracker.committed(after, now_ms)
        self._context.metrics.micro_batch(
            self._store.view,
            self._store.version,
            seconds=(now_ms - began_ms - self._member.waited_ms) / 1000,
            events=computed.records,
            dead_letters=computed.bad,
        )
        self._store.tidy_up()

    def _progress(self) -> Offsets | None:
        if self._read is None:
            found = self._store.progress()
            self._read = None if found is None else found.offsets
        return self._read

    def _has_more(self) -> bool:
        return bool(self.lag().records)

    # --------------------------------------------------------------------------------------------- partial results

    def _computed(self, ranges: list[OffsetRange]) -> _Computed:
        records = None
        if sum(one.size for one in ranges) <= MAX_RECORDS_IN_DRIVER:
            records = self._log.records(ranges)
        if records is None:
            return self._by_job(self._frame(ranges), lambda: self._frame(ranges, whole=True))
        if self._rows is None:
            raw = self._context.spark.createDataFrame(records).coalesce(1)
            return self._by_job(raw, lambda: raw, len(records))
        partials, bad = self._rows.compute(records)
        if bad.null_count < len(bad):
            self._dead_letters.send(bad_records(records, bad))
        return _Computed(partials, len(records), len(bad) - bad.null_count)

    @cached_property
    def _rows(self) -> RowPartials | None:
        return RowPartials.prepare(self._context.spark, self._definition, self._algebra)

    def _frame(self, ranges: list[OffsetRange], *, whole: bool = False) -> DataFrame:
        """The records, to be read by Spark's tasks.

        :param whole: whether all columns are read, for dead letters; else those that the query needs.
        """
        spark = self._context.spark
        options = {
            **self._context.log_options,
            **options_for(ranges),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "maxRecordsPerPartition": str(_MAX_TASK_RECORDS),
            "includeHeaders": "true" if whole and self._dead_letters.topic else "false",
        }
        reader = spark.read.format("headrace").options(**options)
        return reader.load() if whole else with_columns(reader.schema(self._needed).load(), self._record_schema)

    @cached_property
    def _record_schema(self) -> StructType:
        from headrace.pipeline.spark.source.data_source import spark_schema

        return spark_schema(include_headers=False)

    @cached_property
    def _needed(self) -> StructType:
        from pyspark.sql.types import StructType

        names = needed_columns(self._context.spark, self._definition)
        if any(function.how in _BY_POSITION for function in self._algebra.plan.functions):  # ties need the position
            names = COLUMNS
        return StructType([self._record_schema[name] for name in names])

    def _by_job(self, raw: DataFrame, whole: Callable[[], DataFrame], count: int | None = None) -> _Computed:
        """
        :param whole: returns the same records with all columns.
        :param count: how many records there are, if that is known.
        """
        catalyst = self._algebra.plan.catalyst
        frame = catalyst.frame(catalyst.replace_leaf(self._job_plan, raw.select(*COLUMNS)))
        partials = frame.toArrow().cast(self._algebra.schema)
        bad = self._bad_count(frame)
        if bad:
            self._dead_letters.send(bad_rows(decode_frame(self._definition.decode, whole())).toArrow())
        return _Computed(partials, scanned_rows(frame) if count is None else count, bad)

    def _bad_count(self, frame: DataFrame) -> int:
        if not can_be_bad(self._definition.decode):
            return 0
        found: JavaObject = frame._jdf.queryExecution().observedMetrics().get(_COUNTS)
        # If no offset has a record (markers and aborted records of transactions), Spark drops the counting too.
        return int(found.get().getLong(0)) if found.isDefined() and found.get().length() else 0

    @cached_property
    def _job_plan(self) -> tuple[JavaObject, ...]:
        """The plan from records to partial rows. ``replace_leaf`` applies it to any records."""
        from pyspark.sql import functions as F  # noqa: N812

        raw = self._context.spark.createDataFrame([], self._record_schema)
        decoded = decode_frame(self._definition.decode, raw)
        if can_be_bad(self._definition.decode):  # counting takes a tenth of the time of a replay
            decoded = decoded.observe(_COUNTS, F.count(ERROR).alias("bad"))
        return chain(self._algebra.plan.catalyst.analyzed(self._algebra.partial(good_rows(decoded))))
