"""What a micro-batch of a stream has counted, read while it is still under way.

Spark tells a query's progress when a micro-batch is over, which is too late for the transaction that commits it. The
numbers themselves are there as soon as its tasks are done, in the plan that ran: ``observe`` counts the records and
those that did not decode, and operators that keep state count what came behind the watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.catalyst import Java, walk
from headrace.pipeline.decoding import ERROR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NAME = "headrace"
_DROPPED = "numRowsDroppedByWatermark"


class BatchCounts(NamedTuple):
    """
    :ivar records: all that were read.
    :ivar bad: those of them that did not decode.
    :ivar dropped: rows behind the watermark, as Spark counts them: after events of one group are put together.
    :ivar watermark_ms: the one that they were behind.
    """

    records: int
    bad: int
    dropped: int = 0
    watermark_ms: int = 0


def counted(decoded: DataFrame) -> DataFrame:
    """The same records (``decoding.decode_frame``), to be counted when they are read."""
    from pyspark.sql import functions as F  # noqa: N812

    return decoded.observe(_NAME, F.count(F.lit(1)).alias("records"), F.count(ERROR).alias("bad"))


def counts_of(query: StreamingQuery, *, has_watermark: bool) -> BatchCounts:
    """Of the batch that has just been computed; for functions of ``foreachBatch``."""
    execution: Java = query._jsq.streamingQuery().lastExecution()
    row: Java = execution.observedMetrics().apply(_NAME)
    counts = BatchCounts(int(row.getLong(0)), int(row.getLong(1)))
    return _with_dropped(counts, execution.executedPlan()) if has_watermark else counts


def _with_dropped(counts: BatchCounts, plan: Java) -> BatchCounts:
    dropped = watermark_ms = 0
    for node in walk(plan):
        metric = node.metrics().get(_DROPPED)
        if metric.isDefined() and (number := int(metric.get().value())):
            dropped += number
            watermark_ms = max(watermark_ms, int(node.eventTimeWatermarkForLateEvents().get()))
    return counts._replace(dropped=dropped, watermark_ms=watermark_ms)
