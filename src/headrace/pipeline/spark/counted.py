"""Counts the rows of a frame while Spark computes a plan that reads all rows of the frame.

Spark drops the parts of a plan whose rows cannot matter, for example what follows a shuffle that turns out to be
empty. No row is counted then, and the frame has to be computed for its counts alone. A plan that may stop after some
rows, such as a join or a LIMIT, cannot count at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.pipeline.spark.catalyst import JavaObject


class Counted:
    """
    :ivar frame: the given frame, whose rows are counted when they are computed.
    """

    def __init__(self, frame: DataFrame, *counters: Column) -> None:
        from pyspark.sql import Observation

        self._seen, self._uncounted, self._counters = Observation(), frame, counters
        self.frame = frame.observe(self._seen, *counters)

    def counts(self) -> tuple[int, ...]:
        """The values of the counters. Waits until a plan that contains the frame has been computed."""
        assert self._seen._jo is not None, "the constructor observes"
        row: JavaObject = self._seen._jo.getRow()
        found = tuple(int(row.getLong(at)) for at in range(row.length()))
        return found if any(found) else count_now(self._uncounted, *self._counters)


def count_now(frame: DataFrame, *counters: Column) -> tuple[int, ...]:
    """Computes the frame for its counts alone."""
    found = frame.agg(*counters).first()
    assert found is not None, "an aggregate without groups has one row"
    return tuple(found)
