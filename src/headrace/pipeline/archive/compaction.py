"""Compacts the archive: many small files of a topic and day become few, and readers do not notice.

Every append adds at least one file per day. Spark opens each of them, so a batch over many small files takes long.
Files of about the same size are compacted together, once there are ``_FILES`` of them: the numbers of their records
have the same number of digits. So a record is written again only a few times.

1. Read the files, and write their records to a staging folder, sorted by partition and offset.
2. Check that the new files have as many records as the old ones, and move them to the folder of the day.
3. Create the next manifest, which lists the new files and the files that they replace. This is atomic, as for an
   append: a reader that lists the files of the topic gets the old ones or the new ones.
4. Delete the old files ``GRACE_MS`` later. Readers that have listed them before step 3 can finish until then.

A crash before step 3 leaves files that are ignored; the first append of a process deletes them (``archive``). A crash
after step 3 leaves old files, which a later compaction deletes. If another process creates the manifest first, the new
files are deleted. An append does not wait for a compaction, and needs no part of it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import uuid4

from headrace.pipeline.archive.files import ArchiveFiles
from headrace.pipeline.archive.manifest import ArchivedFile, History, Manifest, Ranges
from headrace.pipeline.spark.spark_threads import start_spark_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

logger = getLogger(__name__)
#: The number of files of about the same size that are compacted to one.
_FILES = 8
#: Files with more records than this are large enough.
_LARGE = 500_000
_RECORDS_PER_FILE = 1_000_000
GRACE_MS = 24 * 3_600_000


class Group(NamedTuple):
    """Files of one day that become few.

    :ivar day: the folder, ``day=2026-11-16``.
    """

    day: str
    files: tuple[ArchivedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def plan(history: History) -> list[Group]:
    """The files to compact now. Does no I/O."""
    alike: defaultdict[tuple[str, int], list[ArchivedFile]] = defaultdict(list)
    for file in history.live_files:
        if file.rows < _LARGE:
            alike[file.path.split("/")[-2], len(str(file.rows))].append(file)
    return [Group(day, tuple(files)) for (day, _), files in sorted(alike.items()) if len(files) >= _FILES]


class Archive(Protocol):
    """The part of an archive that a compaction uses."""

    files: ArchiveFiles

    def history(self, topic: str) -> History: ...

    def inspect(self, path: str, within: Ranges) -> dict[str, tuple[int, Ranges]]: ...

    def publish(self, topic: str, make: Callable[[History], Manifest | None]) -> bool: ...


class Compactor:
    """Compacts the topics of one archive, one after the other, on a thread of its own."""

    def __init__(self, spark: SparkSession, archive: Archive, schema: StructType, now_ms: Callable[[], int]) -> None:
        self._spark, self._archive, self._schema, self._now_ms = spark, archive, schema, now_ms
        self._one_at_a_time = threading.Lock()
        self._waiting: set[str] = set()
        self._deleted: set[str] = set()

    def wake(self, topic: str) -> None:
        """Begins to compact a topic in the background, if there is anything to do."""
        history = self._archive.history(topic)
        if topic in self._waiting or not (plan(history) or self._overdue(history)):
            return
        self._waiting.add(topic)
        start_spark_thread(partial(self._compact, topic), partial(self._failed, topic), name=f"compact {topic}")

    def _compact(self, topic: str) -> None:
        with self._one_at_a_time:
            self._waiting.discard(topic)
            # With spark.scheduler.mode=FAIR, batches and streams do not wait for a compaction.
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "compaction of the archive")
            self.run(topic)

    def _failed(self, topic: str, error: BaseException) -> None:
        """Logs the failure. The archive is as good as before, and the next append tries again."""
        self._waiting.discard(topic)
        reason = str(error).strip().partition("\n")[0]
        logger.warning("%s: files of %s were not compacted: %s", self._archive, topic, reason)

    def run(self, topic: str) -> int:
        """Compacts what there is, deletes what was replaced long ago, and returns how many files were replaced."""
        self._delete_replaced(self._archive.history(topic))
        groups = plan(self._archive.history(topic))
        if not groups:
            return 0
        history = self._archive.history(topic)
        staging = f"_headrace/{topic}/staging/{history.last_number + 1:010d}-{uuid4().hex[:8]}"
        try:
            found = self._write(staging, groups)
            is_done = self._archive.publish(topic, lambda now: self._moved(now, staging, groups, found))
        finally:
            self._archive.files.delete(staging)
        replaced = sum(len(group.files) for group in groups)
        if is_done:
            logger.info("%s: %d files of %s became %d", self._archive, replaced, topic, len(found))
        return replaced if is_done else 0

    def _write(self, staging: str, groups: list[Group]) -> dict[str, tuple[int, Ranges]]:
        """Writes the records of the groups again, and returns what each new file has."""
        files = self._archive.files
        for group in groups:
            paths = [files.full(file.path) for file in group.files]
            records = self._spark.read.schema(self._schema).parquet(*paths)
            few = records.coalesce(-(-group.rows // _RECORDS_PER_FILE)).sortWithinPartitions("partition", "offset")
            few.write.option("compression", "zstd").parquet(files.full(f"{staging}/{group.day}"))
        found = self._archive.inspect(files.full(staging), _covered(groups))
        for group in groups:
            rows = sum(count for name, (count, _) in found.items() if name.startswith(f"{group.day}/"))
            if rows != group.rows:
                raise OSError(f"{rows} records of {group.day} were written again, not {group.rows}")
        return found

    def _moved(
        self, history: History, staging: str, groups: list[Group], found: dict[str, tuple[int, Ranges]]
    ) -> Manifest | None:
        """Moves the new files to their days, and returns the manifest that lists them.

        None if another process has replaced some of the old files.
        """
        replaced = tuple(file.path for group in groups for file in group.files)
        if not history.live_paths.issuperset(replaced):
            return None
        number, tag, made = history.last_number + 1, uuid4().hex[:8], []
        for at, (name, (rows, ranges)) in enumerate(sorted(found.items())):
            target = f"topic={history.topic}/{name.partition('/')[0]}/{number:010d}-{tag}-{at:05d}.parquet"
            self._archive.files.move(f"{staging}/{name}", target)
            made.append(ArchivedFile(target, rows, ranges))
        return Manifest(number, history.topic, history.topic_id, {}, tuple(made), replaced, self._now_ms())

    # ------------------------------------------------------------------------------------------------------ old files

    def _overdue(self, history: History) -> set[str]:
        limit_ms = self._now_ms() - GRACE_MS
        return {path for path, at_ms in history.replaced.items() if at_ms <= limit_ms} - self._deleted

    def _delete_replaced(self, history: History) -> None:
        overdue = self._overdue(history)
        if not overdue:
            return
        for path in self._archive.files.below(f"topic={history.topic}"):
            if path in overdue:
                self._archive.files.delete(path)
        self._deleted |= overdue


def _covered(groups: list[Group]) -> Ranges:
    covered: Ranges = {}
    for group in groups:
        for file in group.files:
            for at, (first, next_) in file.ranges.items():
                known_first, known_next = covered.get(at, (first, next_))
                covered[at] = min(first, known_first), max(next_, known_next)
    return covered
