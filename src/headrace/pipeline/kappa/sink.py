"""Where a Kappa version's micro-batches go: each is one transaction of the serving database, and counts once.

The transaction has the rows, the offsets up to which they count and the counters. Spark plans a batch, computes it,
hands it over, and notes that it is done:

    killed before the commit     nothing of the batch is there; Spark runs it again, over the same offsets
    killed after the commit      Spark runs it again, and it is passed over: its number is not larger than the last one

Rows replace those with the same key, and may be hidden (``kappa_hiding``). In mode ``complete`` they replace all
others, and keep the order that the query gave them in a column that the SQL view sorts by. Batches follow each other
without a gap, which is checked: a gap would be a hole in the data.

A batch that is passed over is computed nevertheless: Spark wants to see its state written.

Records that do not decode and rows behind the watermark are counted while the batch runs. Only if there are some is a
second look taken (``second_look``), before the commit; how often dead letters are sent is said in ``dead_letters``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from logging import getLogger
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, Table

from headrace.pipeline.kappa.batch_counts import BatchCounts, counts_of
from headrace.pipeline.kappa.batch_reread import SecondLook
from headrace.pipeline.kappa.checkpoint import Checkpoint, WrongCheckpoint
from headrace.pipeline.kappa.hidden_groups import HIDDEN
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_keys import key_columns, output_mode
from headrace.pipeline.serving.catalog import Offsets, Progress, Version
from headrace.pipeline.serving.tables import data_table, quoted
from headrace.pipeline.version.context import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = getLogger(__name__)
_ORDER = "_order_0"
_ROWS_A_PORTION = 250_000


@dataclass(frozen=True)
class Target:
    """
    :param schema: of the rows as Spark gives them.
    :param is_complete: each batch has all rows.
    """

    table: Table
    schema: pa.Schema
    mode: str

    @classmethod
    def of(cls, definition: ViewDefinition, table_name: str, query: DataFrame) -> Target:
        """
        :raises ViewError: if the query's rows cannot be told apart.
        """
        mode, schema = output_mode(query), arrow_schema(query.schema)
        columns = schema.append(pa.field(_ORDER, pa.int64())) if mode == "complete" else schema
        return cls(data_table(table_name, columns, key_columns(definition, query)), schema, mode)

    @property
    def is_complete(self) -> bool:
        return self.mode == "complete"

    @property
    def select_sql(self) -> str:
        names = ", ".join(quoted(name) for name in self.schema.names if name != HIDDEN)
        which = f" WHERE NOT {quoted(HIDDEN)}" if HIDDEN in self.schema.names else ""
        order = f" ORDER BY {quoted(_ORDER)}" if self.is_complete else ""
        return f"SELECT {names} FROM {quoted(self.table.name)}{which}{order}"

    def rows(self, frame: DataFrame) -> pa.Table:
        """Computes the frame."""
        rows = frame.toArrow()
        rows = rows if rows.schema.equals(self.schema) else rows.cast(self.schema)
        if self.is_complete:
            rows = rows.append_column(_ORDER, pa.array(range(rows.num_rows), pa.int64()))
        return rows


class KappaSink:
    """Called by Spark, on a thread of its own, for one batch after the other.

    :param topic_ids: asks the log for the ids of topics.
    :param starts: where the version began; only for a second look at the first batch.
    :param on_commit: is told how far it is.
    """

    def __init__(
        self,
        around: Surroundings,
        version: Version,
        definition: ViewDefinition,
        target: Target,
        checkpoint: Checkpoint,
        second_look: SecondLook,
        *,
        starts: Offsets,
        topic_ids: Callable[[], dict[str, str]],
        on_commit: Callable[[Offsets], None],
    ) -> None:
        self.around, self._version, self._definition, self._target = around, version, definition, target
        self._checkpoint, self._starts = checkpoint, starts
        self._topic_ids, self._on_commit = topic_ids, on_commit
        self._second_look = second_look
        self._query: StreamingQuery | None = None
        self._has_query = threading.Event()
        #: What stopped the stream, if it was something here: Spark only keeps its text.
        self.error: BaseException | None = None

    def belongs_to(self, query: StreamingQuery) -> None:
        self._query = query
        self._has_query.set()

    def close(self) -> None:
        self._has_query.set()
        self._second_look.close()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._land(frame, batch_id)
        except BaseException as error:
            self.error = error
            raise

    # ------------------------------------------------------------------------------------------------------ a batch

    def _land(self, frame: DataFrame, batch_id: int) -> None:
        began_ms = self.around.clock.monotonic_ms()
        with self.around.database.read() as reader:
            before = self._progress(reader)
        if before is not None and batch_id <= before.batch_id:
            logger.info("%s: batch %d was committed before the restart and is passed over", self._version.who, batch_id)
            frame.write.format("noop").mode("overwrite").save()
            return
        ends = self._ends(batch_id)
        rows = self._target.rows(frame)
        counts = self._looked_at(self._counts(), self._starts if before is None else before.offsets, ends)
        after = self._after(before, batch_id, ends, counts)
        with self.around.database.begin() as connection:
            self._check_follows(self._progress(connection), before, batch_id)
            self._write(connection, rows, batch_id)
            self.around.catalog.set_progress(connection, after)
        self._on_commit(ends)
        self.around.metrics.micro_batch(
            self._version.view,
            self._version.version,
            seconds=(self.around.clock.monotonic_ms() - began_ms) / 1000,
            events=counts.records,
            dead_letters=counts.bad,
            dropped_late=counts.dropped,
        )

    def _progress(self, connection: Connection) -> Progress | None:
        return self.around.catalog.progress(connection, self._version.view, self._version.version)

    def _check_follows(self, found: Progress | None, before: Progress | None, batch_id: int) -> None:
        expected = 0 if found is None else found.batch_id + 1
        if found != before or batch_id != expected:
            raise WrongCheckpoint(
                f"batch {batch_id} of {self._version.who} does not follow what the serving database has: "
                f"{expected} is the next one; another process writes it, or {self._checkpoint.path} is not its own"
            )

    def _write(self, connection: Connection, rows: pa.Table, batch_id: int) -> None:
        """A portion at a time: rows take many times their size in Arrow when they are Python's for a moment."""
        if self._target.is_complete:
            connection.execute(self._target.table.delete())
        for start in range(0, rows.num_rows, _ROWS_A_PORTION):
            portion = rows.slice(start, _ROWS_A_PORTION)
            self.around.database.upsert(connection, self._target.table, portion, batch_id=batch_id)

    def _ends(self, batch_id: int) -> Offsets:
        ends = self._checkpoint.offsets(batch_id)
        assert ends is not None, f"Spark runs batch {batch_id} of {self._version.who} without having planned it"
        return ends

    def _counts(self) -> BatchCounts:
        self._has_query.wait()  # the first batch may be faster than what started the query
        assert self._query is not None, "the stream was closed before it began"
        return counts_of(self._query)

    def _looked_at(self, counts: BatchCounts, starts: Offsets, ends: Offsets) -> BatchCounts:
        if counts.bad:
            self._second_look.send_bad_records(starts, ends, counts.bad)
        if not counts.dropped:
            return counts
        late = self._second_look.late_events(starts, ends, counts.watermark_ms)
        return counts if late is None else counts._replace(dropped=late)

    def _after(self, before: Progress | None, batch_id: int, ends: Offsets, counts: BatchCounts) -> Progress:
        last = before or Progress(self._version.view, self._version.version, -1, {})
        ids = last.topic_ids if last.topic_ids.keys() >= ends.keys() else self._topic_ids() | last.topic_ids
        return replace(
            last,
            batch_id=batch_id,
            offsets=ends,
            events=last.events + counts.records,
            dead_letters=last.dead_letters + counts.bad,
            dropped_late=last.dropped_late + counts.dropped,
            topic_ids={topic: ids[topic] for topic in sorted(ends) if topic in ids},
        )
