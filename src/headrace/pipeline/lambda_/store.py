"""Stores the results of a Lambda view: commits micro-batches and batches, each in one transaction.

At every commit this holds: **the SQL view is the query over exactly the offsets in headrace_progress.** It follows from

    batch table      = the query over everything up to the cut of the batch
    rows of a span   = partial results over that span; the spans follow the cut without a gap, up to the progress
    overlay          = batch and spans combined, for all keys that occur in any span
    the SQL view     = the overlay, and the rows of the batch whose keys are not in the overlay     (``tables``)

Each operation keeps this true:

======================  ============================================================================================
``commit_micro_batch``  adds a span with its rows; updates the overlay's rows for its keys; sets the progress
``commit_batch``        removes the spans up to the cut with their rows; computes the overlay again from the other
                        spans; makes the SQL view read the new batch table; adds the batch to the catalog. The progress
                        stays
``merge_spans``         merges adjacent spans; readers see no change
======================  ============================================================================================

**Why it is fast.** The overlay has its own partial columns. So a micro-batch reads and writes as many rows as it has
keys, whatever the size of the batch and the number of spans. The rows are computed before the transaction begins, so
the database's write lock is not held while Arrow or Spark compute. The transaction then checks that the progress and
the batch are still those that the rows were computed from. Within a process the three operations exclude each other. If
another process has written, ``ProgressMoved`` is raised and nothing is written.

**What a crash leaves.** Between ``BatchTables.load`` and ``commit_batch``: a batch table that is not used; it is
dropped when a batch with that number is loaded again. After ``commit_batch``: old batch tables; they are dropped after
the next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.pipeline.lambda_ import spans as lambda_spans
from headrace.pipeline.lambda_.batch_tables import BatchTables
from headrace.pipeline.lambda_.spans import split_at, to_merge
from headrace.pipeline.lambda_.tables import SPAN, LambdaTables, batch_name, drop_tables
from headrace.pipeline.progress.offsets import is_before, is_same
from headrace.pipeline.serving.catalog import Batch, Catalog, Offsets, Progress, Span, View
from headrace.pipeline.serving.database import Begin, Database
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.tables import create_table, drop_table, repoint_view

if TYPE_CHECKING:
    from headrace.pipeline.query.aggregates import Algebra

#: How long dropping the table of an old batch waits for readers that still use it.
_DROP_WAIT_MS = 2_000


class ProgressMoved(ServingError):
    """The rows were computed from a progress that is no longer current: another process writes this version."""


class _Expected(NamedTuple):
    """The progress and the batch number that a commit expects to find unchanged."""

    progress: Progress | None
    batch: int | None

    def __str__(self) -> str:
        micro_batch = "none" if self.progress is None else self.progress.batch_id
        return f"micro-batch {micro_batch}, batch {self.batch or 'none'}"


class LambdaStore:
    """The results of one version. Any thread may call its methods."""

    def __init__(self, database: Database, catalog: Catalog, view: str, version: int, algebra: Algebra) -> None:
        self.view, self.version, self.algebra = view, version, algebra
        self.tables = LambdaTables(view, version, algebra, database.is_sqlite)
        self._database, self._catalog = database, catalog
        self.batch_tables = BatchTables(database, catalog, self.tables)
        #: One operation at a time.
        self._lock = threading.RLock()
        self._cut_in_progress: Offsets | None = None
        #: How many spans there are at most, so that not every micro-batch has to ask the database.
        self._span_count: int | None = None

    # ---------------------------------------------------------------------------------------------- what there is

    def create(self, connection: Connection) -> None:
        """Creates the tables that do not exist, and sets the SELECT of the SQL view."""
        batches = self._catalog.batches(connection, self.view, self.version)
        is_new = not sqlalchemy.inspect(connection).has_table(self.tables.overlay.name)
        create_table(connection, self.tables.speed)
        create_table(connection, self.tables.overlay)
        if is_new and not self.algebra.key_columns:  # a total over no records is one row
            nothing = self.tables.shown(self.algebra.merge([]))
            self._database.bulk_load(connection, self.tables.overlay, nothing)
        select_sql = self.select_sql(batches[-1].batch if batches else None)
        self._catalog.set_select(connection, self.view, self.version, select_sql)

    def drop(self, connection: Connection) -> None:
        """Drops all tables. The caller deletes the rows of the catalog."""
        batches = [each.batch for each in self._catalog.batches(connection, self.view, self.version)]
        drop_tables(connection, self.view, self.version, batches)

    def progress(self) -> Progress | None:
        with self._database.read() as connection:
            return self._catalog.progress(connection, self.view, self.version)

    def batches(self) -> list[Batch]:
        """The batches, oldest first. The last one serves."""
        with self._database.read() as connection:
            return self._catalog.batches(connection, self.view, self.version)

    def spans(self) -> list[Span]:
        with self._database.read() as connection:
            return self._catalog.spans(connection, self.view, self.version)

    def select_sql(self, batch: int | None) -> str:
        """The SELECT of the SQL view while this batch serves."""
        return self.tables.select_sql(batch)

    def begin_at(self, starts: Offsets, topic_ids: Mapping[str, str]) -> None:
        """Lets the speed layer begin before the first batch. The spans then begin at these offsets.

        :param topic_ids: the ids of the topics. The archive, which has them too, begins with the first batch.
        """
        with self._lock, self._database.begin() as connection:
            assert self._current(connection) == _Expected(None, None), f"{self._label} has already begun"
            first = Progress(self.view, self.version, 0, starts, topic_ids=dict(topic_ids))
            self._catalog.set_progress(connection, first)

    # ------------------------------------------------------------------------------------------------ micro-batches

    def commit_micro_batch(
        self,
        next_offsets: Offsets,
        partials: pa.Table,
        *,
        events: int,
        dead_letters: int,
        first_offsets: Offsets | None = None,
        begin: Begin | None = None,
    ) -> None:
        """Adds a span, which readers see from this transaction on.

        :param partials: partial results (``algebra.partial``) over everything from the progress to ``next_offsets``.
        :param events: how many records were read, including bad ones.
        :param first_offsets: where the records begin, to be compared with the progress.
        :param begin: begins the transaction; a transaction of its own by default.
        :raises ProgressMoved: if the records do not begin at the progress; nothing is changed then.
        """
        with self._lock:
            span_rows = self.tables.fit(partials)
            before, overlay = self._overlaid(span_rows)
            progress = before.progress or Progress(self.view, self.version, 0, {})
            self._check_follows(progress.offsets, first_offsets, next_offsets)
            number = progress.batch_id + 1
            with (begin or self._database.begin)() as connection:
                self._check_unchanged(connection, before)
                self._database.upsert(connection, self.tables.overlay, overlay, batch_id=number)
                self._database.bulk_load(
                    connection, self.tables.speed, self.tables.of_span(span_rows, number), batch_id=number
                )
                span = Span(self.view, self.version, number, progress.offsets, next_offsets, len(span_rows))
                self._catalog.add_span(connection, span)
                total_events, total_dead = progress.events + events, progress.dead_letters + dead_letters
                after = replace(
                    progress, batch_id=number, offsets=next_offsets, events=total_events, dead_letters=total_dead
                )
                self._catalog.set_progress(connection, after)
            if self._span_count is not None:
                self._span_count += 1

    def _overlaid(self, span_rows: pa.Table) -> tuple[_Expected, pa.Table]:
        """The overlay's rows of these keys with the new span added; and the state that they were computed from."""
        keys = self.tables.keys(span_rows)
        with self._database.read() as connection:
            expected = self._current(connection)
            known = [self.batch_tables.partials(connection, self.tables.overlay, keys)]
            found = known[0].column("_key")
            others = keys.filter(pc.invert(pc.is_in(keys, found.combine_chunks())))
            if expected.batch is not None and len(others):
                known.append(self.batch_tables.partials(connection, self.tables.batch(expected.batch), others))
        merged = self.algebra.merge([*(self.algebra.loaded(each) for each in known), span_rows])
        return expected, self.tables.shown(merged)

    def _check_follows(self, progress: Offsets, first: Offsets | None, next_offsets: Offsets) -> None:
        if not is_before(progress, next_offsets) or (first is not None and not is_same(progress, first)):
            raise ProgressMoved(
                f"{self._label} has read the log up to {progress}, so a micro-batch from "
                f"{first or '?'} to {next_offsets} does not follow: another process writes this version; run only one "
                "'headrace views run' per project"
            )

    # ------------------------------------------------------------------------------------------------------ batches

    @contextmanager
    def batch_in_progress(self) -> Iterator[tuple[int, Offsets | None]]:
        """The number of the next batch and its cut, which is the progress; None if there is no progress yet.

        A batch is computed within this context. Meanwhile ``merge_spans`` does not remove the cut.
        """
        with self._lock, self._database.read() as connection:
            assert self._cut_in_progress is None, "one batch at a time"
            current = self._current(connection)
            cut = None if current.progress is None else current.progress.offsets
            self._cut_in_progress = cut
        try:
            yield (current.batch or 0) + 1, cut
        finally:
            with self._lock:
                self._cut_in_progress = None

    def commit_batch(self, batch: int, cut: Offsets, *, events: int = 0, dead_letters: int = 0) -> None:
        """Replaces the last batch, and the spans that the new batch covers, by the batch that was loaded.

        :param events: how many records the first batch has read; there is no progress yet then.
        :raises CutLost: if no span ends at the cut; nothing is changed then.
        """
        with self._lock:
            before, spans, overlay = self._left_after(batch, cut)
            covered, left = split_at(spans, cut)
            with self._database.begin() as connection:
                view = self._check_unchanged(connection, before)
                self._remove_spans(connection, covered)
                number = before.progress.batch_id if before.progress else 0
                connection.execute(self.tables.overlay.delete())
                self._database.bulk_load(connection, self.tables.overlay, overlay, batch_id=number)
                if before.progress is None:
                    first = Progress(self.view, self.version, 0, cut, events, dead_letters)
                    self._catalog.set_progress(connection, first)
                rows = self.batch_tables.row_count(connection, batch)
                name = self.tables.batch(batch).name
                self._catalog.add_batch(connection, Batch(self.view, self.version, batch, cut, name, rows))
                self._point_at(connection, view, batch)
            self._span_count = len(left)
        self.drop_old_batches()

    def _left_after(self, batch: int, cut: Offsets) -> tuple[_Expected, list[Span], pa.Table]:
        """The overlay over a batch that was just loaded; and the state that it was computed from."""
        table = self.tables.batch(batch)
        with self._database.read() as connection:
            expected = self._current(connection)
            spans = self._catalog.spans(connection, self.view, self.version)
            _, left = split_at(spans, cut)
            progress = expected.progress.offsets if expected.progress else cut
            lambda_spans.check_chain(cut, left, progress)
            if not left:
                return expected, spans, self.tables.no_rows
            rows = self.algebra.merge([self._span_partials(connection, left)])
            known = self.batch_tables.partials(connection, table, self.tables.keys(rows))
        return expected, spans, self.tables.shown(self.algebra.merge([self.algebra.loaded(known), rows]))

    def _point_at(self, connection: Connection, view: View, batch: int) -> None:
        select_sql = self.select_sql(batch)
        self._catalog.set_select(connection, self.view, self.version, select_sql)
        if view.serving_version == self.version:
            repoint_view(connection, self.view, select_sql)  # last, because readers wait from here on until the commit

    def drop_old_batches(self) -> None:
        """Drops all batches but the one that serves. A table that readers still use stays until the next call."""
        for old in self.batches()[:-1]:
            try:
                with self._database.begin() as connection:
                    if not self._database.is_sqlite:
                        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_DROP_WAIT_MS}")
                    drop_table(connection, old.table_name)
                    self._catalog.remove_batch(connection, self.view, self.version, old.batch)
                self.tables.forget(old.batch)
            except OperationalError as error:
                if "lock" not in str(error.orig):
                    raise

    # -------------------------------------------------------------------------------------------------------- spans

    def tidy_up(self) -> None:
        """Does what is due after a micro-batch."""
        self.merge_spans()

    def merge_spans(self, before: Offsets | None = None) -> bool:
        """Merges spans if there are many.

        :param before: the cut of a batch in progress, if ``batch_in_progress`` is not used.
        :return: whether spans were merged.
        """
        with self._lock:
            if self._span_count is not None and self._span_count <= lambda_spans.MAX_SPANS:
                return False
            with self._database.read() as connection:
                spans = self._catalog.spans(connection, self.view, self.version)
                chosen = to_merge(spans, before or self._cut_in_progress)
                rows = self._span_partials(connection, chosen) if chosen else None
            if rows is not None:
                self._replace(spans, chosen, self.algebra.merge([rows]) if len(rows) else rows)
            self._span_count = len(spans) - max(0, len(chosen) - 1)
            return rows is not None

    def _replace(self, spans: list[Span], chosen: list[Span], rows: pa.Table) -> None:
        made = lambda_spans.merged(chosen, len(rows))
        with self._database.begin() as connection:
            self._catalog.lock_view(connection, self.view)
            if self._catalog.spans(connection, self.view, self.version) != spans:
                raise ProgressMoved(
                    f"the spans of {self._label} have changed: another process writes this version; run only one "
                    "'headrace views run' per project"
                )
            self._remove_spans(connection, chosen)
            stored = self.tables.of_span(rows, made.span)
            self._database.bulk_load(connection, self.tables.speed, stored, batch_id=made.span)
            self._catalog.add_span(connection, made)

    def _remove_spans(self, connection: Connection, spans: list[Span]) -> None:
        """Removes adjacent spans with their rows."""
        if spans:
            connection.execute(self.tables.speed.delete().where(self._is_in(spans)))
            self._catalog.remove_spans(connection, self.view, self.version, [each.span for each in spans])

    def _span_partials(self, connection: Connection, spans: list[Span]) -> pa.Table:
        found = self._database.fetch(connection, self.tables.speed, condition=self._is_in(spans))
        return self.algebra.loaded(found)

    def _is_in(self, spans: list[Span]) -> sqlalchemy.ColumnElement[bool]:
        return self.tables.speed.c[SPAN].between(spans[0].span, spans[-1].span)

    # ------------------------------------------------------------------------------------------------------ helpers

    @property
    def _label(self) -> str:
        return f"{self.view} v{self.version}"

    def _current(self, connection: Connection) -> _Expected:
        batches = self._catalog.batches(connection, self.view, self.version)
        progress = self._catalog.progress(connection, self.view, self.version)
        return _Expected(progress, batches[-1].batch if batches else None)

    def _check_unchanged(self, connection: Connection, before: _Expected) -> View:
        view = self._catalog.lock_view(connection, self.view)
        now = self._current(connection)
        if now != before:
            raise ProgressMoved(
                f"{self._label} has changed from ({before}) to ({now}): another process writes this "
                "version; run only one 'headrace views run' per project"
            )
        return view


__all__ = ["LambdaStore", "ProgressMoved", "batch_name", "drop_tables"]
