"""Computes the whole answer of a query at a cut of the log, and swaps it for the last one.

The answer is loaded into a table beside the one that readers see. One transaction then switches, and sets the progress
to the cut. So readers see the query over an exact prefix of the log, which moves with each build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.events import ERROR, bad_rows, good_rows
from headrace.pipeline.decoding.source_rows import current_rows, decode_source, records_of
from headrace.pipeline.progress.offsets import is_same
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.view_query import apply_query
from headrace.pipeline.serving.catalog import Offsets, Progress
from headrace.pipeline.spark.catalyst import Catalyst
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.touched.building import BuildStopped, load_rows, observed
from headrace.pipeline.touched.operators import Constant, Input
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.small_jobs import state_columns, struct_of
from headrace.pipeline.touched.store import BuildTables, TouchedStore, shown_schema
from headrace.pipeline.touched.tables import ViewTable, build_name
from headrace.pipeline.touched.top import Shown, Top
from headrace.pipeline.touched.view_rows import ViewRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.serving.catalog import Version
    from headrace.pipeline.touched.master_data import MasterData
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")


class WholeAnswer:
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
        self.store = TouchedStore(context.database, context.catalog, version.view, version.version)

    @cached_property
    def _catalyst(self) -> Catalyst:
        return Catalyst(self._context.spark)

    def build(self, is_stopped: Callable[[], bool]) -> int:
        """Computes and swaps the answer at the end of the log. If the log has nothing new, the last answer stays.

        :return: the number of the build that readers see.
        :raises BuildStopped: if the build was stopped, and nothing has changed.
        """
        last, before = self.store.last_build(), self.store.progress()
        cut = self._data.log_ends()
        if last is not None and before is not None and is_same(before.offsets, cut):
            return last.batch
        raw = self._data.records(cut)
        if is_stopped():
            raise BuildStopped
        rows, seen = self._rows(raw)
        own = None if self._definition.sources else rows[self._definition.own_source.name]
        query = apply_query(self._context.spark, self._definition, own, rows if own is None else None)
        records = sum(end for ends in cut.values() for end in ends.values())
        build = self._loaded((last.batch if last is not None else 0) + 1, query, records, is_stopped)
        counts = {name: observed(each) for name, each in seen.items()}
        self._send(raw, {name: bad for name, (_, bad) in counts.items()}, cut)
        after = Progress(
            self.store.view,
            self.store.version,
            0 if before is None else before.batch_id + 1,
            cut,
            sum(events for events, _ in counts.values()),
            sum(bad for _, bad in counts.values()),
            topic_ids=self._data.topic_ids(),
        )
        self.store.commit_build(build, cut, before, after)
        return build.number

    def _rows(self, raw: DataFrame) -> tuple[dict[str, DataFrame], dict[str, Observation]]:
        """By the name of a source, its rows, and the counts of its records once they were read."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        rows: dict[str, DataFrame] = {}
        seen: dict[str, Observation] = {}
        for source in self._definition.inputs:
            seen[source.name] = Observation()
            counters = F.count("*").alias("events"), F.count(ERROR).alias("bad")
            decoded = decode_source(source, records_of(source, raw)).observe(seen[source.name], *counters)
            rows[source.name] = current_rows(source, good_rows(decoded))
        return rows, seen

    def _loaded(self, number: int, query: DataFrame, row_count: int, is_stopped: Callable[[], bool]) -> BuildTables:
        """
        :param row_count: about how many rows there are, at most.
        """
        catalyst = self._catalyst
        plan = catalyst.analyzed(query)
        top = Top.of(catalyst, plan)
        target = Input(Constant(top.columns, top.plan), top.columns)
        codec = RowCodec(arrow_schema(struct_of(top.columns)))
        names = tuple(str(each.name()) for each in top.columns)
        shown = Shown(tuple(query.columns), top.order, top.limit, top.offset)
        name = build_name(self.store.view, self.store.version, number)
        schema = shown_schema(names, codec.schema)
        table = ViewTable(name, shown, schema, self._context.database, self._definition.key)
        build = BuildTables(number, table, {}, {})
        self.store.drop_build(number)
        with self._context.database.begin() as connection:
            build.create(connection)
        frame = catalyst.frame(top.plan).select(*state_columns(catalyst, target))
        made = ViewRows(frame, codec.schema, row_count)
        load_rows(self._context.database, made, table, is_stopped)
        return build

    def _send(self, raw: DataFrame, bad: Mapping[str, int], cut: Offsets) -> None:
        """Sends the records that do not decode. Those that an earlier build has sent are left out."""
        for source in self._definition.inputs:
            sender = self._dead_letters[source.name]
            if bad[source.name] and sender.topic:
                with packed(bad_rows(decode_source(source, records_of(source, raw)))) as tables:
                    for rows in tables:
                        sender.send(rows)
        for sender in self._dead_letters.values():
            sender.sent_up_to(cut)
