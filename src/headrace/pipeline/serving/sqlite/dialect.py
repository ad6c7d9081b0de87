"""The SQLite side of the serving database: files, pragmas, transactions.

The file is in WAL mode: a reader sees the whole database as it was when its transaction began, and neither waits for
the writer nor delays it. Writers begin with BEGIN IMMEDIATE, so that they wait at the start of a transaction and never
in the middle. ``synchronous`` is FULL, because Spark does not repeat a batch that was committed here: a commit has to
survive a power failure.

A crash leaves the WAL beside the file. The next process that opens the file reads the WAL up to the last commit.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from headrace.pipeline.serving.errors import DatabaseUnreachable


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Used only with ``for_queries``: SQLite stores a boolean as a number and JSON as text.
sqlite3.register_converter("BOOLEAN", lambda value: value != b"0")
sqlite3.register_converter("JSON", json.loads)


def open_engine(path: Path, *, read_only: bool, busy_timeout_ms: int, for_queries: bool = False) -> Engine:
    """An engine whose transactions begin with BEGIN IMMEDIATE to write, and with BEGIN to read.

    :param for_queries: for queries of users: booleans and JSON are returned as such, if SQLite knows the type of the
        column.
    """
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    source = f"file:{quote(str(path))}?mode={'ro' if read_only else 'rwc'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            source,
            uri=True,
            timeout=busy_timeout_ms / 1000,
            check_same_thread=False,  # the pool gives a connection to one thread at a time
            isolation_level=None,
            detect_types=sqlite3.PARSE_DECLTYPES if for_queries else 0,
            cached_statements=0 if for_queries else 128,  # the authorizer does not see a cached statement
        )
        for pragma in _READER_PRAGMAS if read_only else _WRITER_PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=8, max_overflow=24)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


_READER_PRAGMAS = ("query_only=ON",)
_WRITER_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "cache_size=-65536",
    "temp_store=MEMORY",
    "journal_size_limit=67108864",  # truncates a WAL that has become large
)


def prepare_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnreachable(f"cannot create the folder of {path}: {error.strerror}") from None


def driver(connection: Connection) -> sqlite3.Connection:
    made = connection.connection.driver_connection
    assert isinstance(made, sqlite3.Connection)
    return made
