"""The catalog: which views and versions exist, which version serves, how far each has read, and its desired state.

Commands and the runner share nothing else: a command writes the desired state and returns; the runner acts on it and
writes the state. Either may die at any moment; the catalog says what was true at its last commit.

Methods that require a connection are part of that connection's transaction: progress is written with the data that it
describes, and read in the same snapshot. The other methods are transactions of their own, unless they are given a
connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

import sqlalchemy
from sqlalchemy import Connection, Row, Table

from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.catalog_tables.version_states import DesiredState, VersionEvent, VersionState, next_state
from headrace.pipeline.serving.catalog_tables.versions import (
    BATCHES,
    METADATA,
    OF_VERSIONS,
    PROGRESS,
    REPORTS,
    REQUESTS,
    SPANS,
    VERSIONS,
    VIEWS,
    Batch,
    Offsets,
    Progress,
    Report,
    Request,
    Span,
    Version,
    VersionKey,
    View,
    offsets_text,
    parse_offsets,
)
from headrace.pipeline.serving.change_tables import OF_CHANGES, OF_COLUMNS, reported_table_name
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import IllegalTransition, UnknownView
from headrace.pipeline.serving.sql_views import (
    check_name_is_free,
    check_view_name,
    drop_table,
    drop_view,
    is_view,
    repoint_view,
)
from headrace.runtime.clock import Clock, SystemClock


class Catalog:
    """Creates its tables when it is opened, if they do not exist."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        with database.begin() as connection:
            if not database.is_sqlite:
                from headrace.pipeline.serving.postgresql.dialect import create_gate

                create_gate(connection)  # for its lock, so that two processes do not create the tables at once
            METADATA.create_all(connection)

    # -------------------------------------------------------------------------------------------- views, versions

    def create_view(
        self, name: str, architecture: str, definition_hash: str, *, connection: Connection | None = None
    ) -> View:
        """Creates the view, or updates its definition. ``add_version`` creates versions."""
        check_view_name(name)
        now_ms = self._clock.wall_ms()
        with self._writing(connection) as writer:
            made = View(name, architecture, definition_hash, 0, None, None, now_ms, now_ms)
            values = {"architecture": architecture, "definition_hash": definition_hash, "updated_ms": now_ms}
            update_or_insert(writer, VIEWS, {"name": name}, values, asdict(made))
            return self._view(writer, name)

    def add_version(
        self,
        view: str,
        definition: Mapping[str, object],
        definition_hash: str,
        *,
        table_name: str | None = None,
        connection: Connection | None = None,
    ) -> Version:
        """Adds the next version, in state ``starting``, to be run. Numbers of dropped versions are not reused."""
        now_ms = self._clock.wall_ms()
        with self._writing(connection) as writer:
            number = self.lock_view(writer, view).last_version + 1
            writer.execute(VIEWS.update().where(VIEWS.c.name == view).values(last_version=number))
            writer.execute(
                VERSIONS.insert().values(
                    view=view,
                    version=number,
                    state=VersionState.STARTING,
                    wanted=DesiredState.RUN,
                    definition=json.dumps(dict(definition)),
                    definition_hash=definition_hash,
                    table_name=table_name or f"{view}__v{number}",
                    created_ms=now_ms,
                    updated_ms=now_ms,
                )
            )
            return self._version(writer, view, number)

    def views(self, connection: Connection | None = None) -> list[View]:
        with self._reading(connection) as reader:
            return [View(*row) for row in reader.execute(VIEWS.select().order_by(VIEWS.c.name))]

    def view(self, name: str, connection: Connection | None = None) -> View:
        with self._reading(connection) as reader:
            return self._view(reader, name)

    def versions(self, view: str | None = None, connection: Connection | None = None) -> list[Version]:
        query = VERSIONS.select().order_by(VERSIONS.c.view, VERSIONS.c.version)
        with self._reading(connection) as reader:
            rows = reader.execute(query if view is None else query.where(VERSIONS.c.view == view))
            return [_version_of(row) for row in rows]

    def version(self, view: str, version: int, connection: Connection | None = None) -> Version:
        with self._reading(connection) as reader:
            return self._version(reader, view, version)

    def set_state(
        self,
        view: str,
        version: int,
        event: VersionEvent,
        *,
        error: str | None = None,
        due_ms: int | None = None,
        connection: Connection | None = None,
    ) -> VersionState:
        """Applies an event to the state of a version.

        :param due_ms: when a version that failed is tried again.
        :return: the new state.
        :raises IllegalTransition: if the state does not allow the event; nothing is changed then.
        """
        with self._writing(connection) as writer:
            self.lock_view(writer, view)
            found = self._version(writer, view, version)
            state = next_state(found.state, event, found.label)
            self._update_version(writer, found, state=state, error=error, due_ms=due_ms)
            return state

    def set_desired_state(
        self, view: str, version: int, desired: DesiredState, *, connection: Connection | None = None
    ) -> None:
        """Sets what the runner should do with a version. A version that is to be dropped stays so.

        :raises IllegalTransition: if the version serves and is to be dropped, or is already to be dropped.
        """
        with self._writing(connection) as writer:
            serving = self.lock_view(writer, view).serving_version
            found = self._version(writer, view, version)
            if desired is DesiredState.DROP and version == serving:
                raise IllegalTransition(f"{found.label} serves: switch to another version before you drop it")
            if found.desired_state is DesiredState.DROP and desired is not DesiredState.DROP:
                raise IllegalTransition(f"{found.label} is about to be dropped: apply its definition again instead")
            self._update_version(writer, found, wanted=desired)

    def set_select(self, connection: Connection, view: str, version: int, select_sql: str) -> None:
        """Sets what the SQL view selects when this version serves. Call it in the transaction that makes it true."""
        self._update_version(connection, self._version(connection, view, version), select_sql=select_sql)

    def set_definition(self, connection: Connection, view: str, version: int, definition: Mapping[str, object]) -> None:
        """Replaces the definition by one with the same answer: only how the version runs may differ."""
        found = self._version(connection, view, version)
        self._update_version(connection, found, definition=json.dumps(dict(definition)))

    def switch(self, connection: Connection, view: str, version: int, select_sql: str) -> None:
        """Makes this version the serving one, in one transaction: the SQL view, both states and the pointers."""
        self.switch_all(connection, {(view, version): select_sql})

    def switch_all(self, connection: Connection, selects: Mapping[VersionKey, str]) -> None:
        """Makes versions of several views the serving ones, in one transaction.

        :param selects: by version, what its SQL view selects.
        """
        for view, version in sorted(selects):
            serving = self.lock_view(connection, view).serving_version
            if serving is None:
                check_name_is_free(connection, view)
            self.set_state(view, version, VersionEvent.SWITCHED_TO, connection=connection)
            found = self._version(connection, view, version)
            if found.served_ms is None:
                self._update_version(connection, found, served_ms=self._clock.wall_ms())
            changes: dict[str, object] = {"serving_version": version, "updated_ms": self._clock.wall_ms()}
            if serving is not None and serving != version:
                old = self._find_version(connection, view, serving)
                if old is not None and old.state is VersionState.SERVING:  # if it failed or stopped, it keeps its state
                    self.set_state(view, serving, VersionEvent.SWITCHED_AWAY, connection=connection)
                changes["previous_version"] = serving
            connection.execute(VIEWS.update().where(VIEWS.c.name == view).values(changes))
        for (view, _), select_sql in sorted(selects.items()):  # last: readers wait from here on
            repoint_view(connection, view, select_sql)

    def retire_view(self, connection: Connection, view: str) -> None:
        """Removes the SQL view and sets all versions to be dropped. The view is removed with its last version.

        If no version serves, a SQL view or a table with this name is a user's, and stays.
        """
        serving = self.lock_view(connection, view).serving_version
        nothing = {"serving_version": None, "previous_version": None, "updated_ms": self._clock.wall_ms()}
        connection.execute(VIEWS.update().where(VIEWS.c.name == view).values(nothing))
        for version in self.versions(view, connection):
            self.set_desired_state(*version.key, DesiredState.DROP, connection=connection)
        if serving is not None and is_view(connection, view):
            drop_view(connection, view)

    def remove_version(self, connection: Connection, view: str, version: int) -> None:
        """Deletes all rows of a version in state ``dropping``. The caller drops its data tables."""
        found = self._version(connection, view, version)
        if found.state is not VersionState.DROPPING:
            raise IllegalTransition(f"{found.label} is {found.state}: only a version in state dropping can be removed")
        for table in (*OF_VERSIONS, *OF_COLUMNS):
            connection.execute(table.delete().where(table.c.view == view, table.c.version == version))
        forgotten = VIEWS.update().where(VIEWS.c.name == view, VIEWS.c.previous_version == version)
        connection.execute(forgotten.values(previous_version=None))

    def remove_view(self, connection: Connection, view: str) -> None:
        """Deletes all rows of a view and its versions. The caller drops the data tables and the SQL view."""
        self.lock_view(connection, view)
        drop_table(connection, reported_table_name(view))
        for table in (*OF_VERSIONS, *OF_COLUMNS, *OF_CHANGES, REQUESTS):
            connection.execute(table.delete().where(table.c.view == view))
        connection.execute(VIEWS.delete().where(VIEWS.c.name == view))

    def lock_view(self, connection: Connection, view: str) -> View:
        """Locks the view against other writers until the transaction ends. In SQLite every transaction does that."""
        return self._view(connection, view, for_update=True)

    # ------------------------------------------------------------------------------------------- progress, Lambda

    def progress(self, connection: Connection, view: str, version: int) -> Progress | None:
        """The progress of the data that this connection sees; None before the first batch."""
        row = connection.execute(_of_version(PROGRESS, view, version)).one_or_none()
        return None if row is None else progress_of(row)

    def set_progress(self, connection: Connection, progress: Progress) -> None:
        """Call it in the transaction that writes the data. Counters are totals. The time is set here."""
        values = asdict(progress)
        values |= {
            "offsets": offsets_text(progress.offsets),
            "topic_ids": json.dumps(progress.topic_ids, sort_keys=True),
            "updated_ms": self._clock.wall_ms(),
        }
        connection.execute(_deletion(PROGRESS, progress.view, progress.version))
        connection.execute(PROGRESS.insert().values(values))

    def reports(self, connection: Connection | None = None) -> dict[tuple[str, int], Report]:
        """The reports of all versions, by view and version."""
        with self._reading(connection) as reader:
            return {(row.view, row.version): Report(*row) for row in reader.execute(REPORTS.select())}

    def set_reports(self, reports: Iterable[Report]) -> None:
        """Writes reports in one transaction. A report without ``complete_ms`` keeps the stored one."""
        with self._database.begin() as connection:
            for report in reports:
                values = asdict(report) | {"updated_ms": self._clock.wall_ms()}
                if report.complete_ms is None:
                    del values["complete_ms"]
                update_or_insert(connection, REPORTS, {"view": report.view, "version": report.version}, values)

    def batches(self, connection: Connection, view: str, version: int) -> list[Batch]:
        """The batches, oldest first. The last one serves."""
        rows = connection.execute(_of_version(BATCHES, view, version).order_by(BATCHES.c.batch))
        return [
            Batch(r.view, r.version, r.batch, parse_offsets(r.cut), r.table_name, r.rows, r.created_ms) for r in rows
        ]

    def add_batch(self, connection: Connection, batch: Batch) -> None:
        values = asdict(batch) | {"cut": offsets_text(batch.cut), "created_ms": self._clock.wall_ms()}
        connection.execute(BATCHES.insert().values(values))

    def remove_batch(self, connection: Connection, view: str, version: int, batch: int) -> None:
        connection.execute(_deletion(BATCHES, view, version).where(BATCHES.c.batch == batch))

    def spans(self, connection: Connection, view: str, version: int) -> list[Span]:
        rows = connection.execute(_of_version(SPANS, view, version).order_by(SPANS.c.span))
        return [
            Span(r.view, r.version, r.span, parse_offsets(r.first_offsets), parse_offsets(r.next_offsets), r.rows)
            for r in rows
        ]

    def add_span(self, connection: Connection, span: Span) -> None:
        texts = {"first_offsets": offsets_text(span.first_offsets), "next_offsets": offsets_text(span.next_offsets)}
        connection.execute(SPANS.insert().values(asdict(span) | texts))

    def remove_spans(self, connection: Connection, view: str, version: int, spans: list[int]) -> None:
        connection.execute(_deletion(SPANS, view, version).where(SPANS.c.span.in_(spans)))

    # --------------------------------------------------------------------------------------------------- requests

    def add_request(self, view: str, kind: str, detail: Mapping[str, object] | None = None) -> int:
        """Adds a request for the runner, such as ``batch``.

        :return: the id, for ``request``.
        """
        values = {"view": view, "kind": kind, "detail": json.dumps(dict(detail or {}))}
        with self._database.begin() as connection:
            self._view(connection, view)
            statement = REQUESTS.insert().values(**values, created_ms=self._clock.wall_ms())
            inserted = connection.execute(statement).inserted_primary_key
            assert inserted is not None
            return int(inserted[0])

    def open_requests(self) -> list[Request]:
        """The requests that are not finished, in the order in which they were added."""
        with self._database.read() as connection:
            rows = connection.execute(REQUESTS.select().where(REQUESTS.c.done_ms.is_(None)).order_by(REQUESTS.c.id))
            return [_request_of(row) for row in rows]

    def request(self, request_id: int) -> Request | None:
        with self._database.read() as connection:
            row = connection.execute(REQUESTS.select().where(REQUESTS.c.id == request_id)).one_or_none()
            return None if row is None else _request_of(row)

    def finish_request(
        self, request_id: int, *, error: str | None = None, connection: Connection | None = None
    ) -> None:
        with self._writing(connection) as writer:
            done = {"done_ms": self._clock.wall_ms(), "error": error}
            writer.execute(REQUESTS.update().where(REQUESTS.c.id == request_id).values(done))

    # ---------------------------------------------------------------------------------------------------- helpers

    @contextmanager
    def _writing(self, connection: Connection | None) -> Iterator[Connection]:
        with self._database.begin() if connection is None else nullcontext(connection) as writer:
            yield writer

    @contextmanager
    def _reading(self, connection: Connection | None) -> Iterator[Connection]:
        with self._database.read() if connection is None else nullcontext(connection) as reader:
            yield reader

    def _view(self, connection: Connection, name: str, *, for_update: bool = False) -> View:
        query = VIEWS.select().where(VIEWS.c.name == name)
        row = connection.execute(query.with_for_update() if for_update else query).one_or_none()
        if row is None:
            raise UnknownView(f"there is no view {name!r} in the serving database; see 'headrace views list'")
        return View(*row)

    def _find_version(self, connection: Connection, view: str, version: int) -> Version | None:
        row = connection.execute(_of_version(VERSIONS, view, version)).one_or_none()
        return None if row is None else _version_of(row)

    def _version(self, connection: Connection, view: str, version: int) -> Version:
        self._view(connection, view)
        found = self._find_version(connection, view, version)
        if found is None:
            raise UnknownView(f"{view} has no version {version}; see 'headrace views status {view}'")
        return found

    def _update_version(self, connection: Connection, version: Version, **changes: object) -> None:
        condition = (VERSIONS.c.view == version.view) & (VERSIONS.c.version == version.version)
        connection.execute(VERSIONS.update().where(condition).values(**changes, updated_ms=self._clock.wall_ms()))


def _of_version(table: Table, view: str, version: int) -> sqlalchemy.Select[tuple[object, ...]]:
    return table.select().where(table.c.view == view, table.c.version == version)


def _deletion(table: Table, view: str, version: int) -> sqlalchemy.Delete:
    return table.delete().where(table.c.view == view, table.c.version == version)


def _version_of(row: Row[tuple[object, ...]]) -> Version:
    values = dict(row._mapping)
    values |= {
        "state": VersionState(row.state),
        "desired_state": DesiredState(values.pop("wanted")),
        "definition": json.loads(row.definition),
    }
    return Version(**values)


def progress_of(row: Row[tuple[object, ...]]) -> Progress:
    parsed = {"offsets": parse_offsets(row.offsets), "topic_ids": json.loads(row.topic_ids)}
    return Progress(**(dict(row._mapping) | parsed))


def _request_of(row: Row[tuple[object, ...]]) -> Request:
    return Request(**(dict(row._mapping) | {"detail": json.loads(row.detail)}))


__all__ = ["Batch", "Catalog", "DesiredState", "Offsets", "Progress", "Report", "Request", "Span", "Version",
           "VersionEvent", "VersionKey", "VersionState", "View"]  # fmt: skip
