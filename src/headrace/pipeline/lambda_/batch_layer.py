"""The batch layer of a Lambda view: computes the query over all archived records up to a cut.

The cut is the progress of the speed layer when the batch begins; the speed layer goes on meanwhile. The cut of the
first batch is the end of the log, and the speed layer begins there, unless the log is small (``view``). First all
records up to the cut are copied to the archive. Then the batch is computed in one of two ways:

    full           = partial results over the archive, from its start to the cut
    incremental    = the partial results of the last batch, merged with partial results over the archive from the last
                     cut to this one

Both give the same result, by the algebra of partial results (``query.aggregates``), except for the rounding of sums of
doubles. The rows are loaded into a new table: through the driver, some at a time, or by Spark's tasks
(``batch_tasks``). Then one transaction makes them visible (``store``).

The layer that reads a record first counts it if it does not decode, and sends it to the dead-letter topic: the speed
layer, or the first batch. Later batches skip such records.

A crash leaves an archive that is ahead of the batch, which does no harm, and a table that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import reduce
from logging import getLogger
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import bad_rows, decode_frame, good_rows, record_counters
from headrace.pipeline.lambda_.batch_tasks import BatchTasks
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.offsets import by_partition, by_topic, offsets_between, updated
from headrace.pipeline.query.task_algebra import TaskAlgebra
from headrace.pipeline.spark.counted import Counted
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions
from headrace.pipeline.spark.staged_rows import TasksNotConnected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.archive.archive import Archive
    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.lambda_.store import LambdaStore
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.serving.catalog import Batch, Offsets
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")


@dataclass(frozen=True)
class BatchResult:
    """
    :param is_new: False if there was nothing new since the last batch, which stays.
    :param rows: how many rows the table of the batch has.
    """

    batch: int
    cut: Offsets
    is_new: bool
    is_full: bool
    rows: int


@dataclass
class _Counts:
    events: int = 0
    dead_letters: int = 0


@dataclass(frozen=True)
class FirstBatchSize:
    """How much the first batch has to read.

    :param records: how many records its answer is computed from.
    :param reads: how often a record is read, in all. A record that is not archived is read three times: from the log,
        to list what was archived, and from the archive.
    """

    records: int
    reads: int

    def records_after(self, read: int) -> int:
        """How many of the records count as processed after this many reads."""
        return min(self.records, read * self.records // self.reads) if self.reads else 0


class BatchStopped(Exception):
    """The batch was stopped, and nothing has changed."""


class BatchLayer:
    """The batch layer of one version. Runs one batch at a time; the speed layer may run meanwhile."""

    def __init__(
        self,
        context: RunContext,
        definition: ViewDefinition,
        store: LambdaStore,
        algebra: Algebra,
        archive: Archive,
        dead_letters: DeadLetters,
    ) -> None:
        self._context, self._definition = context, definition
        self._store, self._algebra = store, algebra
        self._archive, self._dead_letters = archive, dead_letters
        #: The size of the first batch, once that has begun.
        self.first_batch_size: FirstBatchSize | None = None

    def run(self, full: bool = False, is_stopped: Callable[[], bool] = lambda: False) -> BatchResult:
        """
        :param full: whether to compute from the archive alone. The first batch always does.
        :param is_stopped: called now and then; the batch ends if it returns True.
        :raises BatchStopped: if the batch was stopped.
        :raises DataLost: if the log or the archive no longer has the records.
        """
        with self._store.batch_in_progress() as (number, progress):
            last = next(reversed(self._store.batches()), None)
            cut = progress if progress is not None else self.log_ends()
            if last is not None and not full and cut == last.cut:
                return BatchResult(last.batch, cut, False, False, last.rows)
            counts = _Counts()
            if progress is None:
                self.first_batch_size = self._first_batch_size(cut)
            self._archive_up_to(cut, last)
            if last is None and progress is not None:
                self._check_has_start(cut)
            if is_stopped():
                raise BatchStopped
            since = None if full or last is None else last
            rows = self._load(number, cut, since, counts if progress is None else None, is_stopped)
            self._send_dead_letters(cut, counts.dead_letters)
            self._store.commit_batch(number, cut, events=counts.events, dead_letters=counts.dead_letters)
        return BatchResult(number, cut, True, since is None, rows)

    def archive(self) -> None:
        """Copies everything that the speed layer has read to the archive, without a batch.

        The log may then delete it.
        """
        progress = self._store.progress()
        if progress is not None:
            self._archive_up_to(progress.offsets, next(reversed(self._store.batches()), None))

    # ------------------------------------------------------------------------------------------------ where to cut

    def log_ends(self) -> Offsets:
        options = {**self._context.log_options, **self._definition.which_topics}
        with closing(LogOffsets(SourceOptions.parse(options, is_stream=False))) as log:
            return by_topic(log.latest(log.partitions()))

    def _first_batch_size(self, cut: Offsets) -> FirstBatchSize:
        options = {**self._context.log_options, **self._definition.which_topics}
        with closing(LogOffsets(SourceOptions.parse(options, is_stream=False))) as log:
            starts = by_topic(log.earliest(by_partition(cut)))
        archived = {topic: self._archive.ends(topic) for topic in cut}
        first = {topic: {**starts.get(topic, {}), **self._archive.starts(topic)} for topic in cut}
        records, missing = offsets_between(first, cut), offsets_between(updated(starts, archived), cut)
        return FirstBatchSize(records, records + 2 * missing)

    def _archive_up_to(self, cut: Offsets, last: Batch | None) -> None:
        for topic, ends in sorted(cut.items()):
            if last is None:  # the archive has not been compared with the log yet
                self._archive.check(topic)
            else:
                self._check_has(topic, last.cut.get(topic, {}))
            self._archive.append(topic, ends)

    def _check_has(self, topic: str, ends: Mapping[int, int]) -> None:
        """Checks that the archive still has everything that the last batch was computed from."""
        known = self._archive.ends(topic)
        for at, end in ends.items():
            if known.get(at, 0) < end:
                raise DataLost(
                    f"{self._archive} has {topic}-{at} up to offset {known.get(at, 0)}, but the last "
                    f"batch used it up to {end}: restore the files of the archive"
                )

    def _check_has_start(self, cut: Offsets) -> None:
        """Checks that the archive begins where the speed layer began before the first batch: at offset 0."""
        for topic in cut:
            for at, start in self._archive.starts(topic).items():
                if start > 0:
                    raise DataLost(
                        f"offsets 0 to {start - 1} of {topic}-{at} were deleted from the log before they were "
                        f"archived; {self._archive.advice(topic)}"
                    )

    # --------------------------------------------------------------------------------------------- partial results

    def _load(
        self, batch: int, cut: Offsets, since: Batch | None, counts: _Counts | None, is_stopped: Callable[[], bool]
    ) -> int:
        """Computes the batch, and loads its rows into its table.

        :param counts: filled with the counts, if no layer has read these records before.
        :return: the number of rows.
        """
        tables = self._store.batch_tables
        if (tasks := self._tasks(cut, since)) is not None:
            from headrace.pipeline.serving.postgresql.staging import KeysCollide

            partials, seen = self._partial_frame(cut, since, counts)
            last = None if since is None else since.batch
            try:
                rows = tables.load_staged(batch, cut, lambda stage: tasks.copy(partials, stage, batch, last), last)
                _note(counts, seen)
                return rows
            except (KeysCollide, TasksNotConnected) as error:
                reason = f"{type(error).__name__}: {error}"
                logger.info("%s: batch %d is loaded by the driver (%s)", self._definition.name, batch, reason)
        with self._partials(cut, since, counts) as portions:
            return tables.load(batch, cut, _until(is_stopped, portions))

    def _tasks(self, cut: Offsets, since: Batch | None) -> BatchTasks | None:
        """Computes the batch in tasks; None if the driver does it: a small batch, or in SQLite."""
        database, executors_from = self._context.database, self._context.project.serving_executors_from
        in_tasks = TaskAlgebra.of(self._algebra)
        if database.is_sqlite or not executors_from or in_tasks is None or not in_tasks.key_columns:
            return None
        starts = {topic: self._archive.starts(topic) for topic in cut} if since is None else since.cut
        if offsets_between(starts, cut) < executors_from:
            return None
        return BatchTasks(database, self._store.tables, self._algebra, in_tasks)

    @contextmanager
    def _partials(self, cut: Offsets, since: Batch | None, counts: _Counts | None) -> Iterator[Iterator[pa.Table]]:
        """Partial results, as tables with one row per key in all of them together."""
        partials, seen = self._partial_frame(cut, since, counts)
        with packed(partials, self._algebra.schema) as tables:
            _note(counts, seen)
            yield tables if since is None else self._merged(since, tables)

    def _partial_frame(
        self, cut: Offsets, since: Batch | None, counts: _Counts | None
    ) -> tuple[DataFrame, Counted | None]:
        """Partial results over the records of the batch; and what counts these records, if they are to be counted."""
        raw = self._raw(cut, None if since is None else since.cut)
        decoded = decode_frame(self._definition.decode, raw)
        seen = None if counts is None else Counted(decoded, *record_counters())
        return self._algebra.partial(good_rows(decoded if seen is None else seen.frame)), seen

    def _raw(self, cut: Offsets, since: Offsets | None) -> DataFrame:
        frames = [
            self._archive.read(topic, None if since is None else since.get(topic, {}), ends)
            for topic, ends in sorted(cut.items())
        ]
        if not frames:  # no topic matches the pattern yet
            from headrace.pipeline.spark.source.data_source import spark_schema

            return self._context.spark.createDataFrame([], spark_schema(include_headers=True))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _send_dead_letters(self, cut: Offsets, count: int) -> None:
        """Sends the records that do not decode. Called last, so that a batch that fails before has sent nothing."""
        if count and self._dead_letters.topic:
            logger.info("%s: sending %d records to %s", self._definition.name, count, self._dead_letters.topic)
            with packed(bad_rows(decode_frame(self._definition.decode, self._raw(cut, None)))) as tables:
                for rows in tables:
                    self._dead_letters.send(rows)
            self._dead_letters.sent_up_to(cut)

    def _merged(self, last: Batch, newer: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows of the last batch merged with the newer rows; then the newer rows whose keys the last batch lacks.

        The newer rows are held in memory: one row for each key that occurs since the last batch.
        """
        algebra, tables = self._algebra, self._store.tables
        new = tables.fit(pa.concat_tables([algebra.schema.empty_table(), *newer]))
        new_keys = tables.keys(new)
        is_left = pa.repeat(pa.scalar(True), len(new))
        for old in self._store.batch_tables.partial_rows(last.batch):
            old_keys = tables.keys(old)
            is_changed = pc.is_in(old_keys, new_keys)
            yield old.filter(pc.invert(is_changed))
            is_here = pc.is_in(new_keys, old_keys)
            yield algebra.merge([old.filter(is_changed), new.filter(is_here)])
            is_left = pc.and_(is_left, pc.invert(is_here))
        yield new.filter(is_left)


def _until(is_stopped: Callable[[], bool], tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        if is_stopped():
            raise BatchStopped
        yield table


def _note(counts: _Counts | None, seen: Counted | None) -> None:
    if counts is not None and seen is not None:
        counts.events, counts.dead_letters = seen.counts()
