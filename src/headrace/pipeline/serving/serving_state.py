"""Reads which version of a view serves, and up to where its rows count: what readers see at this moment."""

from __future__ import annotations

import json

from sqlalchemy import Row, Select, select

from headrace.pipeline.serving.catalog_tables.versions import PROGRESS, VERSIONS, VIEWS


def serving_versions() -> Select[tuple[object, ...]]:
    """The progress of the versions that serve, what their SQL views select, and the hashes of their definitions."""
    serving = (PROGRESS.c.view == VIEWS.c.name) & (PROGRESS.c.version == VIEWS.c.serving_version)
    version = (VERSIONS.c.view == VIEWS.c.name) & (VERSIONS.c.version == VIEWS.c.serving_version)
    query = select(PROGRESS, VERSIONS.c.select_sql, VERSIONS.c.definition_hash).select_from(VIEWS)
    return query.join(PROGRESS, serving).join(VERSIONS, version)


def as_of_values(row: Row[tuple[object, ...]]) -> dict[str, object]:
    """The ``as_of`` of such a row, as JSON values."""
    return {
        "view": row.view,
        "version": row.version,
        "offsets": json.loads(row.offsets),
        "updated_ms": row.updated_ms,
    }
