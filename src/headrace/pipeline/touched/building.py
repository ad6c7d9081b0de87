"""Computes all states and rows of a view from the start, as ordinary Spark jobs over all records up to a cut.

One job per state, and one for the rows. They read the decoded rows of the sources, which Spark keeps meanwhile. The
results are loaded into the tables of a new build, which readers do not see before ``TouchedStore.commit_build``.

Spark's tasks do all work per row: states become blocks (``blocks``), and rows get their identities (``view_rows``). The
driver inserts what it gets, while Spark computes the next job (``fetching``). States whose rows are dropped by their
time have no blocks (``state_table``), so the driver adds their rows one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import good_rows, record_counters
from headrace.pipeline.decoding.late_events import LATE
from headrace.pipeline.decoding.source_rows import (
    REMOVED,
    after_truncations,
    decode_source,
    newest_of_keys,
    newest_of_partitions,
)
from headrace.pipeline.spark.catalyst import JavaObject
from headrace.pipeline.spark.counted import Counted
from headrace.pipeline.spark.packed_rows import Packed
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.blocks import KEY, BlockMaker, bits_for, in_buckets
from headrace.pipeline.touched.fetching import fetched_ahead
from headrace.pipeline.touched.operators import Input, Leaf, whole_plan
from headrace.pipeline.touched.small_jobs import state_columns, time_column
from headrace.pipeline.touched.source_decoder import sent_columns
from headrace.pipeline.touched.table_source import hashed_key
from headrace.pipeline.touched.view_rows import ViewRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from sqlalchemy import Connection

    from headrace.pipeline.project.source_definition import SourceDefinition
    from headrace.pipeline.serving.database import Database
    from headrace.pipeline.touched.engine import Engine
    from headrace.pipeline.touched.event_times import Clocks, EventTimes
    from headrace.pipeline.touched.state_table import StateTable
    from headrace.pipeline.touched.store import BuildTables
    from headrace.pipeline.touched.tables import ViewTable

#: Adds some rows or blocks within a transaction.
_Add = Callable[["Connection", pa.Table], None]


class BuildStopped(Exception):
    """The build was stopped, and nothing has changed."""


@dataclass
class Counts:
    """
    :ivar bad: by the name of a source, how many records do not decode.
    :ivar late: how many events their watermark leaves out.
    :ivar clocks: the largest times of the events (``event_times``).
    """

    events: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    late: int = 0
    clocks: Clocks = field(default_factory=dict)


class Builder:
    """
    :param needed: by the name of a source, the columns that the query needs.
    """

    def __init__(
        self,
        engine: Engine,
        database: Database,
        sources: Iterable[SourceDefinition],
        needed: Mapping[str, list[str]],
        times: EventTimes,
    ) -> None:
        self._engine, self._database = engine, database
        self._sources, self._needed, self._times = tuple(sources), needed, times

    def load(self, build: BuildTables, raw: Mapping[str, DataFrame], is_stopped: Callable[[], bool]) -> Counts:
        """Fills the tables of a build.

        :param raw: by the name of a source, its records up to the cut.
        :raises BuildStopped: if ``is_stopped`` returns True meanwhile.
        """
        with self._rows(raw) as (marked, counted):
            # Reads all records, and says how large the states will be.
            row_counts = {name: frame.count() for name, frame in marked.items()}
            seen = {name: each.counts() for name, each in counted.items()}
            catalyst = self._engine.tree.catalyst
            cached = {name: catalyst.cached(frame) for name, frame in marked.items()}
            clocks = self._times.clocks(cached)
            rows = {name: on_time(frame) for name, frame in cached.items()}
            jobs = self._jobs(build, rows, row_counts, self._times.kept_after(clocks))
            _insert(self._database, catalyst.spark, jobs, is_stopped)
            return Counts(
                sum(events for events, _ in seen.values()),
                {name: bad for name, (_, bad) in seen.items()},
                sum(each.where(LATE).count() for each in cached.values() if LATE in each.columns),
                clocks,
            )

    def _jobs(
        self, build: BuildTables, rows: Mapping[str, DataFrame], row_counts: Mapping[str, int], kept_after: int
    ) -> list[tuple[Packed | ViewRows, _Add]]:
        """
        :param row_counts: about how many rows each source has.
        :param kept_after: rows whose time is not after this one are left out, if they have times.
        """
        tree, catalyst = self._engine.tree, self._engine.tree.catalyst
        leaves = {leaf: self._leaf(leaf, rows[leaf.source]) for leaf in tree.leaves}
        total = sum(row_counts.values())

        def frame_of(target: Input) -> DataFrame:
            plan = whole_plan(catalyst, target, leaves)
            frame = catalyst.frame(plan).select(*state_columns(catalyst, target))
            return _added_up(target, _kept(target, frame, kept_after))

        shown = ViewRows(frame_of(tree.root), self._engine.jobs.codec(tree.root).schema, total)
        jobs: list[tuple[Packed | ViewRows, _Add]] = [(shown, build.rows.load)]
        for target in tree.inputs:
            state, frame = build.states[target.number], frame_of(target)
            if state.has_times:
                jobs.append(_row_job(state, frame))
            else:
                jobs.append(_state_job(state, in_buckets(frame, total, has_key=bool(target.keys)), total))
        for name, table in build.tables.items():
            columns = [
                each.alias(f"c{at}") for at, each in enumerate(sent_columns(rows[name], table.codec.schema.names))
            ]
            frame = rows[name].select(*columns, hashed_key().alias(KEY))
            jobs.append(_state_job(table.state, in_buckets(frame, row_counts[name]), row_counts[name]))
        return jobs

    # ------------------------------------------------------------------------------------------- rows of the sources

    @contextmanager
    def _rows(self, raw: Mapping[str, DataFrame]) -> Iterator[tuple[dict[str, DataFrame], dict[str, Counted]]]:
        """By the name of a source, its good records, marked if they are late; and what counts all of them.

        Of a table only the newest records of each key and partition.
        """
        from pyspark.sql import functions as F  # noqa: N812

        rows: dict[str, DataFrame] = {}
        counted: dict[str, Counted] = {}
        with ExitStack() as kept:

            def keep(frame: DataFrame) -> DataFrame:
                kept.callback(frame.unpersist)
                return frame.persist()

            for source in self._sources:
                counted[source.name] = Counted(decode_source(source, raw[source.name]), *record_counters())
                good = good_rows(counted[source.name].frame)
                wanted = [*self._needed[source.name], *([REMOVED] if source.is_table else ())]
                frame = good.select(*(F.col(f"`{name}`") for name in dict.fromkeys(wanted)))
                if source.is_table:
                    since = after_truncations(keep(frame)) if source.decode.envelope else frame
                    frame = newest_of_partitions(since)
                rows[source.name] = keep(self._times.marked(source, frame))
            yield rows, counted

    def _leaf(self, leaf: Leaf, kept: DataFrame) -> JavaObject:
        from pyspark.sql import functions as F  # noqa: N812

        source = next(each for each in self._sources if each.name == leaf.source)
        rows = newest_of_keys(kept) if source.is_table else kept
        columns = [F.col(f"`{each.name()}`") for each in leaf.output]
        catalyst = self._engine.tree.catalyst
        return self._engine.jobs.renamed(rows.select(*columns), leaf.output, catalyst)


def on_time(marked: DataFrame) -> DataFrame:
    """The rows that are not late, of rows that may be marked (``EventTimes.marked``)."""
    return marked.where(f"NOT {LATE}").drop(LATE) if LATE in marked.columns else marked


def load_rows(
    database: Database, spark: SparkSession, rows: ViewRows, table: ViewTable, is_stopped: Callable[[], bool]
) -> None:
    """Computes the rows of a view, and loads them into a table that is empty.

    :raises BuildStopped: if ``is_stopped`` returns True meanwhile.
    """
    _insert(database, spark, [(rows, table.load)], is_stopped)


def _insert(
    database: Database,
    spark: SparkSession,
    jobs: Sequence[tuple[Packed | ViewRows, _Add]],
    is_stopped: Callable[[], bool],
) -> None:
    """Inserts what the jobs compute, some per transaction, so that other versions can commit in between."""
    with closing(fetched_ahead(spark, jobs)) as found:
        for table, add in found:
            if is_stopped():
                raise BuildStopped
            with database.begin() as connection:
                add(connection, table)


def _kept(target: Input, rows: DataFrame, kept_after: int) -> DataFrame:
    """The rows of an input that ``[keep]`` keeps."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows if target.time is None else rows.where(F.col(time_column(target)) > F.lit(kept_after))


