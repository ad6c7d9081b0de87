"""Remembers up to which offsets the dead letters of a version were sent: table ``headrace_dead_letters``.

The note is written when the brokers have acknowledged the dead letters of a batch, before the transaction that commits
the batch. A batch that is done again, by the same process or by another one, finds the note and sends only what lies
beyond it. A crash between the acknowledgement and the note is the only way to a second copy.
"""

from __future__ import annotations

from headrace.pipeline.serving.catalog_tables import DEAD_LETTERS, Offsets, offsets_text, parse_offsets
from headrace.pipeline.serving.database import Database


class DeadLetterNotes:
    """Of one version."""

    def __init__(self, database: Database, view: str, version: int) -> None:
        self._database = database
        self._key = {"view": view, "version": version}
        self._mine = (DEAD_LETTERS.c.view == view) & (DEAD_LETTERS.c.version == version)

    def read(self) -> Offsets:
        """By topic and partition, the first offset whose dead letter may not have been sent."""
        with self._database.read() as connection:
            row = connection.execute(DEAD_LETTERS.select().where(self._mine)).one_or_none()
            return {} if row is None else parse_offsets(row.next_offsets)

    def write(self, next_offsets: Offsets) -> None:
        with self._database.begin() as connection:
            connection.execute(DEAD_LETTERS.delete().where(self._mine))
            connection.execute(DEAD_LETTERS.insert().values(**self._key, next_offsets=offsets_text(next_offsets)))
