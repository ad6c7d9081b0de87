"""A second look at what a micro-batch has read, where counting on the way is not enough.

Both are rare, so nothing is kept for them while a batch runs: its part of the log is read again, as a batch.

* Records that did not decode go to the view's dead-letter topic, with their bytes and the reason.
* Events that came behind the watermark are counted. Spark counts rows that it drops after it has put the events of a
  group together, so its number is too small. Here the same condition is applied to the events: that the end of their
  window, or their time where that is what is grouped by, is not after the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.dead_letters import DeadLetters
from headrace.pipeline.decoding.events import bad_rows, decode_frame
from headrace.pipeline.progress.offsets import ranges_between
from headrace.pipeline.progress.ranges import OffsetRange, split
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Offsets
from headrace.pipeline.spark.catalyst import Catalyst, Java, chain, children, items, kind
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.version.context import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = getLogger(__name__)
#: So many offsets of bad records are read and sent at a time: their values are in the driver's memory.
_BAD_AT_A_TIME = 100_000
_DELAY_KEY = "spark.watermarkDelayMs"


class SecondLook:
    """:param query: the view's query as the stream runs it."""

    def __init__(
        self, around: Surroundings, definition: ViewDefinition, query: DataFrame, dead_letters: DeadLetters
    ) -> None:
        self._around, self._definition, self._query = around, definition, query
        self._dead_letters = dead_letters

    def close(self) -> None:
        self._dead_letters.close()

    def send_bad_records(self, starts: Offsets, ends: Offsets, bad: int) -> None:
        """
        :param bad: how many there were on the first look.
        """
        if not self._dead_letters.topic:
            return
        sent = 0
        for piece in split(ranges_between(starts, ends), max_records=_BAD_AT_A_TIME):
            raw = self._read([piece], includeHeaders="true")
            sent += self._dead_letters.send(bad_rows(decode_frame(self._definition.decode, raw)).toArrow())
        self._dead_letters.sent_up_to(ends)
        if sent != bad:
            logger.warning(
                "%s: of %d records that did not decode %d were found again for %s: the log has the others no more",
                self._definition.name, bad, sent, self._dead_letters.topic,
            )  # fmt: skip

    def late_events(self, starts: Offsets, ends: Offsets, watermark_ms: int) -> int | None:
        """How many were behind the watermark; None if nothing is grouped by time, where Spark's own count is right."""
        from pyspark.sql import functions as F  # noqa: N812

        catalyst = Catalyst(self._around.spark)
        aggregate = _aggregate(catalyst.analyzed(self._query))
        by_time = (
            [] if aggregate is None else [each for each in items(aggregate.groupingExpressions()) if _is_time(each)]
        )
        if aggregate is None or not by_time:
            return None
        (below,) = children(aggregate)
        plan = catalyst.replace_leaf(chain(below), self._read(ranges_between(starts, ends)))
        events = catalyst.frame(catalyst.without_watermark(plan))
        time = catalyst.column(by_time[0])
        end = time.getField("end") if kind(by_time[0].dataType()) == "StructType" else time
        return events.where(end <= F.timestamp_millis(F.lit(watermark_ms))).count()

    def _read(self, ranges: Sequence[OffsetRange], **options: str) -> DataFrame:
        """What the log still has of these; what is gone meanwhile was counted, and that is all that can be done."""
        reader = self._around.spark.read.format("headrace").options(**self._around.log_options)
        return reader.options(**options_for(ranges), failOnDataLoss="false", **options).load()


def _aggregate(plan: Java) -> Java | None:
    node = plan
    while kind(node) != "Aggregate":
        below = children(node)
        if len(below) != 1:
            return None
        (node,) = below
    return node


def _is_time(expression: Java) -> bool:
    return kind(expression) == "AttributeReference" and bool(expression.metadata().contains(_DELAY_KEY))
