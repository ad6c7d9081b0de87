"""The speed layer of a Lambda view: computes the query over the records since the last micro-batch, again and again.

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
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import ERROR, bad_rows, decode_frame, good_rows
from headrace.pipeline.lambda_.speed_log import SpeedLog
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.progress.offsets import by_topic, ranges_between, updated
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.query.row_partials import RowPartials, bad_records
from headrace.pipeline.spark.catalyst import JavaObject, chain
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.spark.source.range_reader import COLUMNS
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.lambda_.store import LambdaStore
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.serving.catalog import Offsets
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")
#: At most this many offsets per step.
MAX_RECORDS = 1_000_000
#: Up to this many offsets are read in the driver.
MAX_RECORDS_IN_DRIVER = 20_000
_COUNTS = "headrace"


class _Computed(NamedTuple):
    """
    :ivar records: how many records were read, including bad ones.
    """

    partials: pa.Table
    records: int
    bad: int


class SpeedLayer:
    """The speed layer of one version. One thread calls ``step``; any thread may call ``lag``."""

    def __init__(
        self,
        context: RunContext,
        definition: ViewDefinition,
        store: LambdaStore,
        algebra: Algebra,
        dead_letters: DeadLetters,
        work: WorkInFlight | None = None,
    ) -> None:
        self._context, self._definition = context, definition
        self._work = work or WorkInFlight()
        self._store, self._algebra, self._dead_letters = store, algebra, dead_letters
        self._log = SpeedLog(context.log_options, definition, context.clock, with_headers=bool(dead_letters.topic))
        #: The progress in the database; None if it has to be read again.
        self._read: Offsets | None = None
        self._lag_tracker: LagTracker | None = None

    def close(self) -> None:
        self._log.close()

    def run(self, stop: threading.Event) -> None:
        """Runs steps until ``stop`` is set: every ``trigger_ms``, or at once while one step cannot read everything.

        :raises Exception: what a step raised. Nothing of that step is committed then.
        """
        clock, trigger_ms = self._context.clock, self._definition.lambda_.trigger_ms
        while not stop.is_set():
            began_ms = clock.monotonic_ms()
            self.step()
            wait_ms = trigger_ms - (clock.monotonic_ms() - began_ms)
            if wait_ms > 0 and not self._has_more():
                stop.wait(wait_ms / 1000)

    def step(self) -> bool:
        """Runs one micro-batch; False if there was nothing to read, or if the first batch is not committed yet."""
        try:
            return self._step()
        except BaseException:
            self._read = None  # the commit may have happened although it raised
            self._log.close_reader()
            raise

    def lag(self) -> Lag:
        """The lag as last observed. Does no I/O."""
        return Lag() if self._lag_tracker is None else self._lag_tracker.lag(self._context.clock.monotonic_ms())

    # ------------------------------------------------------------------------------------------------------ a step

    def _step(self) -> bool:
        began_ms = self._context.clock.monotonic_ms()
        read = self._progress()
        if read is None:
            return False
        asked_ms = self._context.clock.wall_ms()
        ends = self._log.ends(read)
        tracker = self._lag_tracker = self._lag_tracker or LagTracker({}, read, {}, began_ms)
        tracker.observed(ends, asked_ms)
        ranges = ranges_between(read, ends, MAX_RECORDS)
        if not ranges:
            return False
        with self._work.of(Work.SPEED):
            self._process(read, ranges, tracker, began_ms)
        return True

    def _process(self, read: Offsets, ranges: list[OffsetRange], tracker: LagTracker, began_ms: int) -> None:
        computed = self._computed(ranges)
        after = updated(read, by_topic({one.topic_partition: one.end for one in ranges}))
        self._dead_letters.sent_up_to(after)
        self._store.commit_micro_batch(
            after, computed.partials, events=computed.records, dead_letters=computed.bad, first_offsets=read
        )
        self._read = after
        now_ms = self._context.clock.monotonic_ms()
        tracker.committed(after, now_ms)
        self._context.metrics.micro_batch(
            self._store.view,
            self._store.version,
            seconds=(now_ms - began_ms) / 1000,
            events=computed.records,
            dead_letters=computed.bad,
        )
        self._store.merge_spans()

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
            return self._by_job(self._frame(ranges))
        if self._rows is None:
            return self._by_job(self._context.spark.createDataFrame(records).coalesce(1))
        partials, bad = self._rows.compute(records)
        if bad.null_count < len(bad):
            self._dead_letters.send(bad_records(records, bad))
        return _Computed(partials, len(records), len(bad) - bad.null_count)

    @cached_property
    def _rows(self) -> RowPartials | None:
        return RowPartials.prepare(self._context.spark, self._definition, self._algebra)

    def _frame(self, ranges: list[OffsetRange]) -> DataFrame:
        spark = self._context.spark
        options = {
            **self._context.log_options,
            **options_for(ranges),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "includeHeaders": "true" if self._dead_letters.topic else "false",
        }
        return spark.read.format("headrace").options(**options).load()

    def _by_job(self, raw: DataFrame) -> _Computed:
        catalyst = self._algebra.plan.catalyst
        frame = catalyst.frame(catalyst.replace_leaf(self._job_plan, raw.select(*COLUMNS)))
        partials = frame.toArrow().cast(self._algebra.schema)
        found: JavaObject = frame._jdf.queryExecution().observedMetrics().get(_COUNTS)
        # If no offset has a record (markers and aborted records of transactions), Spark drops the counting too.
        counts: JavaObject = found.get() if found.isDefined() and found.get().length() else None
        records, bad = (0, 0) if counts is None else (int(counts.getLong(0)), int(counts.getLong(1)))
        if bad:
            self._dead_letters.send(bad_rows(decode_frame(self._definition.decode, raw)).toArrow())
        return _Computed(partials, records, bad)

    @cached_property
    def _job_plan(self) -> tuple[JavaObject, ...]:
        """The plan from records to partial rows. ``replace_leaf`` applies it to any records."""
        from pyspark.sql import functions as F  # noqa: N812

        from headrace.pipeline.spark.source.data_source import spark_schema

        raw = self._context.spark.createDataFrame([], spark_schema(include_headers=False))
        decoded = decode_frame(self._definition.decode, raw)
        counted = decoded.observe(_COUNTS, F.count(F.lit(1)).alias("records"), F.count(ERROR).alias("bad"))
        return chain(self._algebra.plan.catalyst.analyzed(self._algebra.partial(good_rows(counted))))
