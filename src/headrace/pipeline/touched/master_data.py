"""The records that a build reads: all that the topics of a view have up to a cut.

Lambda: the archive, to which everything up to the cut is copied first. Kappa: the log, from where the view starts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipeline.progress.data_loss import DataLost, check_same_topics, start_over_advice
from headrace.pipeline.progress.offsets import by_partition, by_topic, ranges_between
from headrace.pipeline.project.definition import start_ms
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions, options_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.progress.ranges import OffsetRange
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.project.source_definition import SourceDefinition
    from headrace.pipeline.serving.catalog import Offsets, Progress
    from headrace.pipeline.version.context import RunContext

_RECORDS_PER_TASK = 500_000


def which_topics(sources: Sequence[SourceDefinition]) -> dict[str, str]:
    """The option of Spark's source that selects the topics of all sources."""
    topics = sorted({topic for source in sources for topic in source.topics})
    patterns = sorted({source.pattern for source in sources if source.pattern})
    if not patterns:
        return {"subscribe": ",".join(topics)}
    return {"subscribePattern": "|".join([*map(re.escape, topics), *(f"(?:{each})" for each in patterns)])}


class MasterData(ABC):
    def __init__(self, context: RunContext, definition: ViewDefinition) -> None:
        self._context, self._definition = context, definition
        self.which_topics = which_topics(definition.inputs)

    @abstractmethod
    def records(self, cut: Offsets, *, has_headers: bool = False) -> dict[str, DataFrame]:
        """By the name of a source, its records up to the cut, with the columns of ``format("headrace")``.

        :param has_headers: dead letters need headers, queries do not.
        :raises DataLost: if they are no longer there.
        """

    @abstractmethod
    def check_topics(self, progress: Progress) -> None:
        """Checks that the topics are those that were read before.

        :raises DataLost: if not.
        """

    def advice(self) -> str:
        """Returns the advice for a user after data was lost."""
        return start_over_advice(self._definition.name)

    def log_ends(self) -> Offsets:
        with closing(self._log()) as log:
            return by_topic(log.latest(log.partitions()))

    def topic_ids(self) -> dict[str, str]:
        with closing(self._log()) as log:
            log.partitions()
            return {topic: str(id_) for topic, id_ in log.topic_ids.items() if id_ is not None}

    def _log(self, **more: str) -> LogOffsets:
        options = {**self._context.log_options, **self.which_topics, **more}
        return LogOffsets(SourceOptions.parse(options, is_stream=bool(more)))


class LogRecords(MasterData):
    """The records of a Kappa view."""

    def records(self, cut: Offsets, *, has_headers: bool = False) -> dict[str, DataFrame]:
        ranges = ranges_between(self.starts(cut), cut)
        return {
            source.name: self._read([one for one in ranges if source.reads(one.topic)], has_headers)
            for source in self._definition.inputs
        }

    def _read(self, ranges: Sequence[OffsetRange], has_headers: bool) -> DataFrame:
        spark = self._context.spark
        if not ranges:
            return _no_records(spark)
        options = {
            **self._context.log_options,
            **options_for(ranges),
            "includeHeaders": str(has_headers).lower(),
            "maxRecordsPerPartition": str(_RECORDS_PER_TASK),
        }
        return spark.read.format("headrace").options(**options).load()

    def starts(self, cut: Offsets) -> Offsets:
        """The offsets at which the view begins."""
        start = self._definition.kappa.start
        if start == "earliest":
            with closing(self._log()) as log:
                return by_topic(log.earliest(by_partition(cut)))
        by_time = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": str(start_ms(start))}
        options = SourceOptions.parse({**self._context.log_options, **self.which_topics, **by_time}, is_stream=True)
        with closing(LogOffsets(options)) as log:
            return by_topic(log.resolve(options.start, log.partitions(), is_start=True))

    def check_topics(self, progress: Progress) -> None:
        label = f"{progress.view} v{progress.version}"
        check_same_topics(progress, self.topic_ids(), label)


class ArchivedRecords(MasterData):
    """The records of a Lambda view."""

    def records(self, cut: Offsets, *, has_headers: bool = False) -> dict[str, DataFrame]:
        archive = self._context.archive
        for topic, ends in sorted(cut.items()):
            archive.check(topic)
            archive.append(topic, ends)
        return {
            source.name: self._read(
                {topic: ends for topic, ends in sorted(cut.items()) if source.reads(topic)}, has_headers
            )
            for source in self._definition.inputs
        }

    def _read(self, cut: Offsets, has_headers: bool) -> DataFrame:
        frames = [self._context.archive.read(topic, None, ends) for topic, ends in cut.items()]
        if not frames:  # no topic matches the pattern yet
            return _no_records(self._context.spark)
        together = reduce(lambda one, other: one.unionByName(other), frames)
        return together if has_headers else together.drop("headers")

    def check_topics(self, progress: Progress) -> None:
        for topic in sorted(progress.offsets):
            self._context.archive.check(topic)

    def archive(self, ends: Offsets) -> None:
        """Copies records to the archive, so that the log may delete them."""
        for topic, its_ends in sorted(ends.items()):
            self._context.archive.append(topic, its_ends)

    def advice(self) -> str:
        topics = sorted({topic for source in self._definition.inputs for topic in source.topics}) or ["TOPIC"]
        return "; ".join(map(self._context.archive.advice, topics))


def master_data(context: RunContext, definition: ViewDefinition) -> MasterData:
    made = ArchivedRecords if definition.architecture == "lambda" else LogRecords
    return made(context, definition)


def _no_records(spark: object) -> DataFrame:
    from pyspark.sql import SparkSession

    from headrace.pipeline.spark.source.data_source import spark_schema

    assert isinstance(spark, SparkSession)
    return spark.createDataFrame([], spark_schema(include_headers=True))


__all__ = ["ArchivedRecords", "DataLost", "LogRecords", "MasterData", "master_data", "which_topics"]
