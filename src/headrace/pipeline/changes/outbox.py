"""Writes the changes of a view to its outbox: the difference between two states that readers could see.

A step compares the SQL view with the rows that were reported last (``reported_rows``) in one snapshot, together with
the progress and the serving version. Then one transaction writes the difference with consecutive numbers and the
``as_of`` of the snapshot, and updates the reported rows. The comparison holds no lock of writers. The view may have
changed again when the difference is written: the next step reports that.

So the outbox does not depend on how the view is maintained. Several commits may become one difference, and a switch of
versions is the difference between their answers. A crash leaves all of a step or nothing; the next step then reports
what the lost one would have reported.

A step begins a new *stream* instead, with no changes, if numbered changes cannot say what happened: the columns or the
key differ, or more rows differ than the outbox keeps. Readers then begin again with a snapshot.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, Row, func, select

from headrace.pipeline.changes.change import Change, changes_of
from headrace.pipeline.changes.reported_rows import ReportedRows, RowDifference
from headrace.pipeline.changes.row_values import ViewColumn, row_of, row_text, view_columns
from headrace.pipeline.project.definition import ChangeSettings
from headrace.pipeline.serving.catalog_tables.version_columns import key_of
from headrace.pipeline.serving.catalog_tables.versions import VIEWS
from headrace.pipeline.serving.change_tables import (
    CHANGE_LEASES,
    CHANGE_STEPS,
    CHANGES,
    EXPORTED,
    FOLLOWED,
    OF_CHANGES,
    PUBLISHED,
    reported_table_name,
)
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.serving_state import as_of_values, serving_versions
from headrace.pipeline.serving.sql_views import drop_table
from headrace.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Followed:
    """The state of a followed view.

    :param first_seq: the number of the first change that the outbox still has; ``last_seq`` + 1 if it has none.
    :param last_seq: the number of the last change; 0 if the stream has none yet.
    :param as_of: up to where the reported rows count: view, version, offsets and the time of their last write.
    """

    view: str
    stream: str
    columns: tuple[ViewColumn, ...]
    key: tuple[str, ...] | None
    first_seq: int
    last_seq: int
    signature: str
    as_of: Mapping[str, object]


class _Served(NamedTuple):
    """The version that readers see now, with its progress."""

    version: int
    signature: str
    as_of: dict[str, object]


def followed(connection: Connection, view: str) -> Followed | None:
    row = connection.execute(FOLLOWED.select().where(FOLLOWED.c.view == view)).one_or_none()
    return None if row is None else _followed_of(row)


def _followed_of(row: Row[tuple[object, ...]]) -> Followed:
    values = row._mapping
    columns = tuple(ViewColumn(*each) for each in json.loads(values["columns"]))
    key = None if values["key_columns"] is None else tuple(json.loads(values["key_columns"]))
    return Followed(
        values["view"],
        values["stream"],
        columns,
        key,
        values["first_seq"],
        values["last_seq"],
        values["signature"],
        json.loads(values["as_of"]),
    )


class StreamMoved(ServingError):
    """Another process has reported changes of the view. Nothing was changed."""


def _check_unmoved(connection: Connection, before: Followed) -> None:
    query = select(FOLLOWED.c.stream, FOLLOWED.c.last_seq, FOLLOWED.c.signature).where(FOLLOWED.c.view == before.view)
    found = connection.execute(query.with_for_update()).one_or_none()
    if found is None or tuple(found) != (before.stream, before.last_seq, before.signature):
        raise StreamMoved(f"another process follows {before.view} too: run only one 'headrace views run' per project")


class Outbox:
    """The outbox of a database. One thread of one process, the runner, calls ``step`` and ``forget``."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    def due(self, views: Collection[str]) -> list[str]:
        """Those of these views that may have changed since their last step. Reads two rows per view."""
        with self._database.read() as connection:
            reported = {
                row.view: row.signature for row in connection.execute(select(FOLLOWED.c.view, FOLLOWED.c.signature))
            }
            now = {
                row.view: _signature(row)
                for row in connection.execute(serving_versions().where(VIEWS.c.name.in_(views)))
            }
        return [view for view, signature in sorted(now.items()) if reported.get(view) != signature]

    def step(self, view: str, settings: ChangeSettings) -> Followed | None:
        """Reports the changes since the last step, if there are any.

        :return: the state afterwards; None if no version of the view serves and it was never followed.
        :raises StreamMoved: if another process has reported changes meanwhile; nothing is changed then.
        """
        with self._database.read() as reader:
            now, before = _served(reader, view), followed(reader, view)
            if now is None or (before is not None and before.signature == now.signature):
                return before
            columns, key = view_columns(reader, view), key_of(reader, (view, now.version))
            reported = ReportedRows(reader, view, columns)
            is_same = before is not None and (columns, key) == (before.columns, before.key) and reported.exist()
            differences = reported.differences(settings.keep_changes + 1) if is_same else []
        if not is_same or len(differences) > settings.keep_changes:
            return self._begin_stream(view)
        assert before is not None
        changes = _changes(columns, key, differences)
        with self._database.begin() as connection:
            _check_unmoved(connection, before)
            ReportedRows(connection, view, columns).report(differences)
            return self._write(connection, before, now, changes, settings)

    def forget(self, view: str) -> None:
        """Removes everything that is kept for a view that nobody follows any more."""
        with self._database.begin() as connection:
            drop_table(connection, reported_table_name(view))
            for table in OF_CHANGES:
                if table not in (PUBLISHED, EXPORTED):
                    connection.execute(table.delete().where(table.c.view == view))

    def leases(self) -> dict[str, int]:
        """By view, until when a reader wants it to be followed, in milliseconds since 1970."""
        with self._database.read() as connection:
            return {row.view: row.until_ms for row in connection.execute(CHANGE_LEASES.select())}

    def views(self) -> set[str]:
        """The views that are followed now."""
        with self._database.read() as connection:
            return set(connection.execute(select(FOLLOWED.c.view)).scalars())

    def _begin_stream(self, view: str) -> Followed | None:
        """Makes the present rows of the view the reported rows, and begins a stream without changes."""
        with self._database.begin() as connection:
            self._take_snapshot(connection)
            now, columns = _served(connection, view), view_columns(connection, view)
            if now is None or not columns:
                return followed(connection, view)
            key = key_of(connection, (view, now.version))
            ReportedRows(connection, view, columns).load()
            for table in (CHANGES, CHANGE_STEPS, FOLLOWED):
                connection.execute(table.delete().where(table.c.view == view))
            made = Followed(view, uuid.uuid4().hex[:16], columns, key, 1, 0, now.signature, now.as_of)
            values = {
                "columns": json.dumps(columns),
                "key_columns": None if key is None else json.dumps(key),
                "as_of": json.dumps(made.as_of),
                "began_ms": self._clock.wall_ms(),
            }
            numbers = {"first_seq": made.first_seq, "last_seq": made.last_seq, "signature": made.signature}
            connection.execute(FOLLOWED.insert().values(view=view, stream=made.stream, **numbers, **values))
        return made

    def _take_snapshot(self, connection: Connection) -> None:
        """Lets all statements of a write transaction see one state. SQLite has one writer, so it does so anyway."""
        if not self._database.is_sqlite:
            from headrace.pipeline.serving.postgresql.dialect import enter_gate

            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            enter_gate(connection)

    def _write(
        self,
        connection: Connection,
        before: Followed,
        now: _Served,
        changes: list[Change],
        settings: ChangeSettings,
    ) -> Followed:
        view, last_seq = before.view, before.last_seq + len(changes)
        rows = [
            {
                "view": view,
                "seq": seq,
                "op": each.op,
                "key": None if each.key is None else row_text(each.key),
                "before": None if each.before is None else row_text(each.before),
                "after": None if each.after is None else row_text(each.after),
                "copies": each.copies,
            }
            for seq, each in enumerate(changes, before.last_seq + 1)
        ]
        if rows:
            connection.execute(CHANGES.insert(), rows)
            values = {"view": view, "last_seq": last_seq, "as_of": json.dumps(now.as_of)}
            connection.execute(CHANGE_STEPS.insert().values(**values, made_ms=self._clock.wall_ms()))
        first_seq = self._trim(connection, before, last_seq, settings)
        values = {"first_seq": first_seq, "last_seq": last_seq, "signature": now.signature}
        update = FOLLOWED.update().where(FOLLOWED.c.view == view)
        connection.execute(update.values(**values, as_of=json.dumps(now.as_of)))
        return Followed(view, before.stream, before.columns, before.key, first_seq, last_seq, now.signature, now.as_of)

    def _trim(self, connection: Connection, before: Followed, last_seq: int, settings: ChangeSettings) -> int:
        """Deletes changes beyond the bounds.

        :return: the number of the first change that is left.
        """
        view, oldest_ms = before.view, self._clock.wall_ms() - settings.keep_ms
        too_old = select(func.max(CHANGE_STEPS.c.last_seq)).where(
            CHANGE_STEPS.c.view == view, CHANGE_STEPS.c.made_ms < oldest_ms
        )
        expired = connection.execute(too_old).scalar_one() or 0
        first_seq = max(before.first_seq, expired + 1, last_seq - settings.keep_changes + 1)
        if first_seq > before.first_seq:
            connection.execute(CHANGES.delete().where(CHANGES.c.view == view, CHANGES.c.seq < first_seq))
            gone = CHANGE_STEPS.delete().where(CHANGE_STEPS.c.view == view, CHANGE_STEPS.c.last_seq < first_seq)
            connection.execute(gone)
        return first_seq


def _changes(
    columns: tuple[ViewColumn, ...], key: tuple[str, ...] | None, differences: list[RowDifference]
) -> list[Change]:
    rows = [(row_of(columns, each.values), each.now - each.reported) for each in differences]
    removed = [(row, -count) for row, count in rows if count < 0]
    return changes_of(removed, [(row, count) for row, count in rows if count > 0], key)


def _signature(row: Row[tuple[object, ...]]) -> str:
    """Differs if the rows may differ: the progress is written with the rows, and a build changes the SELECT."""
    return json.dumps([row.version, row.batch_id, row.offsets, row.updated_ms, row.events, row.select_sql])


def _served(connection: Connection, view: str) -> _Served | None:
    """Returns the version that readers see now; None if no version serves, or the version has no progress."""
    row = connection.execute(serving_versions().where(VIEWS.c.name == view)).one_or_none()
    if row is None:
        return None
    return _Served(row.version, _signature(row), as_of_values(row))
