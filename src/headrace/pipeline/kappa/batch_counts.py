"""What a micro-batch of a stream has counted, read while it is still under way.

Spark tells a query's progress when a micro-batch is over, which is too late for the transaction that commits it. The
numbers themselves are there as soon as its tasks are done, in the plan that ran: the scan has counted the records,
``observe`` those that did not decode, and operators that keep state what came behind the watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.decoding.events import ERROR
from headrace.pipeline.project.definition import Decode
from headrace.pipeline.spark.catalyst import Java, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NAME = "headrace"
_SCAN = "MicroBatchScanExec"


class BatchCounts(NamedTuple):
    """
    :ivar records: all that were read.
    :ivar bad: those of them that did not decode.
    :ivar dropped: rows behind the watermark, as Spark counts them: after events of one group are put together.
    :ivar watermark_ms: the one that they were behind.
    """

    records: int = 0
    bad: int = 0
    dropped: int = 0
    watermark_ms: int = 0


def counted(decode: Decode, decoded: DataFrame) -> DataFrame:
    """The same records (``decoding.decode_frame``); those that are bad are counted when they are read.

    Raw records are never bad, and looking at each of them takes a tenth of the time of a replay.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return decoded if decode.format == "raw" else decoded.observe(_NAME, F.count(ERROR).alias("bad"))


def counts_of(query: StreamingQuery) -> BatchCounts:
    """Of the batch that has just been computed; for functions of ``foreachBatch``."""
    execution: Java = query._jsq.streamingQuery().lastExecution()
    observed: Java = execution.observedMetrics().get(_NAME)
    counts = BatchCounts(bad=int(observed.get().getLong(0)) if observed.isDefined() else 0)
    for node in walk(execution.executedPlan()):
        if kind(node) == _SCAN:
            counts = counts._replace(records=counts.records + _metric(node, "numOutputRows"))
        elif dropped := _metric(node, "numRowsDroppedByWatermark"):
            watermark_ms = int(node.eventTimeWatermarkForLateEvents().get())
            counts = counts._replace(dropped=counts.dropped + dropped, watermark_ms=watermark_ms)
    return counts


def _metric(node: Java, name: str) -> int:
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0
