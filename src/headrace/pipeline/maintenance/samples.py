"""Takes a sample of the records of a source, and counts its records by their offsets.

The sample consists of runs of records that are spread evenly over each partition, because neighbours in the log are
often alike. It is bounded in records and bytes, so that it takes about as long for a topic of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.project.source_definition import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS = 4_000
_RUNS_PER_PARTITION = 8
_BYTES = 8 << 20
#: A run is short, and the next run begins elsewhere. So the consumer fetches little ahead, and a
#: fetch at the end of the log waits for new records for a moment only: the next run is read after it.
_CONSUMER = {"max_partition_fetch_bytes": 256 << 10, "fetch_max_wait_ms": 5, "client_id": "headrace-sample"}


class Sample(NamedTuple):
    """
    :ivar total: the number of offsets that the topics have now. Retention, compaction and transactions leave gaps, so
        it is at least the number of records.
    :ivar records: the values of ``spark_schema`` for each record of the sample.
    """

    total: int
    records: list[tuple[Any, ...]]


def sample_of(source: SourceDefinition, log_options: Mapping[str, str]) -> Sample:
    """
    :param log_options: the options with which ``format("headrace")`` reaches the log.
    :raises HeadraceError: if the log does not answer.
    """
    from headrace.pipeline.spark.source.log_offsets import LogOffsets, consumer_for
    from headrace.pipeline.spark.source.options import SourceOptions
    from headrace.pipeline.spark.source.range_reader import COLUMNS, RangeReader

    options = SourceOptions.parse({**log_options, **source.which_topics}, is_stream=False)
    with closing(LogOffsets(options)) as log:
        partitions = log.partitions()
        first, ends = log.earliest(partitions), log.latest(partitions)
    spans = {each: (first[each], ends[each]) for each in partitions if ends[each] > first[each]}
    total = sum(end - start for start, end in spans.values())
    records: list[tuple[Any, ...]] = []
    size_bytes = 0
    consumer = consumer_for(options, **_CONSUMER)
    with closing(RangeReader(options, columns=COLUMNS, consumer=consumer)) as reader:
        for turn in _turns(ranges_of_sample(spans)):
            for batch in reader.read(turn):
                records += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
                size_bytes += batch.nbytes
            if size_bytes > _BYTES:
                break
    return Sample(total, records)


def _turns(ranges: list[OffsetRange]) -> list[list[OffsetRange]]:
    """The ranges in turns, each with at most one range per partition: a reader reads a partition once at a time."""
    turns: list[list[OffsetRange]] = []
    of_partition: Counter[TopicPartition] = Counter()
    for each in ranges:
        turn = of_partition[each.topic_partition]
        of_partition[each.topic_partition] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(each)
    return turns


def ranges_of_sample(
    spans: Mapping[TopicPartition, tuple[int, int]], records: int = _RECORDS, runs: int = _RUNS_PER_PARTITION
) -> list[OffsetRange]:
    """Runs of offsets that are spread evenly over each partition; the whole partition if it is small.

    :param spans: the first offset of each partition and the offset after its last one.
    """
    total = sum(end - start for start, end in spans.values())
    found = []
    for partition, (start, end) in spans.items():
        wanted = -(-(end - start) * records // max(total, records))
        number = min(runs, wanted)
        step = (end - start) / number
        length = -(-wanted // number)
        places = [start + int(step * at) for at in range(number)]
        ends = [*places[1:], end]
        found += [OffsetRange(*partition, at, min(at + length, last)) for at, last in zip(places, ends, strict=True)]
    return found


def frame_of(spark: SparkSession, sample: Sample) -> DataFrame:
    """The records of a sample, as ``format("headrace")`` gives them."""
    from headrace.pipeline.spark.source.data_source import spark_schema

    return spark.createDataFrame(sample.records, spark_schema(include_headers=False))


def estimated_distinct(rows: int, distinct: int, total: float) -> float:
    """How many distinct values ``total`` rows have, if ``rows`` of them, taken at random, have ``distinct``.

    It assumes that all values are equally frequent: d = D * (1 - (1 - 1/D) ** n) is solved for D. If all values of the
    sample differ, nothing suggests that values repeat, and the estimate is ``total``.
    """
    if rows >= total > 0:
        return float(distinct)
    if rows == 0 or distinct >= rows:
        return total
    low, high = float(distinct), max(float(total), float(distinct))
    for _ in range(60):
        middle = (low + high) / 2
        expected = middle * (1 - (1 - 1 / middle) ** rows) if middle > 1 else 1.0
        low, high = (middle, high) if expected < distinct else (low, middle)
    return max(float(distinct), min(low, total))
