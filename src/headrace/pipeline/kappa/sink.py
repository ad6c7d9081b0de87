"""Writes the micro-batches of a Kappa version to the serving database: each is one transaction and counts once.

The transaction contains the rows, the offsets up to which they count, and the counters. Spark plans a batch, computes
it, hands it over, and writes to the checkpoint that it is done:

    killed before the commit     nothing of the batch is stored; Spark runs it again over the same offsets
    killed after the commit      Spark runs it again; it is skipped, because its number is not larger than the last one

Rows replace the rows with the same key, and may be hidden (``hidden_groups``). In mode ``complete`` a batch replaces
all rows; a column keeps the order of the query, and the SQL view sorts by it. ``batch_rows`` computes and writes them.
Batch numbers must follow each other without a gap: a gap would mean lost data, so it is checked.

A batch that is skipped is still computed: Spark has to write the state of the query.

Records that do not decode and rows behind the watermark are counted while the batch runs. Only if there are some, the
records of the batch are read again before the commit (``batch_reread``). ``decoding.dead_letters`` says how often a
dead letter is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from headrace.client.errors import HeadraceError
from headrace.pipeline.kappa.batch_counts import BatchCounts, counts_of
from headrace.pipeline.kappa.batch_reread import BatchReread
from headrace.pipeline.kappa.batch_rows import BatchRows
from headrace.pipeline.kappa.checkpoint import Checkpoint, WrongCheckpoint
from headrace.pipeline.progress.offsets import offsets_between
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.serving.catalog import Offsets, Progress, Version
from headrace.pipeline.version.context import RunContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = getLogger(__name__)


class KappaSink:
    """Spark calls it on its own thread, for one batch after the other.

    :param topic_ids: asks the log for the ids of topics.
    :param starts: where the version began; used only to read the first batch again.
    :param on_commit: called after each commit with the offsets up to which the data counts.
    """

    def __init__(
        self,
        context: RunContext,
        version: Version,
        definition: ViewDefinition,
        rows: BatchRows,
        checkpoint: Checkpoint,
        reread: BatchReread,
        *,
        starts: Offsets,
        topic_ids: Callable[[], dict[str, str]],
        on_commit: Callable[[Offsets], None],
    ) -> None:
        self.context, self._version, self._definition, self._rows = context, version, definition, rows
        self._checkpoint, self._starts = checkpoint, starts
        self._topic_ids, self._on_commit = topic_ids, on_commit
        self._reread = reread
        self._query: StreamingQuery | None = None
        self._has_query = threading.Event()
        #: The exception that stopped the stream, if it was raised here: Spark keeps only its text.
        self.error: BaseException | None = None

    def attach(self, query: StreamingQuery) -> None:
        self._query = query
        self._has_query.set()

    def close(self) -> None:
        self._has_query.set()
        self._reread.close()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._commit_batch(frame, batch_id)
        except Exception as error:
            self.error = error
            raise
        except BaseException as error:
            # py4j tells Java of an Exception only. Without an answer the stream would wait for ever.
            self.error = error
            raise HeadraceError(f"batch {batch_id} of {self._version.label} ended with {error!r}") from error

    # ------------------------------------------------------------------------------------------------------ a batch

    def _commit_batch(self, frame: DataFrame, batch_id: int) -> None:
        began_ms = self.context.clock.monotonic_ms()
        with self.context.database.read() as reader:
            before = self._progress(reader)
        if before is not None and batch_id <= before.batch_id:
            logger.info("%s: skipping batch %d, which was committed before the restart", self._version.label, batch_id)
            frame.write.format("noop").mode("overwrite").save()
            return
        starts, ends = self._starts if before is None else before.offsets, self._ends(batch_id)
        with self._rows.computed(frame, batch_id, offsets_between(starts, ends)) as write:
            counts = self._with_reread(self._counts(), starts, ends)
            after = self._after(before, batch_id, ends, counts)
            with self.context.database.begin() as connection:
                self._check_follows(self._progress(connection), before, batch_id)
                write(connection)
                self.context.catalog.set_progress(connection, after)
        self._on_commit(ends)
        self.context.metrics.micro_batch(
            self._version.view,
            self._version.version,
            seconds=(self.context.clock.monotonic_ms() - began_ms) / 1000,
            events=counts.records,
            dead_letters=counts.bad,
            dropped_late=counts.dropped,
        )

    def _progress(self, connection: Connection) -> Progress | None:
        return self.context.catalog.progress(connection, self._version.view, self._version.version)

    def _check_follows(self, found: Progress | None, before: Progress | None, batch_id: int) -> None:
        expected = 0 if found is None else found.batch_id + 1
        if found != before or batch_id != expected:
            raise WrongCheckpoint(
                f"batch {batch_id} of {self._version.label} does not follow the serving database, whose next batch is "
                f"{expected}: another process writes this version, or the checkpoint {self._checkpoint.path} belongs "
                "to other data; run only one 'headrace views run' per project"
            )

    def _ends(self, batch_id: int) -> Offsets:
        ends = self._checkpoint.offsets(batch_id)
        assert ends is not None, (
            f"Spark runs batch {batch_id} of {self._version.label}, but the checkpoint does not have it"
        )
        return ends

    def _counts(self) -> BatchCounts:
        self._has_query.wait()  # the first batch may come before ``start`` has returned the query
        assert self._query is not None, "the stream was closed before its first batch"
        return counts_of(self._query)

    def _with_reread(self, counts: BatchCounts, starts: Offsets, ends: Offsets) -> BatchCounts:
        if counts.bad:
            self._reread.send_bad_records(starts, ends, counts.bad)
        if not counts.dropped:
            return counts
        late = self._reread.late_events(starts, ends, counts.watermark_ms)
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
