"""Stores and shows the last snapshot of each exported view, and why exporting fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from headrace.pipeline.export.snapshot import Snapshot
from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.change_tables import EXPORTED
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError


def store_snapshot(database: Database, path: str, snapshot: Snapshot, rows: int, now_ms: int) -> None:
    as_of = json.dumps(snapshot.names)
    values = {"path": path, "snapshot": snapshot.number, "rows": rows, "as_of": as_of, "error": None}
    _store(database, snapshot.names["view"], {**values, "updated_ms": now_ms})


def store_failure(database: Database, view: str, path: str, error: Exception, now_ms: int) -> None:
    """A failure to store the failure is left out: exporting is tried again anyway."""
    values = {"path": path, "error": str(error) or type(error).__name__, "updated_ms": now_ms}
    with suppress(ServingError):
        _store(database, view, values, {"snapshot": None, "rows": 0, "as_of": "{}"})


def _store(
    database: Database, view: str, values: Mapping[str, object], at_first: Mapping[str, object] | None = None
) -> None:
    with database.begin() as connection:
        update_or_insert(connection, EXPORTED, {"view": view}, values, at_first)


def export_notes(database: Database, paths: Mapping[str, str]) -> list[str]:
    """For each of these views that was exported, its last snapshot, or why exporting fails.

    :param paths: by view, the folder that its newest definition is exported to.
    """
    with database.read() as connection:
        rows = connection.execute(EXPORTED.select().order_by(EXPORTED.c.view)).fetchall()
    return [f"{row.view}: {_note(row)}" for row in rows if paths.get(row.view) == row.path]


def _note(row: Any) -> str:
    if row.error is not None:
        return f"exporting to {row.path} fails and is tried again: {row.error}"
    at = datetime.fromtimestamp(row.updated_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = json.loads(row.as_of)
    offsets = " ".join(
        f"{topic} {partition}:{offset}"
        for topic, partitions in names["offsets"].items()
        for partition, offset in partitions.items()
    )
    return (
        f"exported to {row.path} at {at}: snapshot {row.snapshot}, {row.rows} rows, v{names['version']} as of {offsets}"
    )
