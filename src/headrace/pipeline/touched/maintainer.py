"""Maintains one version: prepares its query once, then computes builds and micro-batches, and commits each.

A micro-batch reads the records since the progress, decodes them, computes what they change (``engine``), and commits
the changes with the new progress in one transaction (``store``). A micro-batch that was not committed has no effect and
is repeated.

A build computes everything from the start (``building``) into new tables. Micro-batches of the old tables go on
meanwhile. Then the same records are applied to the new tables, and one transaction switches.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import bad_rows
from headrace.pipeline.decoding.source_rows import REMOVED, decode_source, source_schema
from headrace.pipeline.progress.offsets import by_topic, is_before, ranges_between, updated
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.validation import empty_query
from headrace.pipeline.query.view_query import apply_query
from headrace.pipeline.serving.catalog import Offsets, Progress
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.building import Builder, BuildStopped, Counts
from headrace.pipeline.touched.cutting import cut
from headrace.pipeline.touched.engine import Engine, LeafChange
from headrace.pipeline.touched.event_times import Clocks, ClockTable, EventTimes
from headrace.pipeline.touched.keeping import keep_in
from headrace.pipeline.touched.operators import Input, Tree
from headrace.pipeline.touched.placeholders import placeholders
from headrace.pipeline.touched.source_decoder import SourceDecoder
from headrace.pipeline.touched.state_table import StateTable
from headrace.pipeline.touched.store import BuildChange, BuildTables, TouchedStore, shown_schema
from headrace.pipeline.touched.table_source import TableSource, table_columns
from headrace.pipeline.touched.tables import TIME, ViewTable, build_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.progress.ranges import OffsetRange
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.serving.catalog import Version
    from headrace.pipeline.serving.database import Begin
    from headrace.pipeline.touched.master_data import MasterData
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")
#: At most this many offsets per micro-batch.
MAX_RECORDS = 20_000
#: Reads records of the log; the tables have the columns of ``format("headrace")``.
ReadRecords = Callable[[list["OffsetRange"]], pa.Table]


def tree_of(spark: SparkSession, definition: ViewDefinition) -> Tree:
    """The query of a view, cut into operators.

    :raises NotTouchable: if the query cannot be maintained by touched keys.
    :raises ViewError: if Spark cannot run the query.
    """
    stand_ins = placeholders(spark, {source.name: source_schema(source) for source in definition.inputs})
    own = None if definition.sources else stand_ins.frames[definition.own_source.name]
    tree = cut(apply_query(spark, definition, own, stand_ins.frames if own is None else None), stand_ins.sources)
    return tree if definition.keep is None else replace(tree, kept=keep_in(tree, definition))


class StepResult(NamedTuple):
    """
    :ivar records: how many records were read, including bad ones.
    """

    progress: Progress
    records: int
    bad: int
    late: int


class _Computed(NamedTuple):
    """
    :ivar bad: by the name of a source, the records that do not decode.
    :ivar late: how many events are late.
    """

    change: BuildChange
    bad: dict[str, pa.Table]
    late: int


class Maintainer:
    """One thread at a time may call ``step``, and one ``build``; the two may run side by side."""

    def __init__(
        self,
        context: RunContext,
        definition: ViewDefinition,
        version: Version,
        data: MasterData,
        dead_letters: Mapping[str, DeadLetters],
    ) -> None:
        self._context, self._definition, self._data = context, definition, data
        self._dead_letters = dead_letters
        self.tree = tree_of(context.spark, definition)
        self.engine = Engine(self.tree)
        self.store = TouchedStore(context.database, context.catalog, version.view, version.version)
        query = empty_query(context.spark, definition)
        key = definition.key or identifying_columns(definition, query)
        set_columns(context.database, version.key, key, arrow_schema(query.schema))
        self._sources = {source.name: source for source in definition.inputs}
        self._times = EventTimes(definition, self.tree.kept)
        self._builder = Builder(self.engine, context.database, definition.inputs, self._needed, self._times)
        self._current: BuildTables | None = None
        #: One commit at a time; a switch of builds waits for the micro-batch in progress.
        self._lock = threading.RLock()

    @property
    def label(self) -> str:
        return f"{self.store.view} v{self.store.version}"

    # -------------------------------------------------------------------------------------------------------- tables

    @cached_property
    def _needed(self) -> dict[str, list[str]]:
        """By the name of a source, the columns that the query reads."""
        found: dict[str, list[str]] = {name: [] for name in self._sources}
        for leaf in self.tree.leaves:
            known = found[leaf.source]
            known += [str(each.name()) for each in leaf.output if str(each.name()) not in known]
        return {
            name: table_columns(columns)[:-1]
            if self._sources[name].is_table
            else list(dict.fromkeys([*columns, *self._times.columns(name)]))
            for name, columns in found.items()
        }

    @cached_property
    def _decoders(self) -> dict[str, SourceDecoder]:
        return {
            name: SourceDecoder(
                self.engine.jobs.spark,
                source,
                [*self._needed[name], REMOVED] if source.is_table else self._needed[name],
            )
            for name, source in self._sources.items()
        }

    def tables(self, number: int) -> BuildTables:
        """The tables of a build."""
        prefix = build_name(self.store.view, self.store.version, number)
        timed = () if self.tree.root.time is None else (TIME,)
        names = (*(str(each.name()) for each in self.tree.root.columns), *timed)
        schema = shown_schema(names, self.engine.jobs.codec(self.tree.root).schema)
        tables = [name for name, source in self._sources.items() if source.is_table]
        return BuildTables(
            number,
            ViewTable(prefix, self.tree.shown, schema, self._context.database, self._definition.key),
            {
                each.number: StateTable(
                    f"{prefix}_s{each.number}", self.engine.jobs.codec(each), has_times=each.time is not None
                )
                for each in self.tree.inputs
            },
            {name: TableSource(f"{prefix}_t{at}", self._decoders[name].schema) for at, name in enumerate(tables)},
            ClockTable(f"{prefix}_c") if self._times.has_clocks else None,
        )

    def current(self) -> BuildTables | None:
        """The tables that readers see; None before the first build."""
        if self._current is None:
            last = self.store.last_build()
            self._current = None if last is None else self.tables(last.batch)
        return self._current

    def must_build(self) -> bool:
        """Whether there is no build that micro-batches can follow."""
        build = self.current()
        if build is None:
            return True
        with self._context.database.read() as connection:
            is_usable = build.are_there(connection)
        if not is_usable:
            logger.info("%s: its state has the form of an earlier release, so it is built again", self.label)
        return not is_usable

    # ------------------------------------------------------------------------------------------------- micro-batches

    def step(
        self, ranges: list[OffsetRange], records: pa.Table, before: Progress, begin: Begin | None = None
    ) -> StepResult:
        """Commits one micro-batch.

        :param ranges: where the records are; they begin at the progress.
        :param begin: begins the transaction; a transaction of its own by default.
        """
        with self._lock:
            build = self.current()
            assert build is not None, "micro-batches follow the first build"
            change, bad, late = self._computed(build, records)
            offsets = updated(before.offsets, by_topic({one.topic_partition: one.end for one in ranges}))
            count = sum(each.num_rows for each in bad.values())
            self._send(bad, offsets)
            after = replace(
                before,
                batch_id=before.batch_id + 1,
                offsets=offsets,
                events=before.events + records.num_rows,
                dead_letters=before.dead_letters + count,
                dropped_late=before.dropped_late + late,
            )
            self.store.commit_step(build, before, after, change, begin)
            return StepResult(after, records.num_rows, count, late)

    def _computed(self, build: BuildTables, records: pa.Table) -> _Computed:
        changes: dict[str, LeafChange] = {}
        tables: dict[str, Bag] = {}
        bad: dict[str, pa.Table] = {}
        clocks, late = self._clocks(build), 0
        for name, source in self._sources.items():
            its_topics = [each for each in pc.unique(records["topic"]).to_pylist() if source.reads(each)]
            if not its_topics:
                continue
            own = records.filter(pc.is_in(records["topic"], pa.array(its_topics, pa.string())))
            decoded = self._decoders[name].decode(own)
            bad[name] = decoded.bad
            if name in build.tables:
                with self._context.database.read() as connection:
                    made = build.tables[name].change(connection, decoded.rows)
                changes[name], tables[name] = made.rows, made.state
            else:
                on_time = self._times.on_time(name, decoded.rows, clocks)
                changes[name] = LeafChange(on_time.rows)
                late += on_time.late

        def read(target: Input, keys: frozenset[int]) -> Bag:
            # A transaction of its own, not open while Spark computes. Only this version writes its tables.
            with self._context.database.read() as connection:
                return build.states[target.number].read(connection, keys)

        kept_after = self._times.kept_after(clocks)
        found = self.engine.changes(changes, read, kept_after)
        return _Computed(BuildChange(found, tables, clocks, kept_after), bad, late)

    def _clocks(self, build: BuildTables) -> Clocks:
        if build.clocks is None:
            return {}
        with self._context.database.read() as connection:
            return build.clocks.read(connection)

    def _send(self, bad: Mapping[str, pa.Table], offsets: Offsets) -> None:
        """Sends all dead letters of a micro-batch, and only then stores that they were sent."""
        for name, rows in bad.items():
            self._dead_letters[name].send(rows)
        for sender in self._dead_letters.values():
            sender.sent_up_to(offsets)

    # -------------------------------------------------------------------------------------------------------- builds

    def build(self, read: ReadRecords, is_stopped: Callable[[], bool]) -> int:
        """Computes everything from the start, and switches to it.

        :return: the number of the build.
        :raises BuildStopped: if the build was stopped, and nothing has changed.
        """
        last, progress = self.store.last_build(), self.store.progress()
        target = progress.offsets if progress is not None else self._data.log_ends()
        build = self.tables((last.batch if last is not None else 0) + 1)
        self.store.drop_build(build.number)
        with self._context.database.begin() as connection:
            build.create(connection)
        raw = self._data.records(target)
        if is_stopped():
            raise BuildStopped
        counts = self._builder.load(build, raw, is_stopped)
        if build.clocks is not None:
            with self._context.database.begin() as connection:
                build.clocks.write(connection, counts.clocks)
        if progress is None:
            self._send_all(counts, target)
            first = Progress(self.store.view, self.store.version, 0, target, counts.events, sum(counts.bad.values()),
                             dropped_late=counts.late, topic_ids=self._data.topic_ids())  # fmt: skip
            self.store.commit_build(build, target, None, first)
        else:
            self._catch_up(build, target, read, is_stopped)
        self._current = build
        return build.number

    def _catch_up(
        self, build: BuildTables, offsets: Offsets, read: ReadRecords, is_stopped: Callable[[], bool]
    ) -> None:
        """Applies the records that micro-batches have committed since the cut to the new tables, and switches.

        Micro-batches go on meanwhile. On a busy machine they may commit records as fast as this method applies them.
        So when it comes no nearer to them, they wait until it has switched.
        """
        cut_at, nearest, is_nearer = offsets, sys.maxsize, True
        with ExitStack() as held:
            while (progress := self._switch(build, cut_at, offsets)) is not None:
                if is_stopped():
                    raise BuildStopped
                distance = sum(one.size for one in ranges_between(offsets, progress.offsets))
                was_nearer, is_nearer, nearest = is_nearer, distance < nearest, min(distance, nearest)
                if not (is_nearer or was_nearer):
                    held.enter_context(self._lock)
                ranges = ranges_between(offsets, progress.offsets, MAX_RECORDS)
                change = self._computed(build, read(ranges)).change
                with self._context.database.begin() as connection:
                    build.add(connection, change)
                offsets = updated(offsets, by_topic({one.topic_partition: one.end for one in ranges}))

    def _switch(self, build: BuildTables, cut_at: Offsets, offsets: Offsets) -> Progress | None:
        """Makes the build the current one if its tables have all records that micro-batches have committed.

        :return: the progress of the micro-batches if the tables do not have all.
        """
        with self._lock:
            progress = self.store.progress()
            assert progress is not None
            if not is_before(progress.offsets, offsets):
                return progress
            self.store.commit_build(build, cut_at, progress, progress)
            self._current = build
            return None

    def _send_all(self, counts: Counts, offsets: Offsets) -> None:
        """Sends the records of the first build that do not decode."""
        records = self._data.records(offsets, has_headers=True) if any(counts.bad.values()) else {}
        for name, count in counts.bad.items():
            sender = self._dead_letters[name]
            if count and sender.topic:
                logger.info("%s: sending %d records to %s", self.label, count, sender.topic)
                with packed(bad_rows(decode_source(self._sources[name], records[name]))) as tables:
                    for rows in tables:
                        sender.send(rows)
        for sender in self._dead_letters.values():
            sender.sent_up_to(offsets)
