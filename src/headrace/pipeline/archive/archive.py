"""The archive: keeps the records of topics as Parquet, so that the log may delete them and batches can still read them.

::

    <path>/topic=clicks/day=2026-11-16/0000000003-9f2c41d0-00000.parquet      records, by the day of their timestamp
    <path>/_headrace/clicks/0000000003.json                                   a manifest: lists the files that count
    <path>/_headrace/clicks/staging/0000000004-77aa02c1/                      files that Spark is writing now

A file has the columns of ``format("headrace")`` with headers. A file counts if a manifest lists it (``manifest``); all
other files in these folders are ignored. An append has three steps:

1. Read the log from where the last manifest ended, and write the records to a staging folder.
2. Move the files to the folders of their days.
3. Create the next manifest. This is atomic, and fails if another process has created it (``files``).

A crash before step 3 leaves files that are ignored. After step 3 the append is done. So each record is in the archive
exactly once. If two processes append at the same time, both do the work; one of them creates the manifest, and the
other deletes its files and continues after that manifest. The first append of a process deletes what crashes have left.

After an append, small files are compacted in the background (``compaction``). A program that reads ``<path>`` with
Spark directly, without the manifests, sees the records too; and also what a crash or a compaction has left until then.

The archive of a topic begins where the log began at the first append. ``DataLost`` is raised if retention deletes
records before they were archived, or if the topic was deleted and created again, which its id shows. Other records are
never put in their place.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from headrace.client.types import TopicPartition
from headrace.pipeline.archive.compaction import Compactor
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
#: Records per task, and so per file at most: large files are read fast, small files can be shared among tasks.
_RECORDS_PER_TASK = 1_000_000
#: How many days a task writes at a time. Only with more days does Spark sort the records by day first.
_DAYS_AT_A_TIME = 16
#: How long a log may end before what was read of it. A new leader may not know its high watermark yet.
_IS_LOST_AFTER_S = 15.0
_POLL_S = 0.5


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Archive:
    """The archive of a project. Any thread may call its methods; appends to one topic wait for each other.

    :param log_options: the options with which ``format("headrace")`` reaches the log: ``kafka.bootstrap.servers``, ...
    """

    def __init__(
        self, spark: SparkSession, path: str, log_options: Mapping[str, str], *, now_ms: Callable[[], int] = _wall_ms
    ) -> None:
        self._spark = spark
        self._log_options = dict(log_options)
        self.files = ArchiveFiles(spark, path)
        self._histories: dict[str, History] = {}
        self._appending: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._swept: set[str] = set()
        self._compactor = Compactor(spark, self, _schema(), now_ms)
        # Keeps records in the order in which they were read. Only the archive writes files in this session.
        spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(_DAYS_AT_A_TIME))

    def __str__(self) -> str:
        return f"the archive {self.files}"

    # -------------------------------------------------------------------------------------------------- what is there

    def starts(self, topic: str) -> dict[int, int]:
        """For each partition, the first offset in the archive."""
        return dict(self.history(topic).starts)

    def ends(self, topic: str) -> dict[int, int]:
        """For each partition, the next offset to append."""
        return dict(self.history(topic).ends)

    def history(self, topic: str) -> History:
        """The manifests of a topic as of now. Manifests do not change, so only new ones are read."""
        history = self._histories.get(topic, History(topic))
        folder = f"{_OURS}/{topic}"
        names = [name for name in self.files.listing(folder) if is_manifest_name(name)]
        if len(names) < history.last_number:  # a user moved the manifests away, to start over
            history = History(topic)
        for name in names[history.last_number :]:
            history = history.followed_by(Manifest.from_json(self.files.read(f"{folder}/{name}"), name))
        self._histories[topic] = history
        return history

    def check(self, topic: str) -> None:
        """Checks that the topic still is the one that was archived.

        :raises DataLost: if it is not, or has lost records.
        :raises UnknownTopic: if the topic does not exist.
        """
        history = self.history(topic)
        log = self._log(topic)
        try:
            self._check(history, log, {})
        finally:
            log.close()

    def _check(self, history: History, log: LogOffsets, ends: Mapping[int, int]) -> list[TopicPartition]:
        """
        :param ends: further offsets up to which the log was read and must still exist.
        :return: the partitions of the topic.
        """
        topic, partitions = history.topic, log.partitions()
        known, topic_id = history.topic_id, log.topic_ids.get(topic)
        if known is not None and topic_id is not None and known != str(topic_id):
            ids = f"its id is {topic_id}, not {known}"
            raise DataLost(f"the topic {topic!r} was deleted and created again: {ids}; {self.advice(topic)}")
        read = {at: max(history.ends.get(at, 0), ends.get(at, 0)) for at in sorted({*history.ends, *ends})}
        wanted = {TopicPartition(topic, at): end for at, end in read.items()}
        if gone := [partition for partition in wanted if partition not in partitions]:
            raise DataLost(f"{gone[0]} no longer exists, but was read before; {self.advice(topic)}")
        since_s = time.monotonic()
        while short := [partition for partition, last in log.latest(wanted).items() if last < wanted[partition]]:
            if time.monotonic() - since_s > _IS_LOST_AFTER_S:
                what = f"{short[0]} ends before offset {wanted[short[0]]}, up to which it was read"
                raise DataLost(f"{what}; {self.advice(topic)}")
            time.sleep(_POLL_S)
        return partitions

    def advice(self, topic: str) -> str:
        """Returns the advice for a user after the log has lost records of a topic."""
        folders = " and ".join(self.files.full(name) for name in (f"{_OURS}/{topic}", f"topic={topic}"))
        return f"the archive keeps its records; to start over, drop the views that read {topic} and move {folders} away"

    def _log(self, topic: str) -> LogOffsets:
        return LogOffsets(SourceOptions.parse({**self._log_options, "subscribe": topic}, is_stream=False))

    # ------------------------------------------------------------------------------------------------------ appending

    def append(self, topic: str, ends: Mapping[int, int]) -> int:
        """Makes sure that everything up to these offsets is archived. More may be archived already.

        :param ends: by partition, the offset after the last one to archive.
        :return: how many records this call has added.
        :raises DataLost: if the log no longer has records that were not archived.
        """
        with self._appending[topic]:
            added = self._append(topic, ends)
        if added:
            self._compactor.wake(topic)
        return added

    def _append(self, topic: str, ends: Mapping[int, int]) -> int:
        while True:
            history = self.history(topic)
            missing, topic_id = self._missing(history, ends)
            if not missing:
                return 0
            manifest = self._write_manifest(history, missing, topic_id)
            if manifest is not None and self._publish(history, manifest):
                return sum(file.rows for file in manifest.files)
            logger.info("another process has changed %s in %s: continuing after its records", topic, self)

    def compact(self, topic: str) -> int:
        """Makes few files out of many small ones, and returns how many were replaced.

        Appends do so in the background.
        """
        return self._compactor.run(topic)

    def publish(self, topic: str, make: Callable[[History], Manifest | None]) -> bool:
        """Creates a manifest that adds no records. False if another process was faster.

        :param make: makes the manifest that follows a history, and moves its files to their places.
        """
        with self._appending[topic]:
            history = self.history(topic)
            manifest = make(history)
            return manifest is not None and self._publish(history, manifest)

    def _missing(self, history: History, ends: Mapping[int, int]) -> tuple[list[OffsetRange], str | None]:
        """The ranges to read from the log, and the id of the topic. Checks that the log has them.

        The range of a new partition may be empty: the manifest then records where the partition begins.
        """
        topic = history.topic
        if all(history.ends.get(at, -1) >= end for at, end in ends.items()):
            return [], history.topic_id
        log = self._log(topic)
        try:
            partitions = self._check(history, log, ends)
            firsts, topic_id = log.earliest(partitions), log.topic_ids.get(topic)
        finally:
            log.close()
        missing = []
        for at, end in sorted(ends.items()):
            partition = TopicPartition(topic, at)
            # In a topic that was archived before, a new partition has to be archived from offset 0.
            start = history.ends.get(at, 0 if history.manifests else firsts[partition])
            end = max(start, end)
            if start == end and at in history.ends:
                continue
            if firsts[partition] > start:
                raise DataLost(
                    f"offsets {start} to {firsts[partition] - 1} of {partition} were deleted from the log "
                    f"before they were archived: the log begins at {firsts[partition]} now; make retention longer than "
                    f"the time between batches; {self.advice(topic)}"
                )
            missing.append(OffsetRange(*partition, start, end))
        return missing, None if topic_id is None else str(topic_id)

    def _write_manifest(self, history: History, missing: list[OffsetRange], topic_id: str | None) -> Manifest | None:
        """Writes the files and returns their manifest. None if another process was faster.

        The other process may even have deleted the files that this process was writing.
        """
        number, tag = history.last_number + 1, uuid4().hex[:8]
        staging = f"{_OURS}/{history.topic}/staging/{number:010d}-{tag}"
        try:
            files = self._write(history.topic, missing, staging, f"{number:010d}-{tag}")
        except Exception:
            if self.history(history.topic).last_number >= number:
                return None
            raise
        finally:
            self.files.delete(staging)
        ranges = {one.partition: (one.start, one.end) for one in missing}
        return Manifest(number, history.topic, topic_id, ranges, tuple(files))

    def _publish(self, history: History, manifest: Manifest) -> bool:
        name = f"{_OURS}/{manifest.topic}/{manifest_name(manifest.number)}"
        if not self.files.create(name, manifest.to_json()):
            for file in manifest.files:
                self.files.delete(file.path)
            return False
        self._histories[manifest.topic] = history.followed_by(manifest)
        if manifest.topic not in self._swept:
            self._swept.add(manifest.topic)
            self._sweep(self._histories[manifest.topic])
        return True

    def _sweep(self, history: History) -> None:
        """Deletes files that no manifest lists: those of crashes, and of processes that were slower."""
        staging = f"{_OURS}/{history.topic}/staging"
        left = [f"{staging}/{name}" for name in self.files.listing(staging)]
        for path in [*left, *self.files.below(f"topic={history.topic}")]:
            if history.is_orphan(path):
                logger.info("%s: deleting %s, which no manifest lists", self, path)
                self.files.delete(path)

    def _write(self, topic: str, missing: list[OffsetRange], staging: str, prefix: str) -> list[ArchivedFile]:
        """Writes the records to the staging folder, inspects the files, and moves them to the folders of their days."""
        records = [one for one in missing if one.size > 0]
        if not records:
            return []
        path = self.files.full(staging)
        by_day = self._read_log(records).withColumn("day", _day()).write.partitionBy("day")
        by_day.option("compression", "zstd").parquet(path)
        found = self.inspect(path, {one.partition: (one.start, one.end) for one in records})
        files = []
        for number, (name, (rows, ranges)) in enumerate(sorted(found.items())):
            day = name.partition("/")[0]
            target = f"topic={topic}/{day}/{prefix}-{number:05d}.parquet"
            self.files.move(f"{staging}/{name}", target)
            files.append(ArchivedFile(target, rows, ranges))
        return files

    def _read_log(self, missing: list[OffsetRange]) -> DataFrame:
        options = {
            **self._log_options,
            **options_for(missing),
            "includeHeaders": "true",
            "maxRecordsPerPartition": str(_RECORDS_PER_TASK),
        }
        return self._spark.read.format("headrace").options(**options).load()

    def inspect(self, path: str, within: Ranges) -> dict[str, tuple[int, Ranges]]:
        """For each file that was written (``day=.../part-...``), its number of records and its offsets.

        :param within: the offsets that the files may have.
        """
        from pyspark.sql import functions as F  # noqa: N812

        written = self._spark.read.schema(_schema()).parquet(path)
        counted = written.groupBy(F.col("_metadata.file_path").alias("file"), "partition").agg(
            F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("rows")
        )
        found: dict[str, tuple[int, Ranges]] = {}
        for row in counted.collect():
            start, end = within[row["partition"]]
            assert start <= row["first"], f"a file begins at offset {row['first']}, before {start}"
            assert row["last"] < end, f"a file ends at offset {row['last']}, not before {end}"
            name = "/".join(unquote(row["file"]).rsplit("/", 2)[1:])
            rows, ranges = found.get(name, (0, {}))
            found[name] = rows + row["rows"], {**ranges, row["partition"]: (row["first"], row["last"] + 1)}
        return found

    # -------------------------------------------------------------------------------------------------------- reading

    def read(self, topic: str, starts: Mapping[int, int] | None, ends: Mapping[int, int]) -> DataFrame:
        """The records in these ranges, with the columns of ``format("headrace")`` and headers.

        :param starts: by partition; None, or a partition that is missing, means the first archived offset.
        :param ends: by partition, the offset after the last one. Other partitions are not read.
        :raises DataLost: if the archive does not have all of them.
        """
        history = self.history(topic)
        for at, end in ends.items():
            if end > max(history.ends.get(at, 0), (starts or {}).get(at, 0)):
                raise DataLost(f"{self} has {topic}-{at} only up to offset {history.ends.get(at, 0)}, not up to {end}")
        begins = {at: (starts or {}).get(at, history.starts.get(at, 0)) for at in ends}
        for at, begin in begins.items():
            if begin < min(history.starts.get(at, begin), ends[at]):
                raise DataLost(f"{self} has {topic}-{at} only from offset {history.starts[at]} on, not from {begin}")
        files = history.files(begins, ends)
        if not files:
            return self._spark.createDataFrame([], _schema())
        frame = self._spark.read.schema(_schema()).parquet(*(self.files.full(file.path) for file in files))
        outside = _outside(files, begins, ends)
        return frame if outside is None else frame.where(~outside)


def _outside(files: Iterable[ArchivedFile], starts: Mapping[int, int], ends: Mapping[int, int]) -> Column | None:
    """A condition for the records of these files that are outside of the ranges; None if there are none."""
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
    """The day of the record's timestamp in UTC, whatever the time zone of the session."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.date_from_unix_date(F.floor(F.unix_seconds("timestamp") / 86_400).cast("int"))
