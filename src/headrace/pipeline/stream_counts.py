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
    """

    records: int
    bad: int
    dropped: int


def counted(decoded: DataFrame) -> DataFrame:
    """The same records (``decoding.decode_frame``), to be counted when they are read."""
    from pyspark.sql import functions as F  # noqa: N812

    return decoded.observe(_NAME, F.count(F.lit(1)).alias("records"), F.count(ERROR).alias("bad"))


def counts_of(query: StreamingQuery, *, has_watermark: bool) -> BatchCounts:
    """Of the batch that has just been computed; for functions of ``foreachBatch``."""
    execution: Java = query._jsq.streamingQuery().lastExecution()
    row: Java = execution.observedMetrics().apply(_NAME)
    dropped = _dropped(execution.executedPlan()) if has_watermark else 0
    return BatchCounts(int(row.getLong(0)), int(row.getLong(1)), dropped)


def _dropped(plan: Java) -> int:
    found = [node.metrics().get(_DROPPED) for node in walk(plan)]
    return sum(int(metric.get().value()) for metric in found if metric.isDefined())
