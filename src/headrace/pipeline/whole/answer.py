"""Computes the whole answer of a query at a cut of the log, and swaps it for the last one.

The answer is loaded into a table beside the one that readers see. One transaction then switches, and sets the progress
to the cut. So readers see the query over an exact prefix of the log, which moves with each build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.decoding.events import bad_rows, good_rows, record_counters
from headrace.pipeline.decoding.late_events import LATE, spark_us
from headrace.pipeline.decoding.source_rows import current_rows, decode_source
from headrace.pipeline.progress.offsets import is_same
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_keys import identifying_columns
from headrace.pipeline.query.validation import empty_query
from headrace.pipeline.query.view_query import apply_query
from headrace.pipeline.serving.catalog import Offsets, Progress
from headrace.pipeline.serving.catalog_tables.version_columns import set_columns
from headrace.pipeline.spark.catalyst import Catalyst
from headrace.pipeline.spark.counted import count_now
from headrace.pipeline.spark.packed_rows import packed
from headrace.pipeline.touched.building import BuildStopped, load_rows, on_time
from headrace.pipeline.touched.event_times import EventTimes
from headrace.pipeline.touched.keeping import NotKept, keep_by_name
from headrace.pipeline.touched.maintainer import tree_of
from headrace.pipeline.touched.operators import Constant, Input
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.small_jobs import state_columns, struct_of
from headrace.pipeline.touched.store import BuildTables, TouchedStore, shown_schema
from headrace.pipeline.touched.tables import ViewTable, build_name
from headrace.pipeline.touched.top import NotTouchable, Shown, Top
from headrace.pipeline.touched.view_rows import ViewRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.decoding.dead_letters import DeadLetters
    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.serving.catalog import Version
    from headrace.pipeline.touched.keeping import Kept
    from headrace.pipeline.touched.master_data import MasterData
    from headrace.pipeline.version.context import RunContext

logger = getLogger("headrace.views")


class _Rows(NamedTuple):
    """By the name of a source:

    :ivar rows: the rows that the query reads.
    :ivar marked: the good rows of events, marked if they are late.
    :ivar decoded: all records; the bad ones have an error.
    """

    rows: dict[str, DataFrame]
    marked: dict[str, DataFrame]
    decoded: dict[str, DataFrame]

    def records(self) -> dict[str, tuple[int, ...]]:
        """The numbers of records and of bad records. A query need not read all records, so it cannot count them."""
        return {name: count_now(frame, *record_counters()) for name, frame in self.decoded.items()}

    def late_events(self) -> int:
        return sum(frame.where(LATE).count() for frame in self.marked.values() if LATE in frame.columns)


def kept_of(spark: SparkSession, definition: ViewDefinition) -> Kept | None:
    """Returns the meaning of ``[keep]`` for a view; None if the view has no [keep].

    :raises NotKept: if it has no exact meaning.
    """
    if definition.keep is None:
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        return tree_of(spark, definition).kept
    except NotKept:
        raise
    except (NotTouchable, Py4JError):  # a query that cannot be cut
        return keep_by_name(empty_query(spark, definition), definition)


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
        found = self._rows(raw)
        rows = found.rows
        own = None if self._definition.sources else rows[self._definition.own_source.name]
        query = apply_query(self._context.spark, self._definition, own, rows if own is None else None)
        number = (last.batch if last is not None else 0) + 1
        kept_after = self._times.kept_after(self._times.clocks(found.marked))
        records = sum(end for ends in cut.values() for end in ends.values())
        build = self._loaded(number, query, kept_after, records, is_stopped)
        counts = found.records()
        self._send({name: bad for name, (_, bad) in counts.items()}, cut)
        after = Progress(
            self.store.view,
            self.store.version,
            0 if before is None else before.batch_id + 1,
            cut,
            sum(events for events, _ in counts.values()),
            sum(bad for _, bad in counts.values()),
            dropped_late=found.late_events(),
            topic_ids=self._data.topic_ids(),
        )
        self.store.commit_build(build, cut, before, after)
        return build.number

    @cached_property
    def _kept(self) -> Kept | None:
        return kept_of(self._context.spark, self._definition)

    @cached_property
    def _times(self) -> EventTimes:
        return EventTimes(self._definition, self._kept)

    def _rows(self, raw: Mapping[str, DataFrame]) -> _Rows:
        found = _Rows({}, {}, {})
        for source in self._definition.inputs:
            decoded = found.decoded[source.name] = decode_source(source, raw[source.name])
            marked = self._times.marked(source, good_rows(decoded))
            found.marked[source.name] = marked
            found.rows[source.name] = current_rows(source, on_time(marked))
        return found

    def _loaded(
        self, number: int, query: DataFrame, kept_after: int, row_count: int, is_stopped: Callable[[], bool]
    ) -> BuildTables:
        """
        :param kept_after: rows whose time is not after this one are left out, if the view has [keep].
        :param row_count: about how many rows there are, at most.
        """
        catalyst = self._catalyst
        plan = catalyst.analyzed(query)
        key = identifying_columns(self._definition, query)
        version = (self.store.view, self.store.version)
        set_columns(self._context.database, version, key, arrow_schema(query.schema))
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
        if self._kept is not None:
            from pyspark.sql import functions as F  # noqa: N812

            frame = frame.where(spark_us(F.col(f"c{query.columns.index(self._kept.column)}")) > kept_after)
        made = ViewRows(frame, codec.schema, row_count)
        load_rows(self._context.database, self._context.spark, made, table, is_stopped)
        return build

    def _send(self, bad: Mapping[str, int], cut: Offsets) -> None:
        """Sends the records that do not decode. Those that an earlier build has sent are left out."""
        records = self._data.records(cut, has_headers=True) if any(bad.values()) else {}
        for source in self._definition.inputs:
            sender = self._dead_letters[source.name]
            if bad[source.name] and sender.topic:
                with packed(bad_rows(decode_source(source, records[source.name]))) as tables:
                    for rows in tables:
                        sender.send(rows)
        for sender in self._dead_letters.values():
            sender.sent_up_to(cut)
