"""The batch layer of a Lambda view: the query over all master data up to a cut.

A batch is cut at the progress of the speed layer, which goes on meanwhile; the first one is cut at the end of the log
as it is then, and the speed layer begins there. First everything up to the cut goes to the archive. Then

    full           = partial results over the archive, from its start to the cut
    incremental    = those of the last batch, merged with partial results over the archive from the last cut to this one

which is the same by the algebra of partial results (``aggregates``), except for the rounding of sums of doubles. Rows
go to a table of their own, some at a time, and then land in one transaction (``lambda_store``).

Records that do not decode are counted, and sent to the dead-letter topic, by whoever reads them first: the speed layer,
or the first batch. Later batches pass over them.

What a crash leaves: an archive that is further than the batch, which is no harm, and a table that nobody reads.
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

from headrace.pipeline.decoding.events import ERROR, bad_rows, decode_frame, good_rows
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.offsets import by_partition, by_topic, joined, offsets_between
from headrace.pipeline.spark.catalyst import Java
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.spark.source.log_offsets import LogOffsets
from headrace.pipeline.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

    from headrace.pipeline.archive.archive import Archive
    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.lambda_.store import LambdaStore
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.query.aggregates import Algebra
    from headrace.pipeline.serving.catalog import Batch, Offsets
    from headrace.pipeline.version.context import Surroundings

logger = getLogger("headrace.views")


@dataclass(frozen=True)
class BatchResult:
    """
    :param is_new: False if there was nothing new since the last one, which therefore stays.
    :param rows: of the batch's table.
    """

    batch: int
    cut: Offsets
    is_new: bool
    is_full: bool
    rows: int
    seconds: float


@dataclass
class _Counts:
    events: int = 0
    dead_letters: int = 0


@dataclass(frozen=True)
class FirstReads:
    """How much the first batch has to read.

    :param records: that it computes its answer from.
    :param reads: of records, in all: those that the archive has not are read from the log, and once more to list them.
    """

    records: int
    reads: int

    def share(self, read: int) -> int:
        """How many records the batch is through with after so many reads."""
        return min(self.records, read * self.records // self.reads) if self.reads else 0


class BatchStopped(Exception):
    """It was told to end, and did: nothing has changed."""


class BatchLayer:
    """Of one version. One batch at a time; the speed layer may be at work."""

    def __init__(
        self,
        around: Surroundings,
        definition: ViewDefinition,
        store: LambdaStore,
        algebra: Algebra,
        archive: Archive,
        dead_letters: DeadLetters,
    ) -> None:
        self._around, self._definition = around, definition
        self._store, self._algebra = store, algebra
        self._archive, self._dead_letters = archive, dead_letters
        #: Of the first batch, once that has begun.
        self.first_reads: FirstReads | None = None

    def run(self, full: bool = False, is_stopped: Callable[[], bool] = lambda: False) -> BatchResult:
        """
        :param full: from the archive alone; the first batch always is.
        :param is_stopped: asked now and then.
        :raises BatchStopped: if it said yes.
        :raises DataLost: if the log or the archive does not have any more what is needed.
        """
        clock = self._around.clock
        began_ms = clock.monotonic_ms()
        with self._store.batch_under_way() as (number, progress):
            last = next(reversed(self._store.batches()), None)
            cut = progress if progress is not None else self.log_ends()
            if last is not None and not full and cut == last.cut:
                return BatchResult(last.batch, cut, False, False, last.rows, 0.0)
            counts = _Counts()
            if progress is None:
                self.first_reads = self._first_reads(cut)
            self._archive_up_to(cut, last)
            if is_stopped():
                raise BatchStopped
            since = None if full or last is None else last
            is_first = progress is None
            with self._partials(cut, since, counts if is_first else None) as tables:
                rows = self._store.load_batch(number, cut, _until(is_stopped, tables))
            self._bury(cut, counts.dead_letters)
            self._store.land_batch(number, cut, events=counts.events, dead_letters=counts.dead_letters)
        seconds = (clock.monotonic_ms() - began_ms) / 1000
        self._around.metrics.batch(self._store.view, self._store.version, seconds=seconds)
        return BatchResult(number, cut, True, since is None, rows, seconds)

    def archive(self) -> None:
        """Only that: what the speed layer has read is in the archive then, and the log may forget it."""
        progress = self._store.progress()
        if progress is not None:
            self._archive_up_to(progress.offsets, next(reversed(self._store.batches()), None))

    # ------------------------------------------------------------------------------------------------ where to cut

    def log_ends(self) -> Offsets:
        options = {**self._around.log_options, **self._definition.which_topics}
        with closing(LogOffsets(SourceOptions.parse(options, is_stream=False))) as log:
            return by_topic(log.latest(log.partitions()))

    def _first_reads(self, cut: Offsets) -> FirstReads:
        options = {**self._around.log_options, **self._definition.which_topics}
        with closing(LogOffsets(SourceOptions.parse(options, is_stream=False))) as log:
            starts = by_topic(log.earliest(by_partition(cut)))
        archived = {topic: self._archive.ends(topic) for topic in cut}
        first = {topic: {**starts.get(topic, {}), **self._archive.starts(topic)} for topic in cut}
        records, missing = offsets_between(first, cut), offsets_between(joined(starts, archived), cut)
        return FirstReads(records, records + 2 * missing)

    def _archive_up_to(self, cut: Offsets, last: Batch | None) -> None:
        for topic, ends in sorted(cut.items()):
            if last is None:  # nobody has compared yet what is archived with the log that the cut was taken from
                self._archive.check(topic)
            else:
                self._check_has(topic, last.cut.get(topic, {}))
            self._archive.append(topic, ends)

    def _check_has(self, topic: str, ends: Mapping[int, int]) -> None:
        """What a batch was made of is in the archive; if it is not, the archive is not what it was."""
        known = self._archive.ends(topic)
        for at, end in ends.items():
            if known.get(at, 0) < end:
                raise DataLost(
                    f"{self._archive} has {topic}-{at} up to {known.get(at, 0)}, but the last batch was made of it up "
                    f"to {end}: bring back what was there"
                )

    # --------------------------------------------------------------------------------------------- partial results

    @contextmanager
    def _partials(self, cut: Offsets, since: Batch | None, counts: _Counts | None) -> Iterator[Iterator[pa.Table]]:
        """One row a key, in all of the tables together.

        :param counts: to be filled, if nobody has read this before.
        """
        raw = self._raw(cut, None if since is None else since.cut)
        decoded = decode_frame(self._definition.decode, raw)
        seen = None if counts is None else _observation()
        if seen is not None:
            decoded = decoded.observe(seen, *_counters())
        partials = self._algebra.partial(good_rows(decoded))
        with packed(partials, self._algebra.schema) as tables:
            if counts is not None and seen is not None:
                counts.events, counts.dead_letters = _observed(seen)
            yield tables if since is None else self._merged(since, tables)

    def _raw(self, cut: Offsets, since: Offsets | None) -> DataFrame:
        frames = [
            self._archive.read(topic, None if since is None else since.get(topic, {}), ends)
            for topic, ends in sorted(cut.items())
        ]
        if not frames:  # a pattern that fits no topic yet
            from headrace.pipeline.spark.source.data_source import spark_schema

            return self._around.spark.createDataFrame([], spark_schema(include_headers=True))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _bury(self, cut: Offsets, count: int) -> None:
        """When all else is done: a batch that fails on the way has sent nothing."""
        if count and self._dead_letters.topic:
            logger.info("%s: sending %d records to %s", self._definition.name, count, self._dead_letters.topic)
            with packed(bad_rows(decode_frame(self._definition.decode, self._raw(cut, None)))) as tables:
                for rows in tables:
                    self._dead_letters.send(rows)
            self._dead_letters.sent_up_to(cut)

    def _merged(self, last: Batch, newer: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The last batch's rows, those that are newer merged into them; then those that are only newer.

        What is newer is held here: as many rows as there are keys that something came for since the last batch.
        """
        algebra, tables = self._algebra, self._store.tables
        new = tables.fit(pa.concat_tables([algebra.schema.empty_table(), *newer]))
        new_keys = tables.keys(new)
        is_left = pa.repeat(pa.scalar(True), len(new))
        for old in self._store.partials_of_batch(last.batch):
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


def _observation() -> Observation:
    from pyspark.sql import Observation

    return Observation()


def _observed(seen: Observation) -> tuple[int, int]:
    """What ``_counters`` count. Where Spark sees that there are no records it drops the counting with all the rest."""
    assert seen._jo is not None
    row: Java = seen._jo.getRow()
    return (int(row.getLong(0)), int(row.getLong(1))) if row.length() else (0, 0)


def _counters() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    return [F.count("*").alias("events"), F.count(ERROR).alias("bad")]
