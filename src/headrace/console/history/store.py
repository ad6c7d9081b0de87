"""Keeps samples in SQLite: the file ``history.sqlite3`` of the data folder, or memory.

A row per sample has the totals of the cluster. A topic, the progress of a group in a topic, and each further measure
have a row only for samples in which they changed, so an idle topic costs nothing. Rows go after a day, or earlier if
there are too many; the newest row before that time stays, because it tells the state from then on. SQLite uses the
space of deleted rows again, so the file stays bounded. A crash of the host may lose the last samples, and never damages
older ones. A file that is not usable is an error at the start of the console.

All methods block for some milliseconds. The sampler and the pages call them on a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from math import nan
from pathlib import Path
from threading import Lock

from headrace.console.history.sample import Sample
from headrace.properties import ConfigError

_LONGEST_MS = 24 * 3_600_000
MOST_ROWS_IN_FILE = 2_000_000
MOST_ROWS_IN_MEMORY = 50_000
#: Old rows are deleted when this part of the bound was added.
_PRUNE_PART = 10
_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS samples (
    time_ms INTEGER PRIMARY KEY, records INTEGER, size_bytes INTEGER, read INTEGER, lag INTEGER,
    offline INTEGER, under_replicated INTEGER, replica_bytes INTEGER
);
CREATE TABLE IF NOT EXISTS names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS topics (
    topic INTEGER, time_ms INTEGER, end_offsets INTEGER, size_bytes INTEGER, PRIMARY KEY (topic, time_ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
    consumer_group INTEGER, topic INTEGER, time_ms INTEGER, committed INTEGER, lag INTEGER,
    PRIMARY KEY (consumer_group, topic, time_ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measures (
    measure INTEGER, time_ms INTEGER, value REAL, PRIMARY KEY (measure, time_ms)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS measures_by_time ON measures (time_ms);
CREATE INDEX IF NOT EXISTS topics_by_time ON topics (time_ms);
CREATE INDEX IF NOT EXISTS groups_by_time ON groups (time_ms);
"""
_COLUMNS = ("records", "size_bytes", "read", "lag", "offline", "under_replicated", "replica_bytes")
#: The tables of changes, with the columns of what has changed.
_CHANGES = {"topics": "topic", "groups": "consumer_group, topic", "measures": "measure"}
Row = tuple[int, ...]


