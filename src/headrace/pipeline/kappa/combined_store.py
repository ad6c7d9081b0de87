"""Stores the answer of a Kappa view that is combined from partial results: one table, one transaction per micro-batch.

::

    <view>__v<N>    _key | output columns, _order_n, _hidden | key and partial columns

A micro-batch reads the stored partial results of its keys, merges its own, and writes these rows again, together with
the progress. So at every commit the table is the query over exactly the offsets in headrace_progress. Rows that the
query's HAVING leaves out have ``_hidden`` set; ORDER BY and LIMIT are in the SQL view (``lambda_.tables``).

The rows are computed before the transaction begins, so the database's write lock is not held meanwhile. The transaction
then checks that the progress is still the one that the rows were computed from. Only a micro-batch with very many keys
is merged within the transaction, a portion at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection

from headrace.pipeline.lambda_.store import ProgressMoved
from headrace.pipeline.lambda_.tables import LambdaTables
from headrace.pipeline.progress.offsets import is_before, is_same
from headrace.pipeline.serving.catalog import Catalog, Offsets, Progress, Version
from headrace.pipeline.serving.database import Begin, Database
from headrace.pipeline.serving.tables import create_table

if TYPE_CHECKING:
    from headrace.pipeline.query.aggregates import Algebra

#: Rows that are merged and written at a time: as Python objects they take many times their size in Arrow.
_ROWS_PER_PORTION = 250_000


class CombinedStore:
    """The results of one version. One thread calls its methods.

    :ivar starts: where the version begins, if it has no progress yet.
    :ivar topic_ids: returns the ids of the topics that are read.
    """

    def __init__(self, database: Database, catalog: Catalog, version: Version, algebra: Algebra) -> None:
        self.view, self.version = version.view, version.version
        self._database, self._catalog, self._algebra = database, catalog, algebra
        self._tables = LambdaTables(
            version.view, version.version, algebra, database.is_sqlite, overlay_table=version.table_name
        )
        self.starts: Offsets = {}
        self.topic_ids: Callable[[], dict[str, str]] = dict
        #: The progress after the last commit of this process.
        self.known_offsets: Offsets | None = None

    @property
    def select_sql(self) -> str:
        return self._tables.select_sql(None)

    def create(self, connection: Connection) -> None:
        """Creates the table, if it does not exist, and sets the SELECT of the SQL view."""
        table = self._tables.overlay
        is_new = not sqlalchemy.inspect(connection).has_table(table.name)
        create_table(connection, table)
        if is_new and not self._algebra.key_columns:  # a total over no records is one row
            self._database.bulk_load(connection, table, self._tables.shown(self._algebra.merge([])))
        self._catalog.set_select(connection, self.view, self.version, self.select_sql)

    def progress(self) -> Progress:
        with self._database.read() as connection:
            return self._progress(connection)

    def tidy_up(self) -> None:
        """Does nothing: a micro-batch leaves nothing to tidy up."""

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
        """Adds partial results, which readers see from this transaction on.

        :param partials: partial results over everything from the progress to ``next_offsets``.
        :param events: how many records were read, including bad ones.
        :param first_offsets: where the records begin, to be compared with the progress.
        :param begin: begins the transaction; a transaction of its own by default.
        :raises ProgressMoved: if the records do not begin at the progress; nothing is changed then.
        """
        rows = self._tables.fit(partials)
        is_small = len(rows) <= _ROWS_PER_PORTION
        with self._database.read() as connection:
            before = self._progress(connection)
            merged = self._merged(connection, rows) if is_small else None
        self._check_follows(before.offsets, first_offsets, next_offsets)
        after = replace(
            before,
            batch_id=before.batch_id + 1,
            offsets=next_offsets,
            events=before.events + events,
            dead_letters=before.dead_letters + dead_letters,
            topic_ids=self._ids_with(before, next_offsets),
        )
        with (begin or self._database.begin)() as connection:
            if self._progress(connection) != before:
                raise self._moved(f"its progress has changed from {before.offsets}")
            for each in (merged,) if merged is not None else self._portions(connection, rows):
                self._database.upsert(connection, self._tables.overlay, each, batch_id=after.batch_id)
            self._catalog.set_progress(connection, after)
        self.known_offsets = next_offsets

    def _portions(self, connection: Connection, rows: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, len(rows), _ROWS_PER_PORTION):
            yield self._merged(connection, rows.slice(start, _ROWS_PER_PORTION))

    def _merged(self, connection: Connection, rows: pa.Table) -> pa.Table:
        """The rows of these keys after the micro-batch."""
        table = self._tables.partials(self._tables.overlay)
        known = self._database.fetch(connection, table, self._tables.keys(rows))
        if not len(known):
            return self._tables.shown(rows)
        return self._tables.shown(self._algebra.merge([self._algebra.loaded(known), rows]))

    def _progress(self, connection: Connection) -> Progress:
        found = self._catalog.progress(connection, self.view, self.version)
        return found or Progress(self.view, self.version, -1, self.starts)

    def _ids_with(self, before: Progress, ends: Offsets) -> dict[str, str]:
        if before.topic_ids.keys() >= ends.keys():
            return before.topic_ids
        ids = self.topic_ids() | before.topic_ids
        return {topic: ids[topic] for topic in sorted(ends) if topic in ids}

    def _check_follows(self, progress: Offsets, first: Offsets | None, next_offsets: Offsets) -> None:
        if not is_before(progress, next_offsets) or (first is not None and not is_same(progress, first)):
            raise self._moved(f"a micro-batch from {first or '?'} to {next_offsets} does not follow {progress}")

    def _moved(self, what: str) -> ProgressMoved:
        return ProgressMoved(
            f"{self.view} v{self.version}: {what}: another process writes this version; run only one "
            "'headrace views run' per project"
        )
