"""Copies rows to a staging table of PostgreSQL: the part that Spark's tasks run, each with a connection of its own.

A task sends its rows by one COPY. In the same transaction it adds a row to the list of parts, ``<stage>_parts``, whose
key is the number of the task's partition. So a part is in the staging table once, however often Spark runs the task:

    killed before the commit     nothing of the part is stored; Spark runs the task again
    killed after the commit      Spark runs the task again; its row in the list is refused, so its rows are rolled back

A :class:`StageCopy` is pickled for the tasks. It contains the login of the database. Spark does not print pickled
objects in its logs, its web pages or its event log, and the login is not part of the text of the object.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
from psycopg import sql

from headrace.pipeline.serving.columns import arrow_column, stored
from headrace.pipeline.serving.errors import DatabaseUnreachable, ServingError
from headrace.pipeline.serving.gathered_batches import gathered
from headrace.pipeline.serving.keys import canonical_keys

#: The order of rows with the same key: the partition of the row's task, and its place among the rows of the task.
ORDER = "_staged_at"
_PLACE_BITS = 40
_ROWS_PER_WRITE, _BYTES_PER_WRITE = 65_536, 64 << 20
#: How long a task waits while the database has no connection left for it.
_CONNECT_PATIENCE_S = 60.0
_NO_CONNECTION_LEFT = "too many"
#: Begins the error of a task that does not reach the database. The driver knows the error by these words.
NOT_CONNECTED = "a task of Spark cannot connect to the serving database"

Rows = Callable[[pa.Table], pa.Table]


def parts_of(stage: str) -> str:
    """The name of the table that lists the parts of a staging table."""
    return f"{stage}_parts"


def as_they_are(rows: pa.Table) -> pa.Table:
    return rows


@dataclass(frozen=True)
class StageCopy:
    """
    :param login: the arguments of ``psycopg.connect``.
    :param stage: the name of the staging table.
    :param schema: the columns of the rows, in the types of the target table.
    :param is_ordered: whether the staging table has the column ``ORDER``, because several rows may have the same key.
    :param prepare: changes the rows before they are stored; it must keep their number and order if ``is_ordered``.
    """

    login: Mapping[str, object] = field(repr=False)
    stage: str
    schema: pa.Schema
    key_columns: tuple[str, ...]
    batch_id: int
    is_ordered: bool = False
    prepare: Rows = as_they_are

    def copy(self, part: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Copies the rows of one part, and returns their number.

        :raises DatabaseUnreachable: if the connection cannot be opened, or breaks.
        :raises ServingError: if the database refuses the rows.
        """
        try:
            with connected(self.login) as connection:
                count = self._copy(connection, part, batches)
                try:
                    connection.execute(self._listing(), (part, count))
                except psycopg.errors.UniqueViolation:
                    connection.rollback()
                    return self._listed(connection, part)
            return count
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseUnreachable(f"a task cannot copy rows to {self.stage}: {_reason(error)}") from error
        except psycopg.Error as error:
            raise ServingError(
                f"the database refuses rows of {self.stage}: {_reason(error)} SQLSTATE: {error.sqlstate or '?'}"
            ) from error

    def _copy(self, connection: psycopg.Connection, part: int, batches: Iterable[pa.RecordBatch]) -> int:
        columns = [*self.schema.names, "_key", "_batch_id", *([ORDER] if self.is_ordered else [])]
        listed = sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys(columns)))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(sql.Identifier(self.stage), listed)
        count = 0
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for table in gathered(batches, _ROWS_PER_WRITE, _BYTES_PER_WRITE):
                rows = self._completed(self.prepare(table).cast(self.schema), (part << _PLACE_BITS) + count)
                copy.write(as_csv(rows))
                count += rows.num_rows
        return count

    def _completed(self, rows: pa.Table, first_place: int) -> pa.Table:
        count = rows.num_rows
        if "_key" not in rows.column_names:
            rows = rows.append_column("_key", canonical_keys(rows, self.key_columns))
        rows = rows.append_column("_batch_id", pa.repeat(pa.scalar(self.batch_id, pa.int64()), count))
        if self.is_ordered:
            rows = rows.append_column(ORDER, pa.array(range(first_place, first_place + count), pa.int64()))
        return pa.table({name: stored(rows.column(name), "postgresql") for name in rows.column_names})

    def _listing(self) -> sql.Composed:
        return sql.SQL("INSERT INTO {} (part, row_count) VALUES (%s, %s)").format(self._parts)

    def _listed(self, connection: psycopg.Connection, part: int) -> int:
        found = connection.execute(sql.SQL("SELECT row_count FROM {} WHERE part = %s").format(self._parts), (part,))
        row = found.fetchone()
        assert row is not None, f"part {part} of {self.stage} is listed"
        return int(row[0])

    @property
    def _parts(self) -> sql.Identifier:
        return sql.Identifier(parts_of(self.stage))


@dataclass(frozen=True)
class StoredRows:
    """Rows of a table that a task gets by their keys.

    :param schema: the columns to get, in the types that they were stored from.
    """

    login: Mapping[str, object] = field(repr=False)
    table: str
    schema: pa.Schema

    def connected(self) -> psycopg.Connection:
        return connected(self.login)

    def fetch(self, connection: psycopg.Connection, keys: pa.StringArray) -> pa.Table:
        """The rows of these keys that there are, in any order."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.schema.names))
        query = sql.SQL('SELECT {} FROM {} WHERE "_key" = ANY(%s)').format(columns, sql.Identifier(self.table))
        try:
            found = connection.execute(query, (keys.to_pylist(),)).fetchall()
            connection.rollback()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseUnreachable(f"a task cannot read rows of {self.table}: {_reason(error)}") from error
        values = zip(*found, strict=True) if found else ((),) * len(self.schema)
        arrays = [arrow_column(each, one.type) for each, one in zip(values, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)


def connected(login: Mapping[str, object]) -> psycopg.Connection:
    """Opens a connection. If the database has none left, this waits for other tasks to end.

    :raises DatabaseUnreachable: if the database does not answer, or refuses the login.
    """
    give_up_s = time.monotonic() + _CONNECT_PATIENCE_S
    while True:
        try:
            connection = psycopg.connect(**login)  # type: ignore[arg-type]
            break
        except psycopg.OperationalError as error:
            if _NO_CONNECTION_LEFT not in str(error) or time.monotonic() > give_up_s:
                raise DatabaseUnreachable(f"{NOT_CONNECTED}: {_reason(error)}") from None
            time.sleep(0.2 + random.random())
    connection.execute("SET TIME ZONE 'UTC'")  # as all writers do: times are sent without a zone
    return connection


def as_csv(rows: pa.Table) -> memoryview:
    """Rows of stored values (``columns.stored``) as COPY reads them."""
    written = pa.BufferOutputStream()
    pa_csv.write_csv(rows, written, pa_csv.WriteOptions(include_header=False))
    return memoryview(written.getvalue())


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
