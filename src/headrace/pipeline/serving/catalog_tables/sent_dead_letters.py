"""Stores up to which offsets the dead letters of a version were sent: table ``headrace_dead_letters``.

The offsets are written after the brokers have acknowledged the dead letters of a batch, and before the transaction that
commits the batch. When a batch is repeated, by this process or another one, only dead letters after these offsets are
sent. A second copy is possible only after a crash between the acknowledgement and this write.
"""

from __future__ import annotations

from headrace.pipeline.serving.catalog_tables.versions import DEAD_LETTERS, Offsets, offsets_text, parse_offsets
from headrace.pipeline.serving.database import Database


class SentDeadLetters:
    """The offsets of one version."""

    def __init__(self, database: Database, view: str, version: int) -> None:
        self._database = database
        self._key = {"view": view, "version": version}
        self._is_of_version = (DEAD_LETTERS.c.view == view) & (DEAD_LETTERS.c.version == version)

    def read(self) -> Offsets:
        """For each partition, the first offset whose dead letter may not have been sent."""
        with self._database.read() as connection:
            row = connection.execute(DEAD_LETTERS.select().where(self._is_of_version)).one_or_none()
            return {} if row is None else parse_offsets(row.next_offsets)

    def write(self, next_offsets: Offsets) -> None:
        with self._database.begin() as connection:
            connection.execute(DEAD_LETTERS.delete().where(self._is_of_version))
            connection.execute(DEAD_LETTERS.insert().values(**self._key, next_offsets=offsets_text(next_offsets)))
