"""Reads the records of a micro-batch again, for bad records and for late events.

Both are rare, so a micro-batch keeps nothing for them while it runs. If it has counted some, its range of the log is
read again as a batch:

* Records that did not decode are sent to the view's dead-letter topic, with their bytes and the reason.
* Events behind the watermark are counted. Spark drops and counts rows after it has aggregated the events of a group, so
  its number is too small. Here the same condition is applied to the events: the end of their window, or their time if
  the query groups by time, is not after the watermark.
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
from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, chain, children, items, kind
from headrace.pipeline.spark.source.options import options_for
from headrace.pipeline.version.context import RunContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = getLogger(__name__)
#: Offsets that are read at a time, because the values of bad records are in the driver's memory.
_MAX_OFFSETS = 100_000
_DELAY_KEY = "spark.watermarkDelayMs"


class BatchReread:
    """:param query: the query of the view, as the stream runs it."""

    def __init__(
        self, context: RunContext, definition: ViewDefinition, query: DataFrame, dead_letters: DeadLetters
    ) -> None:
        self._context, self._definition, self._query = context, definition, query
        self._dead_letters = dead_letters

    def close(self) -> None:
        self._dead_letters.close()

    def send_bad_records(self, starts: Offsets, ends: Offsets, bad: int) -> None:
        """
        :param bad: how many bad records the micro-batch has counted.
        """
        if not self._dead_letters.topic:
            return
        sent = 0
        for piece in split(ranges_between(starts, ends), max_records=_MAX_OFFSETS):
            raw = self._read([piece], includeHeaders="true")
            sent += self._dead_letters.send(bad_rows(decode_frame(self._definition.decode, raw)).toArrow())
        self._dead_letters.sent_up_to(ends)
        if sent != bad:
            logger.warning(
                "%s: %d records did not decode, but only %d were sent to %s: the log no longer has the others",
                self._definition.name, bad, sent, self._dead_letters.topic,
            )  # fmt: skip

    def late_events(self, starts: Offsets, ends: Offsets, watermark_ms: int) -> int | None:
        """How many events were behind the watermark; None if the query does not group by time."""
        from pyspark.sql import functions as F  # noqa: N812

        catalyst = Catalyst(self._context.spark)
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
        """The records of these ranges that the log still has.

        Missing records were counted as lost already.
        """
        reader = self._context.spark.read.format("headrace").options(**self._context.log_options)
        return reader.options(**options_for(ranges), failOnDataLoss="false", **options).load()


def _aggregate(plan: JavaObject) -> JavaObject | None:
    node = plan
    while kind(node) != "Aggregate":
        below = children(node)
        if len(below) != 1:
            return None
        (node,) = below
    return node


def _is_time(expression: JavaObject) -> bool:
    return kind(expression) == "AttributeReference" and bool(expression.metadata().contains(_DELAY_KEY))
