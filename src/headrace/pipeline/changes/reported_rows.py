"""Holds the rows of a view as they were reported last, and compares them with the rows that the view has now.

The table ``<view>__told`` has the columns of the view as c0, c1, … with the types of the view, how often each row
occurs (``copies``), and a number of its own (``id``). The database compares::

    SELECT c0, c1, max(id), sum(now), sum(reported) FROM
        (SELECT page AS c0, clicks AS c1, NULL AS id, 1 AS now, 0 AS reported FROM pages
         UNION ALL SELECT c0, c1, id, 0, copies FROM pages__told)
    GROUP BY c0, c1 HAVING sum(now) <> sum(reported)

GROUP BY treats NULL as equal to NULL, and counts equal rows, so this is exact for every view, whatever maintains it. It
reads all rows of the view and sorts or hashes them: about a second per million rows and comparison. Considered and
dropped: comparing only rows with a newer ``_batch_id`` (a row that was deleted has none, a Lambda view has two tables,
and a build swaps the table), and triggers on the data tables (staging tables take the place of a table without them).
``follower`` bounds the share of time that comparisons take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, inspect

from headrace.pipeline.changes.row_values import ViewColumn, row_of
from headrace.pipeline.serving.change_tables import reported_table_name
from headrace.pipeline.serving.sqlite.dialect import quoted

_ROWS_AT_A_TIME = 1000


class RowDifference(NamedTuple):
    """A row that occurs more often or less often than was reported.

    :ivar values: as the database returned them.
    :ivar id: of the reported row; None if the row is new.
    """

    values: tuple[object, ...]
    id: int | None
    now: int
    reported: int


class ReportedRows:
    """The reported rows of one view. Each method is part of the caller's transaction."""

    def __init__(self, connection: Connection, view: str, columns: Sequence[ViewColumn]) -> None:
        self._connection, self._columns = connection, columns
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._name = reported_table_name(view)
        self._view, self._table = quoted(view), quoted(self._name)
        self._names = [f"c{at}" for at in range(len(columns))]
        self._shown = ", ".join(quoted(column.name) for column in columns)

    def exist(self) -> bool:
        return inspect(self._connection).has_table(self._name)

    def load(self) -> None:
        """Makes the reported rows those that the view has now."""
        self.drop()
        number = "INTEGER PRIMARY KEY" if self._is_sqlite else "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        columns = [f"{name} {column.type}" for name, column in zip(self._names, self._columns, strict=True)]
        self._run(f"CREATE TABLE {self._table} ({', '.join([*columns, 'copies BIGINT NOT NULL', f'id {number}'])})")
        self._run(
            f"INSERT INTO {self._table} ({', '.join([*self._names, 'copies'])}) "
            f"SELECT {self._shown}, count(*) FROM {self._view} GROUP BY {self._shown}"
        )

    def drop(self) -> None:
        self._run(f"DROP TABLE IF EXISTS {self._table}")

    def differences(self, limit: int) -> list[RowDifference]:
        """Returns rows that the view has and that were not reported, and the reverse; at most ``limit`` rows."""
        names = ", ".join(self._names)
        shown = ", ".join(
            f"{quoted(column.name)} AS {name}" for column, name in zip(self._columns, self._names, strict=True)
        )
        found = self._connection.exec_driver_sql(
            self._escaped(
                f"SELECT {self._read()}, max(id), sum(now), sum(reported) FROM "
                f"(SELECT {shown}, CAST(NULL AS BIGINT) AS id, 1 AS now, 0 AS reported FROM {self._view} "
                f"UNION ALL SELECT {names}, id, 0, copies FROM {self._table}) AS compared "
                f"GROUP BY {names} HAVING sum(now) <> sum(reported) LIMIT {limit}"
            )
        )
        return [RowDifference(tuple(row[:-3]), row[-3], int(row[-2]), int(row[-1])) for row in found]

    def report(self, differences: Sequence[RowDifference]) -> None:
        """Makes the reported rows those that the view has now."""
        gone = [(each.id,) for each in differences if each.id is not None]
        added = [(*each.values, each.now) for each in differences if each.now]
        mark = "?" if self._is_sqlite else "%s"
        # Values were read as texts where a driver would change them (see _read).
        marks = [f"CAST({mark} AS {column.type})" if self._is_text(column) else mark for column in self._columns]
        if gone:
            self._run_many(f"DELETE FROM {self._table} WHERE id = {mark}", gone)
        if added:
            columns = ", ".join([*self._names, "copies"])
            self._run_many(f"INSERT INTO {self._table} ({columns}) VALUES ({', '.join([*marks, mark])})", added)

    def rows(self) -> Iterator[dict[str, object]]:
        """The reported rows, each as often as it occurs."""
        query = self._escaped(f"SELECT {self._read()}, copies FROM {self._table} ORDER BY id")
        connection = self._connection.execution_options(stream_results=True, max_row_buffer=_ROWS_AT_A_TIME)
        for stored in connection.exec_driver_sql(query):
            row = row_of(self._columns, stored[:-1])
            for _ in range(stored[-1]):
                yield row

    def _read(self) -> str:
        """The columns, so that what is read can be written again without a change."""
        return ", ".join(
            f"CAST({name} AS TEXT)" if self._is_text(column) else name
            for name, column in zip(self._names, self._columns, strict=True)
        )

    def _is_text(self, column: ViewColumn) -> bool:
        return column.is_json and not self._is_sqlite

    def _run(self, sql: str) -> None:
        self._connection.exec_driver_sql(self._escaped(sql))

    def _run_many(self, sql: str, values: Sequence[tuple[object, ...]]) -> None:
        self._connection.exec_driver_sql(sql, list(values))

    def _escaped(self, sql: str) -> str:
        """psycopg reads % as the begin of a parameter."""
        return sql if self._is_sqlite else sql.replace("%", "%%")