def _added_up(target: Input, rows: DataFrame) -> DataFrame:
    """The rows of an input as they are kept: one row per group if sums are enough."""
    from pyspark.sql import functions as F  # noqa: N812

    if target.groups is None:
        return rows
    added = [f"c{at}" for at in range(target.groups, len(target.columns))]
    others = [name for name in rows.columns if name not in added]
    return rows.groupBy(*others).agg(*(F.sum(name).alias(name) for name in added)).select(*rows.columns)


def _state_job(state: StateTable, frame: DataFrame, row_count: int) -> tuple[Packed, _Add]:
    bits, columns = bits_for(row_count), state.codec.schema
    return Packed(frame, BlockMaker(columns, bits)), lambda connection, blocks: state.blocks.add(
        connection, blocks, bits
    )


def _row_job(state: StateTable, frame: DataFrame) -> tuple[Packed, _Add]:
    """For a state without blocks: adds its rows one by one, in the order in which the table stores them."""

    def add(connection: Connection, rows: pa.Table) -> None:
        columns = rows.select(state.codec.schema.names).cast(state.codec.schema)
        weights = np.ones(rows.num_rows, dtype=np.int64)
        state.add(connection, Bag.of(state.codec, columns, rows.column(KEY).to_pylist(), weights))

    return Packed(frame.sort(KEY)), add
