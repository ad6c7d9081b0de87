"""Updates a row of a table of the catalog, or inserts the row if there is none."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, Table, and_


def update_or_insert(
    connection: Connection,
    table: Table,
    key: Mapping[str, object],
    values: Mapping[str, object],
    at_first: Mapping[str, object] | None = None,
) -> None:
    """
    :param key: the values of the columns that identify the row.
    :param at_first: further values, for a row that is inserted.
    """
    is_row = and_(*(table.c[name] == value for name, value in key.items()))
    if not connection.execute(table.update().where(is_row).values(values)).rowcount:
        connection.execute(table.insert().values({**(at_first or {}), **values, **key}))