class Store:
    """The samples of one console."""

    def __init__(self, folder: Path | None) -> None:
        """
        :param folder: the data folder; None: memory.
        :raises ConfigError: if the file cannot be used.
        """
        path = None if folder is None else folder / "history.sqlite3"
        self._most_rows = MOST_ROWS_IN_MEMORY if path is None else MOST_ROWS_IN_FILE
        self._lock = Lock()
        self._ids: dict[str, int] = {}
        self._last: Sample | None = None
        self._added = 0
        try:
            self._database = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-2000;")
            self._create()
        except sqlite3.Error as error:
            raise ConfigError(f"cannot use {path}: {error}; delete the file, or choose another --data") from None

    def _create(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"the file has version {version}, not {_VERSION}")
        self._database.executescript(_SCHEMA + f"PRAGMA user_version={_VERSION};")
        self._ids = {name: number for number, name in self._database.execute("SELECT id, name FROM names")}

    def close(self) -> None:
        with self._lock:
            self._database.close()

    # -- writing

    def add(self, sample: Sample) -> None:
        """Adds a sample, in one transaction."""
        with self._lock:
            self._database.execute("BEGIN")
            try:
                self._write(sample)
                if self._added * _PRUNE_PART >= self._most_rows or self._last is None:
                    self._prune(sample)
                    self._added = 0
            except BaseException:
                self._database.execute("ROLLBACK")
                self._ids = {name: number for number, name in self._database.execute("SELECT id, name FROM names")}
                raise
            self._database.execute("COMMIT")
            self._last = sample

    def _write(self, sample: Sample) -> None:
        values = (sample.time_ms, *(getattr(sample, column) for column in _COLUMNS))
        self._database.execute(f"INSERT OR REPLACE INTO samples VALUES ({', '.join('?' * len(values))})", values)
        before = self._last
        topics = [
            (self._id(name), sample.time_ms, *topic)
            for name, topic in sample.topics.items()
            if before is None or before.topics.get(name) != topic
        ]
        self._database.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?)", topics)
        groups = [
            (self._id(group), self._id(topic), sample.time_ms, *found)
            for (group, topic), found in sample.groups.items()
            if before is None or before.groups.get((group, topic)) != found
        ]
        self._database.executemany("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?)", groups)
        measures = [
            (self._id(name), sample.time_ms, value)
            for name, value in _changed(sample.measures, self._measures_before()).items()
        ]
        self._database.executemany("INSERT OR REPLACE INTO measures VALUES (?, ?, ?)", measures)
        self._added += 1 + len(topics) + len(groups) + len(measures)

    def _measures_before(self) -> Mapping[str, float | None]:
        """The measures of the sample before. Those of an earlier console are not equal to any value."""
        if self._last is not None:
            return self._last.measures
        found = self._database.execute("SELECT name FROM names WHERE id IN (SELECT measure FROM measures)")
        return {name: nan for (name,) in found}

    def _id(self, name: str) -> int:
        if name not in self._ids:
            cursor = self._database.execute("INSERT INTO names (name) VALUES (?)", (name,))
            assert cursor.lastrowid is not None
            self._ids[name] = cursor.lastrowid
        return self._ids[name]

    def _prune(self, sample: Sample) -> None:
        """Deletes old rows. If there are too many, an eighth of the time goes until there are few enough."""
        now_ms = sample.time_ms
        begin_ms = now_ms - _LONGEST_MS
        self._database.execute("DELETE FROM samples WHERE time_ms < ?", (begin_ms,))
        self._forget_gone(sample, begin_ms)
        while True:
            for table, key in _CHANGES.items():
                self._database.execute(
                    f"DELETE FROM {table} WHERE time_ms < ?1 AND ({key}, time_ms) NOT IN "
                    f"(SELECT {key}, max(time_ms) FROM {table} WHERE time_ms <= ?1 GROUP BY {key})",
                    (begin_ms,),
                )
            counts = [self._database.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in _CHANGES]
            if sum(counts) <= self._most_rows or begin_ms >= now_ms:
                return
            (oldest_ms,) = self._database.execute(
                f"SELECT min(time_ms) FROM ({' UNION ALL '.join(f'SELECT time_ms FROM {t}' for t in _CHANGES)})"
                " WHERE time_ms > ?",
                (begin_ms,),
            ).fetchone()
            begin_ms = now_ms if oldest_ms is None else oldest_ms + max(1, (now_ms - oldest_ms) // 8)

    def _forget_gone(self, sample: Sample, begin_ms: int) -> None:
        """Deletes the old rows of topics and groups that are gone, and names that nothing uses any more."""
        names = {*sample.topics, *(group for group, _ in sample.groups), *sample.measures}
        alive = {(self._ids[name],) for name in names}
        self._database.execute("CREATE TEMP TABLE IF NOT EXISTS alive (id INTEGER PRIMARY KEY)")
        self._database.execute("DELETE FROM alive")
        self._database.executemany("INSERT INTO alive VALUES (?)", alive)
        columns = [(table, column) for table, key in _CHANGES.items() for column in key.split(", ")]
        for table, column in columns:
            self._database.execute(
                f"DELETE FROM {table} WHERE time_ms < ? AND {column} NOT IN (SELECT id FROM alive)", (begin_ms,)
            )
        self._database.execute(
            "DELETE FROM names WHERE id NOT IN (SELECT id FROM alive UNION "
            + " UNION ".join(f"SELECT {column} FROM {table}" for table, column in columns)
            + ")"
        )
        self._ids = {name: number for number, name in self._database.execute("SELECT id, name FROM names")}

    # -- reading

    def totals(self, since_ms: int) -> list[Row]:
        """The samples since a time: the time, then the columns records, size_bytes, read, lag, offline,
        under_replicated and replica_bytes.
        """
        return self._rows("SELECT * FROM samples WHERE time_ms >= ? ORDER BY time_ms", (since_ms,))

    def times(self, since_ms: int) -> list[int]:
        return [row[0] for row in self._rows("SELECT time_ms FROM samples WHERE time_ms >= ? ORDER BY 1", (since_ms,))]

    def topic(self, name: str, since_ms: int) -> list[Row]:
        """The changes of a topic, and its state before: time, end offsets, bytes."""
        number = self._ids.get(name)
        return self._changes("topics", "end_offsets, size_bytes", "topic = ?", (number,), since_ms)

    def group(self, group: str, topic: str, since_ms: int) -> list[Row]:
        """The changes of what a group has read of a topic, and the state before: time, committed, lag."""
        numbers = (self._ids.get(group), self._ids.get(topic))
        return self._changes("groups", "committed, lag", "consumer_group = ? AND topic = ?", numbers, since_ms)

    def measure(self, name: str, since_ms: int) -> list[Row]:
        """The changes of a measure, and its state before: time, value."""
        return self._changes("measures", "value", "measure = ?", (self._ids.get(name),), since_ms)

    def _changes(
        self, table: str, columns: str, condition: str, values: Iterable[int | None], since_ms: int
    ) -> list[Row]:
        given = (*values, since_ms)
        select = f"SELECT time_ms, {columns} FROM {table} WHERE {condition} AND time_ms"
        before = self._rows(f"{select} < ? ORDER BY time_ms DESC LIMIT 1", given)
        return [*before, *self._rows(f"{select} >= ? ORDER BY time_ms", given)]

    def _rows(self, statement: str, values: tuple[int | None, ...]) -> list[Row]:
        with self._lock, closing(self._database.execute(statement, values)) as found:
            return found.fetchall()


def _changed(now: Mapping[str, float | None], before: Mapping[str, float | None]) -> dict[str, float | None]:
    """The measures that have changed. The value of a measure that is gone is not known any more."""
    changed = {name: value for name, value in now.items() if name not in before or before[name] != value}
    return changed | {name: None for name, value in before.items() if name not in now and value is not None}
