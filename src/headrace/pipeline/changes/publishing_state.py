"""Stores and shows the last failure of publishing a view."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from headrace.pipeline.project.definition import Publish
from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.change_tables import PUBLISHED
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError


def store_failure(database: Database, view: str, publish: Publish, error: Exception, now_ms: int) -> None:
    """A failure to store the failure is left out: publishing is tried again anyway."""
    values = {"error": str(error) or type(error).__name__, "updated_ms": now_ms}
    at_first = {"topic": publish.topic, "topic_id": "", "owner": "", "stream": "", "seq": 0}
    with suppress(ServingError), database.begin() as connection:
        update_or_insert(connection, PUBLISHED, {"view": view}, values, at_first)


def publishing_notes(database: Database, topics: Mapping[str, str]) -> list[str]:
    """For each of these views whose publishing fails, why.

    :param topics: by view, the topic that its newest definition publishes to. A failure of a view that is not
        published any more is left out.
    """
    with database.read() as connection:
        rows = connection.execute(PUBLISHED.select().where(PUBLISHED.c.error.is_not(None))).fetchall()
    return [
        f"{row.view}: publishing to {topics[row.view]} fails and is tried again: {row.error}"
        for row in sorted(rows, key=lambda row: row.view)
        if row.view in topics
    ]
