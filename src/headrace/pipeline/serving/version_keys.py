"""Stores which columns identify a row of a version, for those who follow the changes of a view."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, select

from headrace.pipeline.serving.catalog_tables import VersionKey
from headrace.pipeline.serving.change_tables import VERSION_KEYS
from headrace.pipeline.serving.database import Database


def set_key(database: Database, version: VersionKey, key: Sequence[str] | None) -> None:
    """
    :param key: empty if there is only one row; None if no columns are known to identify a row.
    """
    with database.read() as reader:
        if key_of(reader, version) == (None if key is None else tuple(key)):
            return
    view, number = version
    with database.begin() as connection:
        connection.execute(VERSION_KEYS.delete().where(VERSION_KEYS.c.view == view, VERSION_KEYS.c.version == number))
        if key is not None:
            values = {"view": view, "version": number, "columns": json.dumps(list(key))}
            connection.execute(VERSION_KEYS.insert().values(values))


def key_of(connection: Connection, version: VersionKey) -> tuple[str, ...] | None:
    view, number = version
    query = select(VERSION_KEYS.c.columns).where(VERSION_KEYS.c.view == view, VERSION_KEYS.c.version == number)
    found = connection.execute(query).scalar_one_or_none()
    return None if found is None else tuple(json.loads(found))
