"""Remembers the times of earlier events, for ``[keep]`` (``keeping``) and for watermarks (``decoding.late_events``).

A *clock* is the largest time of some events so far, in microseconds:

    keep                          of all events of the sources whose column ``[keep]`` names
    ["orders", "topic", 0]        of the events of a partition, for the watermark of a source

The clocks are stored with the tables of a build, and change in the transaction of a micro-batch. A build computes them
from the start, with the same result.

A Lambda view counts late events, so it uses no watermark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text

from headrace.pipeline.decoding.late_events import LATE, PLACE, arrow_us, late_rows, spark_us, with_late
from headrace.pipeline.serving.tables import create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.project.definition import ViewDefinition
    from headrace.pipeline.project.source_definition import SourceDefinition, Watermark
    from headrace.pipeline.touched.keeping import Kept

Clocks = dict[str, int]
_KEEP = "keep"
#: Rows at or before this time are dropped: none.
NOTHING_DROPPED = -(2**62)


class OnTime(NamedTuple):
    """
    :ivar rows: the rows that are not late.
    :ivar late: how many rows are late.
    """

    rows: pa.Table
    late: int


class EventTimes:
    def __init__(self, definition: ViewDefinition, kept: Kept | None) -> None:
        self._kept = kept
        self._watermarks: dict[str, Watermark] = watermarks_of(definition)

    @property
    def has_clocks(self) -> bool:
        return self._kept is not None or bool(self._watermarks)

    def columns(self, source: str) -> list[str]:
        """The columns of a source's rows that clocks need."""
        kept = [self._kept.clocks[source]] if self._kept is not None and source in self._kept.clocks else []
        watermark = self._watermarks.get(source)
        return kept if watermark is None else [*kept, watermark.column, *PLACE]

    def kept_after(self, clocks: Mapping[str, int]) -> int:
        """Rows whose time is not after this one are dropped."""
        if self._kept is None or _KEEP not in clocks:
            return NOTHING_DROPPED
        return clocks[_KEEP] - self._kept.duration_us

    # ------------------------------------------------------------------------------------------- a micro-batch's rows

    def on_time(self, source: str, rows: pa.Table, clocks: Clocks) -> OnTime:
        """Leaves out late rows, and advances the clocks."""
        late = 0
        watermark = self._watermarks.get(source)
        if watermark is not None:
            known = {(topic, number): us for (name, topic, number), us in _places(clocks) if name == source}
            found = late_rows(rows, watermark, known)
            clocks.update({json.dumps([source, *place]): us for place, us in found.largest.items()})
            late = sum(found.is_late)
            rows = rows.filter(pa.array([not each for each in found.is_late], pa.bool_()))
        if self._kept is not None and source in self._kept.clocks:
            times = [each for each in arrow_us(rows.column(self._kept.clocks[source])) if each is not None]
            clocks[_KEEP] = max([*times, clocks.get(_KEEP, NOTHING_DROPPED)])
            if clocks[_KEEP] == NOTHING_DROPPED:
                del clocks[_KEEP]
        return OnTime(rows, late)

    # -------------------------------------------------------------------------------------------- all rows of a build

    def marked(self, source: SourceDefinition, good: DataFrame) -> DataFrame:
        """The good rows from the start of the log, with ``LATE`` if the source has a watermark."""
        watermark = self._watermarks.get(source.name)
        return good if watermark is None else with_late(good, watermark)

    def clocks(self, marked: Mapping[str, DataFrame]) -> Clocks:
        """
        :param marked: by the name of a source, its rows.
        """
        from pyspark.sql import functions as F  # noqa: N812

        found: Clocks = {}
        for name, watermark in self._watermarks.items():
            largest = F.max(spark_us(F.col(_quoted(watermark.column)))).alias("us")
            for row in marked[name].groupBy(*PLACE[:2]).agg(largest).where("us IS NOT NULL").collect():
                found[json.dumps([name, row[0], row[1]])] = row[2]
        for name, column in (self._kept.clocks if self._kept is not None else {}).items():
            rows = marked[name].where(~F.col(LATE)) if name in self._watermarks else marked[name]
            ((us,),) = rows.agg(F.max(spark_us(F.col(_quoted(column))))).collect()
            if us is not None:
                found[_KEEP] = max(us, found.get(_KEEP, us))
        return found


class ClockTable:
    """The clocks of a build."""

    def __init__(self, name: str) -> None:
        self.table = Table(name, MetaData(), Column("name", Text, primary_key=True), Column("us", BigInteger))

    def create(self, connection: Connection) -> None:
        create_table(connection, self.table)

    def read(self, connection: Connection) -> Clocks:
        return {str(name): int(us) for name, us in connection.execute(self.table.select())}

    def write(self, connection: Connection, clocks: Mapping[str, int]) -> None:
        """Replaces all clocks."""
        connection.execute(self.table.delete())
        if clocks:
            connection.execute(self.table.insert(), [{"name": name, "us": us} for name, us in clocks.items()])


def watermarks_of(definition: ViewDefinition) -> dict[str, Watermark]:
    """By the name of a source, the watermark that the view uses."""
    if definition.architecture == "lambda":
        return {}
    return {source.name: source.watermark for source in definition.inputs if source.watermark is not None}


def _places(clocks: Mapping[str, int]) -> list[tuple[tuple[str, str, int], int]]:
    return [(tuple(json.loads(name)), us) for name, us in clocks.items() if name != _KEEP]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
