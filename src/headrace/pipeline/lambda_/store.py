"""The serving side of a Lambda view: micro-batches committed, batches landed, each in one transaction.

What holds at every commit: **the SQL view is the query over exactly the offsets in headrace_progress.** For

    batch table      = the query over everything up to the batch's cut
    a span's rows    = partial results over that span; the spans follow the cut without a gap, up to the progress
    overlay          = batch and spans together, for all keys that occur in any span
    the SQL view     = the overlay, and the batch's rows whose keys are not in it           (``lambda_tables``)

and each step keeps that true:

=====================  =============================================================================================
``commit_micro_batch``  a new span with its rows; the overlay's rows of its keys, with it; progress
``land_batch``          the spans up to the cut go, with their rows; the overlay anew, of what is left; the SQL view
                        reads the new batch table; the catalog says so. Progress stays
``merge_spans``         some neighbours become one; nothing that is seen changes
=====================  =============================================================================================

**How it is fast.** The overlay has partial columns of its own, so a micro-batch reads and writes as many rows as it has
keys, whatever the size of the batch and the number of spans. What is written is computed before the transaction, which
is then checked to find all as it was: the writer's lock is not held while Arrow or Spark compute. Within a process the
three take turns; if another process has been at it, ``ProgressMoved`` says so and nothing is written.

**What a crash leaves.** Between loading and landing: a batch table that nobody reads, dropped when that number is
loaded again. After landing: old batch tables, dropped with those of the next one. Anything else: nothing.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection, Table
from sqlalchemy.exc import OperationalError

from headrace.pipeline.lambda_ import spans as lambda_spans
from headrace.pipeline.lambda_.spans import split_at, to_merge
from headrace.pipeline.lambda_.tables import SPAN, LambdaTables, batch_name, drop_tables
from headrace.pipeline.progress.offsets import is_before, is_same
from headrace.pipeline.serving.catalog import Batch, Catalog, Offsets, Progress, Span, View
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.tables import create_table, drop_table, repoint_view

if TYPE_CHECKING:
    from headrace.pipeline.query.aggregates import Algebra

#: Rows of a batch that are written in one transaction: micro-batches get their turn in between.
_ROWS_A_LOAD = 20_000
_ROWS_A_PAGE = 200_000
#: How long the tables of old batches may keep us waiting for readers that still use them.
_DROP_WAIT_MS = 2_000


class ProgressMoved(ServingError):
    """What was computed does not follow on what the catalog has: somebody else writes this version too."""


class _Standing(NamedTuple):
    """What a step builds on."""

    progress: Progress | None
    batch: int | None


class LambdaStore:
    """Of one version. Its methods may be called by any thread."""

    def __init__(self, database: Database, catalog: Catalog, view: str, version: int, algebra: Algebra) -> None:
        self.view, self.version, self.algebra = view, version, algebra
        self.tables = LambdaTables(view, version, algebra, database.is_sqlite)
        self._database, self._catalog = database, catalog
        #: One step at a time.
        self._turn = threading.RLock()
        self._cut_under_way: Offsets | None = None
        #: How many spans there may be, so that not every micro-batch has to ask.
        self._span_count: int | None = None
        self._loaded_rows: dict[int, int] = {}

    # ---------------------------------------------------------------------------------------------- what there is

    def create(self, connection: Connection) -> None:
        """The tables that are not there yet, and what the SQL view is."""
        batches = self._catalog.batches(connection, self.view, self.version)
        is_new = not sqlalchemy.inspect(connection).has_table(self.tables.overlay.name)
        create_table(connection, self.tables.speed)
        create_table(connection, self.tables.overlay)
        if is_new and not self.algebra.key_columns:  # a total over nothing is a row too
            nothing = self.tables.shown(self.algebra.merge([]))
            self._database.bulk_load(connection, self.tables.overlay, nothing)
        select_sql = self.select_sql(batches[-1].batch if batches else None)
        self._catalog.set_select(connection, self.view, self.version, select_sql)

    def drop(self, connection: Connection) -> None:
        """All tables; what the catalog knows is the caller's."""
        batches = [each.batch for each in self._catalog.batches(connection, self.view, self.version)]
        drop_tables(connection, self.view, self.version, batches)

    def progress(self) -> Progress | None:
        with self._database.read() as connection:
            return self._catalog.progress(connection, self.view, self.version)

    def batches(self) -> list[Batch]:
        """Oldest first; the last one serves."""
        with self._database.read() as connection:
            return self._catalog.batches(connection, self.view, self.version)

    def spans(self) -> list[Span]:
        with self._database.read() as connection:
            return self._catalog.spans(connection, self.view, self.version)

    def select_sql(self, batch: int | None) -> str:
        """What the SQL view is while this batch serves."""
        return self.tables.select_sql(batch)

    # ------------------------------------------------------------------------------------------------ micro-batches

    def commit_micro_batch(
        self,
        next_offsets: Offsets,
        partials: pa.Table,
        *,
        events: int,
        dead_letters: int,
        first_offsets: Offsets | None = None,
    ) -> None:
        """One more span, in the view from this transaction on.

        :param partials: of ``algebra.partial`` over everything from the progress up to ``next_offsets``.
        :param events: how many records that were, bad ones included.
        :param first_offsets: where they begin, if that is to be checked.
        :raises ProgressMoved: if they do not begin at the progress; nothing is changed then.
        """
        with self._turn:
            span_rows = self.tables.fit(partials)
            before, overlay = self._overlaid(span_rows)
            progress = before.progress or Progress(self.view, self.version, 0, {})
            self._check_follows(progress.offsets, first_offsets, next_offsets)
            number = progress.batch_id + 1
            with self._database.begin() as connection:
                self._check_unchanged(connection, before)
                self._database.upsert(connection, self.tables.overlay, overlay, batch_id=number)
                self._database.bulk_load(
                    connection, self.tables.speed, self.tables.of_span(span_rows, number), batch_id=number
                )
                span = Span(self.view, self.version, number, progress.offsets, next_offsets, len(span_rows))
                self._catalog.add_span(connection, span)
                total_events, total_dead = progress.events + events, progress.dead_letters + dead_letters
                self._catalog.set_progress(
                    connection, Progress(self.view, self.version, number, next_offsets, total_events, total_dead)
                )
            if self._span_count is not None:
                self._span_count += 1

    def _overlaid(self, span_rows: pa.Table) -> tuple[_Standing, pa.Table]:
        """The overlay's rows of these keys, with what is new; and what they were made from."""
        keys = self.tables.keys(span_rows)
        with self._database.read() as connection:
            standing = self._standing(connection)
            known = [self._partials(connection, self.tables.overlay, keys)]
            found = known[0].column("_key")
            others = keys.filter(pc.invert(pc.is_in(keys, found.combine_chunks())))
            if standing.batch is not None and len(others):
                known.append(self._partials(connection, self.tables.batch(standing.batch), others))
        merged = self.algebra.merge([*(self.algebra.loaded(each) for each in known), span_rows])
        return standing, self.tables.shown(merged)

    def _check_follows(self, progress: Offsets, first: Offsets | None, next_offsets: Offsets) -> None:
        if not is_before(progress, next_offsets) or (first is not None and not is_same(progress, first)):
            raise ProgressMoved(
                f"{self._who} has been read up to {progress}; a micro-batch from {first or '?'} to {next_offsets} "
                "does not follow on that: one 'headrace views run' a project is enough"
            )

    # ------------------------------------------------------------------------------------------------------ batches

    @contextmanager
    def batch_under_way(self) -> Iterator[tuple[int, Offsets | None]]:
        """The next batch's number, and where to cut it: at the progress, if there is any. Keeps the cut where it is.

        Whoever computes a batch does so inside of this; ``merge_spans`` leaves that point alone meanwhile.
        """
        with self._turn, self._database.read() as connection:
            assert self._cut_under_way is None, "one batch at a time"
            standing = self._standing(connection)
            cut = None if standing.progress is None else standing.progress.offsets
            self._cut_under_way = cut
        try:
            yield (standing.batch or 0) + 1, cut
        finally:
            with self._turn:
                self._cut_under_way = None

    def load_batch(self, batch: int, cut: Offsets, tables: Iterable[pa.Table]) -> int:
        """Makes and fills the table of a batch, which nobody sees yet.

        :param tables: partial rows of everything up to the cut; one row a key in all of them.
        :return: how many rows it has.
        """
        table = self.tables.batch(batch)
        with self._database.begin() as connection:
            last = self._standing(connection).batch or 0
            assert batch > last, (
                f"batch {batch} of {self._who} has landed already (the last one is {last}, up to {cut})"
            )
            drop_table(connection, table.name)
            create_table(connection, table)
        rows = sum(self._load(table, chunk, batch) for each in tables for chunk in _chunks(each))
        if rows == 0 and not self.algebra.key_columns:
            rows = self._load(table, self.algebra.merge([]), batch)
        self._loaded_rows[batch] = rows
        return rows

    def _load(self, table: Table, partials: pa.Table, batch: int) -> int:
        rows = self.tables.shown(self.tables.fit(partials))
        try:
            with self._database.begin() as connection:
                self._database.bulk_load(connection, table, rows, batch_id=batch)
            return len(rows)
        except _duplicates():
            return self._load_into(table, partials, batch)

    def _load_into(self, table: Table, partials: pa.Table, batch: int) -> int:
        """As ``_load``, where some keys are there already: Spark tells texts apart that no database can store."""
        fit = self.tables.fit(partials)
        keys = self.tables.keys(fit)
        with self._database.begin() as connection:
            known = self._partials(connection, table, keys)
            rows = self.tables.shown(self.algebra.merge([self.algebra.loaded(known), fit]))
            self._database.upsert(connection, table, rows, batch_id=batch)
        return len(rows) - len(known)

    def land_batch(self, batch: int, cut: Offsets, *, events: int = 0, dead_letters: int = 0) -> None:
        """The batch that was loaded takes the place of the last one and of the spans that it covers.

        :param events: how many records it has read, if it is the first and there is no progress yet.
        :raises CutLost: if no span ends at the cut; nothing is changed then.
        """
        with self._turn:
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
                self._catalog.add_batch(connection, self._batch(connection, batch, cut))
                self._point_at(connection, view, batch)
            self._span_count = len(left)
        self.drop_old_batches()

    def _left_after(self, batch: int, cut: Offsets) -> tuple[_Standing, list[Span], pa.Table]:
        """The overlay over a batch that has just been loaded."""
        table = self.tables.batch(batch)
        with self._database.read() as connection:
            standing = self._standing(connection)
            spans = self._catalog.spans(connection, self.view, self.version)
            _, left = split_at(spans, cut)
            progress = standing.progress.offsets if standing.progress else cut
            lambda_spans.check_chain(cut, left, progress)
            if not left:
                return standing, spans, self.tables.no_rows
            rows = self.algebra.merge([self._span_partials(connection, left)])
            known = self._partials(connection, table, self.tables.keys(rows))
        return standing, spans, self.tables.shown(self.algebra.merge([self.algebra.loaded(known), rows]))

    def _batch(self, connection: Connection, batch: int, cut: Offsets) -> Batch:
        table = self.tables.batch(batch)
        rows = self._loaded_rows.pop(batch, None)
        if rows is None:
            rows = connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(table)).scalar_one()
        return Batch(self.view, self.version, batch, cut, table.name, rows)

    def _point_at(self, connection: Connection, view: View, batch: int) -> None:
        select_sql = self.select_sql(batch)
        self._catalog.set_select(connection, self.view, self.version, select_sql)
        if view.serving_version == self.version:
            repoint_view(connection, self.view, select_sql)  # the last step: readers wait from here on

    def drop_old_batches(self) -> None:
        """All but the one that serves. Those that readers are still at work on stay until next time."""
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

    def partials_of_batch(self, batch: int) -> Iterator[pa.Table]:
        """What the next batch is made from: the partial rows, some at a time."""
        table = self.tables.partials(self.tables.batch(batch))
        last = ""
        while True:
            with self._database.read() as connection:
                page = self._database.fetch(connection, table, condition=table.c["_key"] > last, limit=_ROWS_A_PAGE)
            if len(page):
                yield self.algebra.loaded(page)
                last = page.column("_key")[-1].as_py()
            if len(page) < _ROWS_A_PAGE:
                return

    # -------------------------------------------------------------------------------------------------------- spans

    def merge_spans(self, before: Offsets | None = None) -> bool:
        """Keeps spans few; whether there was something to do.

        :param before: the cut of a batch under way, where ``batch_under_way`` does not say it.
        """
        with self._turn:
            if self._span_count is not None and self._span_count <= lambda_spans.MAX_SPANS:
                return False
            with self._database.read() as connection:
                spans = self._catalog.spans(connection, self.view, self.version)
                chosen = to_merge(spans, before or self._cut_under_way)
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
                raise ProgressMoved(f"the spans of {self._who} have changed meanwhile: somebody else writes them too")
            self._remove_spans(connection, chosen)
            stored = self.tables.of_span(rows, made.span)
            self._database.bulk_load(connection, self.tables.speed, stored, batch_id=made.span)
            self._catalog.add_span(connection, made)

    def _remove_spans(self, connection: Connection, spans: list[Span]) -> None:
        """Neighbours."""
        if spans:
            connection.execute(self.tables.speed.delete().where(self._is_of(spans)))
            self._catalog.remove_spans(connection, self.view, self.version, [each.span for each in spans])

    def _span_partials(self, connection: Connection, spans: list[Span]) -> pa.Table:
        found = self._database.fetch(connection, self.tables.speed, condition=self._is_of(spans))
        return self.algebra.loaded(found)

    def _is_of(self, spans: list[Span]) -> sqlalchemy.ColumnElement[bool]:
        return self.tables.speed.c[SPAN].between(spans[0].span, spans[-1].span)

    # ------------------------------------------------------------------------------------------------------ helpers

    @property
    def _who(self) -> str:
        return f"{self.view} v{self.version}"

    def _partials(self, connection: Connection, table: Table, keys: pa.StringArray) -> pa.Table:
        """As they are stored, with ``_key``."""
        return self._database.fetch(connection, self.tables.partials(table), keys)

    def _standing(self, connection: Connection) -> _Standing:
        batches = self._catalog.batches(connection, self.view, self.version)
        progress = self._catalog.progress(connection, self.view, self.version)
        return _Standing(progress, batches[-1].batch if batches else None)

    def _check_unchanged(self, connection: Connection, before: _Standing) -> View:
        view = self._catalog.lock_view(connection, self.view)
        now = self._standing(connection)
        if now != before:
            raise ProgressMoved(
                f"{self._who} has moved on from {before} to {now} meanwhile: somebody else writes it too; "
                "one 'headrace views run' a project is enough"
            )
        return view


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, _ROWS_A_LOAD) for start in range(0, len(table), _ROWS_A_LOAD))


def _duplicates() -> tuple[type[Exception], ...]:
    """What the drivers raise for a key that is there already."""
    try:
        import psycopg
    except ImportError:
        return (sqlite3.IntegrityError,)
    return (sqlite3.IntegrityError, psycopg.errors.UniqueViolation)


__all__ = ["LambdaStore", "ProgressMoved", "batch_name", "drop_tables"]
