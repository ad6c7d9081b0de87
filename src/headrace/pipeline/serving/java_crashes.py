"""Remembers which versions were at work when Spark's Java process died: table ``headrace_java_deaths``.

A row counts the deaths in a row during one kind of a version's work, and says how the last one came. The row goes when
that kind of work succeeds, when a user asks to try the version again, and with the version. The table is what keeps the
next ``headrace views run`` from dying in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.pipeline.serving.catalog_tables import JAVA_DEATHS
from headrace.pipeline.serving.database import Database

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Deaths:
    """
    :param said: how the last one came, in words.
    """

    count: int
    said: str


class JavaDeaths:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[Key, dict[str, Deaths]]:
        """By version and kind of work."""
        found: dict[Key, dict[str, Deaths]] = {}
        with self._database.read() as connection:
            for row in connection.execute(JAVA_DEATHS.select()):
                found.setdefault((row.view, row.version), {})[row.work] = Deaths(row.deaths, row.said)
        return found

    def write(self, key: Key, deaths: Mapping[str, Deaths]) -> None:
        """In the place of all that was known of this version."""
        view, version = key
        with self._database.begin() as connection:
            connection.execute(JAVA_DEATHS.delete().where(JAVA_DEATHS.c.view == view, JAVA_DEATHS.c.version == version))
            for work, each in deaths.items():
                connection.execute(
                    JAVA_DEATHS.insert().values(
                        view=view, version=version, work=work, deaths=each.count, said=each.said
                    )
                )
