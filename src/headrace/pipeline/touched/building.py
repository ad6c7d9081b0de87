"""Computes all states and rows of a view from the start, as ordinary Spark jobs over all records up to a cut.

One job per state, and one for the rows. They read the decoded rows of the sources, which Spark keeps meanwhile. The
results are loaded into the tables of a new build, which readers do not see before ``TouchedStore.commit_build``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import ERROR, bad_rows, good_rows
from headrace.pipeline.decoding.source_rows import (
    REMOVED,
    after_truncations,
    current_rows,
    decode_source,
    records_of,
)
from headrace.pipeline.spark.catalyst import JavaObject
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.operators import Leaf, whole_plan
from headrace.pipeline.touched.small_jobs import KEY, state_columns
from headrace.pipeline.touched.source_decoder import sent_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from headrace.pipeline.project.source_definition import SourceDefinition
    from headrace.pipeline.serving.database import Database
    from headrace.pipeline.touched.engine import Engine
    from headrace.pipeline.touched.row_codec import RowCodec
    from headrace.pipeline.touched.store import BuildTables
    from headrace.pipeline.touched.table_source import TableSource

#: Rows per transaction, so that other versions can commit in between.
_ROWS_PER_LOAD = 20_000


class BuildStopped(Exception):
    """The build was stopped, and nothing has changed."""


@dataclass
class Counts:
    """
    :ivar bad: by the name of a source, how many records do not decode.
    """

    events: int = 0
    bad: dict[str, int] = field(default_factory=dict)


class Builder:
    """
    :param needed: by the name of a source, the columns that the query needs.
    """

    def __init__(
        self, engine: Engine, database: Database, sources: Iterable[SourceDefinition], needed: Mapping[str, list[str]]
    ) -> None:
        self._engine, self._database = engine, database
        self._sources, self._needed = tuple(sources), needed

    def load(self, build: BuildTables, raw: DataFrame, is_stopped: Callable[[], bool]) -> Counts:
        """Fills the tables of a build.

        :param raw: all records up to the cut.
        :raises BuildStopped: if ``is_stopped`` returns True meanwhile.
        """
        tree, catalyst = self._engine.tree, self._engine.tree.catalyst
        with self._rows(raw) as (rows, seen):
            leaves = {leaf: self._leaf(leaf, rows[leaf.source]) for leaf in tree.leaves}
            jobs = [(tree.root, build.rows.add), *((each, build.states[each.number].add) for each in tree.inputs)]
            for target, add in jobs:
                frame = catalyst.frame(whole_plan(catalyst, target, leaves)).select(*state_columns(catalyst, target))
                codec = self._engine.jobs.codec(target)
                load(self._database, frame.sort(KEY) if target.keys else frame, codec, add, is_stopped)
            for name, table in build.tables.items():
                source = next(each for each in self._sources if each.name == name)
                kept = after_truncations(rows[name]) if source.decode.envelope else rows[name]
                self._load_table(table, kept, is_stopped)
            return Counts(
                sum(events for events, _ in map(observed, seen.values())),
                {name: observed(each)[1] for name, each in seen.items()},
            )

    def bad_records(self, source: SourceDefinition, raw: DataFrame) -> DataFrame:
        return bad_rows(decode_source(source, records_of(source, raw)))

    # ------------------------------------------------------------------------------------------- rows of the sources

    @contextmanager
    def _rows(self, raw: DataFrame) -> Iterator[tuple[dict[str, DataFrame], dict[str, Observation]]]:
        """By the name of a source, its good records; and the counts of all of them, once they were read."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        rows: dict[str, DataFrame] = {}
        seen: dict[str, Observation] = {}
        with ExitStack() as kept:
            for source in self._sources:
                decoded = decode_source(source, records_of(source, raw))
                seen[source.name] = Observation()
                counters = F.count("*").alias("events"), F.count(ERROR).alias("bad")
                good = good_rows(decoded.observe(seen[source.name], *counters))
                wanted = [*self._needed[source.name], *([REMOVED] if source.is_table else ())]
                frame = good.select(*(F.col(f"`{name}`") for name in dict.fromkeys(wanted))).persist()
                kept.callback(frame.unpersist)
                rows[source.name] = frame
            yield rows, seen

    def _leaf(self, leaf: Leaf, good: DataFrame) -> JavaObject:
        from pyspark.sql import functions as F  # noqa: N812

        source = next(each for each in self._sources if each.name == leaf.source)
        rows = current_rows(source, good)
        columns = [F.col(f"`{each.name()}`") for each in leaf.output]
        catalyst = self._engine.tree.catalyst
        return self._engine.jobs.renamed(rows.select(*columns), leaf.output, catalyst)

    def _load_table(self, table: TableSource, good: DataFrame, is_stopped: Callable[[], bool]) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        names = table.codec.schema.names
        whole = F.struct(*(each.alias(name) for each, name in zip(sent_columns(good, names), names, strict=True)))
        newest = good.groupBy("_key", "_topic", "_partition").agg(F.max_by(whole, "_offset").alias("row"))
        with packed(newest.select(*(F.col("row")[name].alias(name) for name in names)), table.codec.schema) as tables:
            for rows in _chunks(tables, is_stopped):
                with self._database.begin() as connection:
                    table.state.add(connection, table.kept(rows))


def load(
    database: Database, frame: DataFrame, codec: RowCodec, add: Callable[..., None], is_stopped: Callable[[], bool]
) -> None:
    """Computes a frame with the columns of a codec and ``KEY``, and adds its rows, some per transaction.

    :param add: adds a bag within a transaction.
    """
    with packed(frame) as tables:
        for rows in _chunks(tables, is_stopped):
            columns = rows.select(codec.schema.names).cast(codec.schema)
            weights = np.ones(rows.num_rows, dtype=np.int64)
            bag = Bag.of(codec, columns, rows.column(KEY).to_pylist(), weights)
            with database.begin() as connection:
                add(connection, bag)


def _chunks(tables: Iterable[pa.Table], is_stopped: Callable[[], bool]) -> Iterator[pa.Table]:
    for table in tables:
        for start in range(0, table.num_rows, _ROWS_PER_LOAD):
            if is_stopped():
                raise BuildStopped
            yield table.slice(start, _ROWS_PER_LOAD)


def observed(seen: Observation) -> tuple[int, int]:
    """The counts of an observation. If Spark knows that there are no records, it drops the counting too."""
    assert seen._jo is not None
    row: JavaObject = seen._jo.getRow()
    return (int(row.getLong(0)), int(row.getLong(1))) if row.length() else (0, 0)
