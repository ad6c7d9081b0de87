"""The speed layer of a Lambda view: the query over what came since the last micro-batch, again and again.

A step reads everything from the progress to the log's end, computes partial results over exactly that, and commits them
with the new progress in one transaction (``lambda_store``). Offsets live in the serving database only: a step that was
not committed never was, and whoever comes next does it again. Bad records are sent to the dead-letter topic before the
commit, and not again by a step that is done again (``dead_letters``).

How the partial results are computed depends on how much there is:

==========================  =========================================================================================
up to 20,000 offsets        read here and computed in the driver, without a Spark job (``row_partials``)
the same, but the query     read here, computed by a Spark job over them
needs a job
more                        read and computed by Spark's tasks; a million offsets at most, then the next step
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
from headrace.pipeline.progress.lag import Behind, Lag
from headrace.pipeline.progress.offsets import by_topic, joined, ranges_between
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.query.row_partials import RowPartials, bad_records
from headrace.pipeline.spark.catalyst import Java, chain
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
    from headrace.pipeline.version.context import Surroundings

logger = getLogger("headrace.views")
#: Offsets that one step goes on, at most.
MAX_RECORDS = 1_000_000
#: Up to so many are read in the driver.
MAX_RECORDS_HERE = 20_000
_COUNTS = "headrace"


class _Computed(NamedTuple):
    """
    :ivar records: how many there were, bad ones included.
    """

    partials: pa.Table
    records: int
    bad: int


class SpeedLayer:
    """Of one version. One thread steps; any may ask how far behind it is."""

    def __init__(
        self,
        around: Surroundings,
        definition: ViewDefinition,
        store: LambdaStore,
        algebra: Algebra,
        dead_letters: DeadLetters,
        work: WorkInFlight | None = None,
    ) -> None:
        self._around, self._definition = around, definition
        self._work = work or WorkInFlight()
        self._store, self._algebra, self._dead_letters = store, algebra, dead_letters
        self._log = SpeedLog(around.log_options, definition, around.clock, with_headers=bool(dead_letters.topic))
        #: The progress, while nobody else can have changed it.
        self._read: Offsets | None = None
        self._lag: Lag | None = None

    def close(self) -> None:
        self._log.close()

    def run(self, stop: threading.Event) -> None:
        """Steps until it is told to stop, ``trigger_ms`` apart, or at once while there is more than a step can take.

        :raises Exception: what a step raised; nothing of that step is there then.
        """
        clock, trigger_ms = self._around.clock, self._definition.lambda_.trigger_ms
        while not stop.is_set():
            began_ms = clock.monotonic_ms()
            self.step()
            wait_ms = trigger_ms - (clock.monotonic_ms() - began_ms)
            if wait_ms > 0 and not self._has_more():
                stop.wait(wait_ms / 1000)

    def step(self) -> bool:
        """One micro-batch; False if there was nothing to read, or no batch yet to follow on."""
        try:
            return self._step()
        except BaseException:
            self._read = None  # a commit that was not answered may have been one
            self._log.forget()
            raise

    def behind(self) -> Behind:
        """As last seen: no I/O."""
        return Behind() if self._lag is None else self._lag.behind(self._around.clock.monotonic_ms())

    # ------------------------------------------------------------------------------------------------------ a step

    def _step(self) -> bool:
        began_ms = self._around.clock.monotonic_ms()
        read = self._progress()
        if read is None:
            return False
        looked_ms = self._around.clock.wall_ms()
        ends = self._log.ends(read)
        lag = self._lag = self._lag or Lag({}, read, {}, began_ms)
        lag.seen(ends, looked_ms)
        ranges = ranges_between(read, ends, MAX_RECORDS)
        if not ranges:
            return False
        with self._work.of(Work.SPEED):
            self._take(read, ranges, lag, began_ms)
        return True

    def _take(self, read: Offsets, ranges: list[OffsetRange], lag: Lag, began_ms: int) -> None:
        computed = self._computed(ranges)
        after = joined(read, by_topic({one.place: one.end for one in ranges}))
        self._dead_letters.sent_up_to(after)
        self._store.commit_micro_batch(
            after, computed.partials, events=computed.records, dead_letters=computed.bad, first_offsets=read
        )
        self._read = after
        now_ms = self._around.clock.monotonic_ms()
        lag.committed(after, now_ms)
        self._around.metrics.micro_batch(
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
        return bool(self.behind().records)

    # --------------------------------------------------------------------------------------------- partial results

    def _computed(self, ranges: list[OffsetRange]) -> _Computed:
        records = None
        if sum(one.size for one in ranges) <= MAX_RECORDS_HERE:
            records = self._log.records(ranges)
        if records is None:
            return self._by_job(self._frame(ranges))
        if self._rows is None:
            return self._by_job(self._around.spark.createDataFrame(records).coalesce(1))
        partials, bad = self._rows.compute(records)
        if bad.null_count < len(bad):
            self._dead_letters.send(bad_records(records, bad))
        return _Computed(partials, len(records), len(bad) - bad.null_count)

    @cached_property
    def _rows(self) -> RowPartials | None:
        return RowPartials.prepare(self._around.spark, self._definition, self._algebra)

    def _frame(self, ranges: list[OffsetRange]) -> DataFrame:
        spark = self._around.spark
        options = {
            **self._around.log_options,
            **options_for(ranges),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "includeHeaders": "true" if self._dead_letters.topic else "false",
        }
        return spark.read.format("headrace").options(**options).load()

    def _by_job(self, raw: DataFrame) -> _Computed:
        catalyst = self._algebra.plan.catalyst
        frame = catalyst.frame(catalyst.replace_leaf(self._job_plan, raw.select(*COLUMNS)))
        partials = frame.toArrow().cast(self._algebra.schema)
        found: Java = frame._jdf.queryExecution().observedMetrics().get(_COUNTS)
        # Offsets without records (markers of transactions, aborted ones): Spark drops the counting with all the rest.
        counts: Java = found.get() if found.isDefined() and found.get().length() else None
        records, bad = (0, 0) if counts is None else (int(counts.getLong(0)), int(counts.getLong(1)))
        if bad:
            self._dead_letters.send(bad_rows(decode_frame(self._definition.decode, raw)).toArrow())
        return _Computed(partials, records, bad)

    @cached_property
    def _job_plan(self) -> tuple[Java, ...]:
        """From records to partial rows, ready to be put over any records."""
        from pyspark.sql import functions as F  # noqa: N812

        from headrace.pipeline.spark.source.data_source import spark_schema

        raw = self._around.spark.createDataFrame([], spark_schema(include_headers=False))
        decoded = decode_frame(self._definition.decode, raw)
        counted = decoded.observe(_COUNTS, F.count(F.lit(1)).alias("records"), F.count(ERROR).alias("bad"))
        return chain(self._algebra.plan.catalyst.analyzed(self._algebra.partial(good_rows(counted))))
