"""The archive: the master data as Parquet, so that the log may forget and the batch layer does not.

::

    <path>/topic=clicks/day=2026-11-16/0000000003-9f2c41d0-00000.parquet      records, by the day of their timestamp
    <path>/_headrace/clicks/0000000003.json                                   a manifest: what counts
    <path>/_headrace/clicks/staging/0000000004-77aa02c1/                      what Spark is writing just now

A file has the columns of ``format("headrace")`` with headers. It counts if a manifest lists it (``archive_manifest``);
anything else in these folders does not exist. So an append is:

1. read the log from where the last manifest ended, and write that to a folder aside;
2. move the files to their days;
3. create the next manifest, which is there whole or not at all, and only if nobody else created it (``archive_files``).

A crash before 3 leaves files that nobody sees, after it all is done: each record is in the archive exactly once. Two
processes that append at once do the same work; one of them creates the manifest, the other throws its files away and
begins again behind it. What was left behind is swept by the first append of a process.

Whoever reads ``<path>`` with Spark directly sees the records too, and, until it is swept, what a crash left.

What is archived begins where the log began when its topic was first appended. If retention takes something away before
it was archived, or the topic was deleted and made anew (its id says so), that is ``DataLost``: it is never filled up
with something else.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from headrace.client.types import TopicPartition
from headrace.pipeline.archive.files import ArchiveFiles
from headrace.pipeline.archive.manifest import (
    ArchivedFile,
    History,
    Manifest,
    Ranges,
    is_manifest_name,
    manifest_name,
)
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.ranges import OffsetRange
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions, options_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = getLogger(__name__)
_OURS = "_headrace"
#: Of a task, and so of a file at most: large enough to read fast, small enough to share out.
_RECORDS_A_TASK = 1_000_000
#: As many days as one task writes at a time without sorting its records by day first.
_DAYS_AT_A_TIME = 16
#: How long a log may be shorter than it was.
_IS_LOST_AFTER_S = 15.0
_ASK_AGAIN_S = 0.5


class Archive:
    """One a project. May be used by several threads; each topic has one appender at a time.

    :param log_options: what ``format("headrace")`` needs to reach the log: ``kafka.bootstrap.servers``, ...
    """

    def __init__(self, spark: SparkSession, path: str, log_options: Mapping[str, str]) -> None:
        self._spark = spark
        self._log_options = dict(log_options)
        self._files = ArchiveFiles(spark, path)
        self._histories: dict[str, History] = {}
        self._appending: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._swept: set[str] = set()
        # Records stay in the order in which they were read. Nobody else of a project writes files.
        spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(_DAYS_AT_A_TIME))

    def __str__(self) -> str:
        return f"the archive {self._files}"

    # -------------------------------------------------------------------------------------------------- what is there

    def starts(self, topic: str) -> dict[int, int]:
        """Of each partition the first offset that is there."""
        return dict(self.history(topic).starts)

    def ends(self, topic: str) -> dict[int, int]:
        """Of each partition the next offset to append."""
        return dict(self.history(topic).ends)

    def history(self, topic: str) -> History:
        """As it is now. Manifests do not change, so only new ones are read."""
        history = self._histories.get(topic, History(topic))
        folder = f"{_OURS}/{topic}"
        names = [name for name in self._files.listing(folder) if is_manifest_name(name)]
        if len(names) < history.last_number:  # somebody moved it away, to begin anew
            history = History(topic)
        for name in names[history.last_number :]:
            history = history.followed_by(Manifest.from_json(self._files.read(f"{folder}/{name}"), name))
        self._histories[topic] = history
        return history

    def check(self, topic: str) -> None:
        """That the log still is the one that the archive was made from.

        :raises DataLost: if it is not.
        :raises UnknownTopic: if there is no such topic.
        """
        history = self.history(topic)
        log = self._log(topic)
        try:
            self._check(history, log, {})
        finally:
            log.close()

    def _check(self, history: History, log: LogOffsets, ends: Mapping[int, int]) -> list[TopicPartition]:
        """
        :param ends: what else has been read of the log, and so must be there.
        :return: the topic's partitions.
        """
        topic, places = history.topic, log.partitions()
        known, topic_id = history.topic_id, log.topic_ids.get(topic)
        if known is not None and topic_id is not None and known != str(topic_id):
            ids = f"its id is {topic_id}, not {known}"
            raise DataLost(f"the topic {topic!r} was deleted and made anew: {ids}; {self.advice(topic)}")
        read = {at: max(history.ends.get(at, 0), ends.get(at, 0)) for at in sorted({*history.ends, *ends})}
        wanted = {TopicPartition(topic, at): end for at, end in read.items()}
        if gone := [place for place in wanted if place not in places]:
            raise DataLost(f"{gone[0]} is gone, and has been read; {self.advice(topic)}")
        since_s = time.monotonic()
        while short := [place for place, last in log.latest(wanted).items() if last < wanted[place]]:
            # A new leader may not know for a moment how far its log counts.
            if time.monotonic() - since_s > _IS_LOST_AFTER_S:
                what = f"{short[0]} ends before {wanted[short[0]]}, up to which it has been read"
                raise DataLost(f"{what}; {self.advice(topic)}")
            time.sleep(_ASK_AGAIN_S)
        return places

    def advice(self, topic: str) -> str:
        """To who has lost what the log had of a topic."""
        folders = " and ".join(self._files.full(name) for name in (f"{_OURS}/{topic}", f"topic={topic}"))
        return f"the archive keeps what was there; to begin anew, drop the views of {topic} and move {folders} away"

    def _log(self, topic: str) -> LogOffsets:
        return LogOffsets(SourceOptions.parse({**self._log_options, "subscribe": topic}, is_stream=False))

    # ------------------------------------------------------------------------------------------------------ appending

    def append(self, topic: str, ends: Mapping[int, int]) -> int:
        """Sees to it that everything up to these offsets is here; it may be more.

        :param ends: by partition, the offset after the last one wanted.
        :return: how many records were added by this call.
        :raises DataLost: if the log does not have any more what was not archived.
        """
        with self._appending[topic]:
            while True:
                history = self.history(topic)
                missing, topic_id = self._missing(history, ends)
                if not missing:
                    return 0
                manifest = self._write_or_lose(history, missing, topic_id)
                if manifest is not None and self._publish(history, manifest):
                    return sum(file.rows for file in manifest.files)
                logger.info("another process appended %s to %s meanwhile: going on behind it", topic, self)

    def _missing(self, history: History, ends: Mapping[int, int]) -> tuple[list[OffsetRange], str | None]:
        """What has to be read of the log, which is checked to have it; and the topic's id.

        Of a partition that was not here before that may be nothing: from then on it is known where it begins.
        """
        topic = history.topic
        if all(history.ends.get(at, -1) >= end for at, end in ends.items()):
            return [], history.topic_id
        log = self._log(topic)
        try:
            places = self._check(history, log, ends)
            firsts, topic_id = log.earliest(places), log.topic_ids.get(topic)
        finally:
            log.close()
        missing = []
        for at, end in sorted(ends.items()):
            place = TopicPartition(topic, at)
            # What is new begins at 0: in a topic that was archived before, all of it had to come here.
            start = history.ends.get(at, 0 if history.manifests else firsts[place])
            end = max(start, end)
            if start == end and at in history.ends:
                continue
            if firsts[place] > start:
                raise DataLost(
                    f"offsets {start} to {firsts[place] - 1} of {place} were not archived before the log forgot them: "
                    f"it begins at {firsts[place]} now; retention must be longer than the time between batches; "
                    f"{self.advice(topic)}"
                )
            missing.append(OffsetRange(*place, start, end))
        return missing, None if topic_id is None else str(topic_id)

    def _write_or_lose(self, history: History, missing: list[OffsetRange], topic_id: str | None) -> Manifest | None:
        """Nothing if another process was faster: it may even have swept away what we were writing."""
        number, tag = history.last_number + 1, uuid4().hex[:8]
        staging = f"{_OURS}/{history.topic}/staging/{number:010d}-{tag}"
        try:
            files = self._write(history.topic, missing, staging, f"{number:010d}-{tag}")
        except Exception:
            if self.history(history.topic).last_number >= number:
                return None
            raise
        finally:
            self._files.delete(staging)
        ranges = {one.partition: (one.start, one.end) for one in missing}
        return Manifest(number, history.topic, topic_id, ranges, tuple(files))

    def _publish(self, history: History, manifest: Manifest) -> bool:
        name = f"{_OURS}/{manifest.topic}/{manifest_name(manifest.number)}"
        if not self._files.create(name, manifest.to_json()):
            for file in manifest.files:
                self._files.delete(file.path)
            return False
        self._histories[manifest.topic] = history.followed_by(manifest)
        if manifest.topic not in self._swept:
            self._swept.add(manifest.topic)
            self._sweep(self._histories[manifest.topic])
        return True

    def _sweep(self, history: History) -> None:
        """Removes what crashes left, and those that lost."""
        staging = f"{_OURS}/{history.topic}/staging"
        left = [f"{staging}/{name}" for name in self._files.listing(staging)]
        for path in [*left, *self._files.below(f"topic={history.topic}")]:
            if history.is_orphan(path):
                logger.info("%s: removing %s, which no manifest lists", self, path)
                self._files.delete(path)

    def _write(self, topic: str, missing: list[OffsetRange], staging: str, prefix: str) -> list[ArchivedFile]:
        """Written aside, looked at, and moved to their days."""
        records = [one for one in missing if one.size > 0]
        if not records:
            return []
        path = self._files.full(staging)
        by_day = self._read_log(records).withColumn("day", _day()).write.partitionBy("day")
        by_day.option("compression", "zstd").parquet(path)
        found = self._look_at(path, records)
        files = []
        for number, (name, (rows, ranges)) in enumerate(sorted(found.items())):
            day = name.partition("/")[0]
            target = f"topic={topic}/{day}/{prefix}-{number:05d}.parquet"
            self._files.move(f"{staging}/{name}", target)
            files.append(ArchivedFile(target, rows, ranges))
        return files

    def _read_log(self, missing: list[OffsetRange]) -> DataFrame:
        options = {
            **self._log_options,
            **options_for(missing),
            "includeHeaders": "true",
            "maxRecordsPerPartition": str(_RECORDS_A_TASK),
        }
        return self._spark.read.format("headrace").options(**options).load()

    def _look_at(self, path: str, missing: list[OffsetRange]) -> dict[str, tuple[int, Ranges]]:
        """Of each file that was written (``day=.../part-...``), how many records and which offsets it has."""
        from pyspark.sql import functions as F  # noqa: N812

        written = self._spark.read.schema(_schema()).parquet(path)
        counted = written.groupBy(F.col("_metadata.file_path").alias("file"), "partition").agg(
            F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")
        )
        wanted = {one.partition: one for one in missing}
        found: dict[str, tuple[int, Ranges]] = {}
        for row in counted.collect():
            its = wanted[row["partition"]]
            assert its.start <= row["first"], f"what was read begins at {row['first']}, before {its}"
            assert row["last"] < its.end, f"what was read ends at {row['last']}, behind {its}"
            name = "/".join(unquote(row["file"]).rsplit("/", 2)[1:])
            rows, ranges = found.get(name, (0, {}))
            found[name] = rows + row["rows"], {**ranges, row["partition"]: (row["first"], row["last"] + 1)}
        return found

    # -------------------------------------------------------------------------------------------------------- reading

    def read(self, topic: str, starts: Mapping[int, int] | None, ends: Mapping[int, int]) -> DataFrame:
        """The records between, as ``format("headrace")`` has them, with headers.

        :param starts: by partition; None, or what it does not name, is the first that is there.
        :param ends: by partition, the offset after the last; others are not read.
        :raises DataLost: if the archive has not all of it.
        """
        history = self.history(topic)
        for at, end in ends.items():
            if end > max(history.ends.get(at, 0), (starts or {}).get(at, 0)):
                raise DataLost(f"{self} has {topic}-{at} up to {history.ends.get(at, 0)} only, not up to {end}")
        begins = {at: (starts or {}).get(at, history.starts.get(at, 0)) for at in ends}
        for at, begin in begins.items():
            if begin < min(history.starts.get(at, begin), ends[at]):
                raise DataLost(f"{self} has {topic}-{at} from {history.starts[at]} on only, not from {begin}")
        files = history.files(begins, ends)
        if not files:
            return self._spark.createDataFrame([], _schema())
        frame = self._spark.read.schema(_schema()).parquet(*(self._files.full(file.path) for file in files))
        outside = _outside(files, begins, ends)
        return frame if outside is None else frame.where(~outside)


def _outside(files: Iterable[ArchivedFile], starts: Mapping[int, int], ends: Mapping[int, int]) -> Column | None:
    """A condition for the records of these files that are not wanted; None if there are none."""
    from pyspark.sql import functions as F  # noqa: N812

    files = list(files)
    there = {at for file in files for at in file.ranges}
    conditions = [
        (F.col("partition") == at) & ((F.col("offset") < starts[at]) | (F.col("offset") >= end))
        for at, end in sorted(ends.items())
        if any(file.crosses(at, starts[at], end) for file in files)
    ]
    if others := sorted(there - ends.keys()):
        conditions.append(F.col("partition").isin(others))
    if not conditions:
        return None
    together = conditions[0]
    for one in conditions[1:]:
        together = together | one
    return together


def _schema() -> StructType:
    from headrace.pipeline.spark.source.data_source import spark_schema

    return spark_schema(include_headers=True)


def _day() -> Column:
    """Of the record's timestamp in UTC, whatever the session's time zone is."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.date_from_unix_date(F.floor(F.unix_seconds("timestamp") / 86_400).cast("int"))
