"""Reads the counts of a micro-batch before it is committed: records, bad records, rows behind the watermark.

Spark publishes the progress of a query when a micro-batch is over. That is too late for the transaction that commits
the micro-batch. The executed plan has the numbers as soon as the tasks are done: the scan has counted the records,
``observe`` has counted those that did not decode, and stateful operators have counted rows behind the watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.decoding.events import ERROR, can_be_bad
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.spark.catalyst import JavaObject, kind, walk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_NAME = "headrace"
_SCAN = "MicroBatchScanExec"


class BatchCounts(NamedTuple):
    """
    :ivar records: all records that were read.
    :ivar bad: the records that did not decode.
    :ivar dropped: rows behind the watermark as Spark counts them, after it has aggregated the events of a group.
    :ivar watermark_ms: the watermark of these rows.
    """

    records: int = 0
    bad: int = 0
    dropped: int = 0
    watermark_ms: int = 0


def count_bad_records(decode: Decode, decoded: DataFrame) -> DataFrame:
    """The same records (``decoding.events.decode_frame``), with a count of the bad ones.

    Raw records are never bad. They are not counted, because that takes a tenth of the time of a replay.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return decoded if not can_be_bad(decode) else decoded.observe(_NAME, F.count(ERROR).alias("bad"))


def counts_of(query: StreamingQuery) -> BatchCounts:
    """The counts of the batch that was just computed. Call it within ``foreachBatch``."""
    execution: JavaObject = query._jsq.streamingQuery().lastExecution()
    observed: JavaObject = execution.observedMetrics().get(_NAME)
    counts = BatchCounts(bad=int(observed.get().getLong(0)) if observed.isDefined() else 0)
    for node in walk(execution.executedPlan()):
        if kind(node) == _SCAN:
            counts = counts._replace(records=counts.records + _metric(node, "numOutputRows"))
        elif dropped := _metric(node, "numRowsDroppedByWatermark"):
            watermark_ms = int(node.eventTimeWatermarkForLateEvents().get())
            counts = counts._replace(dropped=counts.dropped + dropped, watermark_ms=watermark_ms)
    return counts


def _metric(node: JavaObject, name: str) -> int:
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0
