"""Stores how the records of a version's sources differ from their schemas: table ``headrace_schema_changes``.

``headrace views run`` writes it (``source_watch``), and ``views status`` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.catalog_tables.versions import SCHEMA_CHANGES, VersionKey
from headrace.pipeline.serving.database import Database


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a record in its topic."""

    partition: int
    offset: int
    timestamp_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"offset {self.offset} of partition {self.partition} ({at})"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A difference between the records of a topic and the schema of a source.

    :param kind: ``missing``: the records no longer have a column, or never had it; ``new``: they have another field.
    :param column: the path of the column or of the field.
    :param since: the first of the records.
    :param records: how many records in a row lack the column.
    :param share: the part of the records before them that had it.
    """

    kind: str
    source: str
    topic: str
    column: str
    since: Place
    records: int = 0
    share: float = 0.0

    @property
    def is_missing(self) -> bool:
        return self.kind == "missing"

    @property
    def key(self) -> tuple[str, ...]:
        return self.kind, self.source, self.topic, self.column

    @property
    def text(self) -> str:
        """Describes the change, and what to do, in a line."""
        if not self.is_missing:
            return (
                f"source {self.source}: records of topic {self.topic} have a field {self.column} since {self.since}, "
                "which the schema does not name: add a column if a query needs it"
            )
        before = f"{self.share:.0%} of the records before had one" if self.share else "no record ever had one"
        return (
            f"source {self.source}: the column {self.column} has no value in the last {self.records} records of topic "
            f"{self.topic}, since {self.since}; {before}. It is NULL there. If the field has another name now, or is "
            "gone, change the schema and the query, and run 'headrace views apply', which makes a new version"
        )


class VersionChanges(NamedTuple):
    """
    :ivar changes: what differs now.
    :ivar counts: the counts from which the watch continues, as JSON values.
    """

    changes: tuple[SchemaChange, ...]
    counts: Mapping[str, Any]


class SchemaChanges:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[VersionKey, VersionChanges]:
        with self._database.read() as connection:
            rows = list(connection.execute(SCHEMA_CHANGES.select()))
        return {(row.view, row.version): VersionChanges(_changes(row.changes), json.loads(row.counts)) for row in rows}

    def write(self, found: Mapping[VersionKey, VersionChanges]) -> None:
        """Replaces the rows of these versions, in one transaction."""
        with self._database.begin() as connection:
            for (view, version), each in found.items():
                changes = json.dumps([asdict(one) for one in each.changes])
                values = {"changes": changes, "counts": json.dumps(each.counts)}
                update_or_insert(connection, SCHEMA_CHANGES, {"view": view, "version": version}, values)


def _changes(text: str) -> tuple[SchemaChange, ...]:
    values: Sequence[dict[str, Any]] = json.loads(text)
    return tuple(SchemaChange(**each | {"since": Place(**each["since"])}) for each in values)
