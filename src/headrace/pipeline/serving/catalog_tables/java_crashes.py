"""Stores which versions were working when Spark's Java process crashed: table ``headrace_java_deaths``.

A row counts the consecutive crashes during one kind of work of one version, and has the reason of the last crash. The
row is deleted when that kind of work succeeds, when a user asks to try the version again, and with the version. The
rows keep the next ``headrace views run`` from crashing in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.pipeline.serving.catalog_tables.versions import JAVA_DEATHS, VersionKey
from headrace.pipeline.serving.database import Database


@dataclass(frozen=True, slots=True)
class Crashes:
    """
    :param reason: why the Java process ended the last time, as text.
    """

    count: int
    reason: str


class JavaCrashes:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[VersionKey, dict[str, Crashes]]:
        """The crashes of each version, by kind of work."""
        found: dict[VersionKey, dict[str, Crashes]] = {}
        with self._database.read() as connection:
            for row in connection.execute(JAVA_DEATHS.select()):
                found.setdefault((row.view, row.version), {})[row.work] = Crashes(row.deaths, row.said)
        return found

    def write(self, key: VersionKey, crashes: Mapping[str, Crashes]) -> None:
        """Replaces all rows of the version."""
        view, version = key
        with self._database.begin() as connection:
            connection.execute(JAVA_DEATHS.delete().where(JAVA_DEATHS.c.view == view, JAVA_DEATHS.c.version == version))
            for work, each in crashes.items():
                connection.execute(
                    JAVA_DEATHS.insert().values(
                        view=view, version=version, work=work, deaths=each.count, said=each.reason
                    )
                )
