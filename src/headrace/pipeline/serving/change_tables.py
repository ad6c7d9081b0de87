"""Holds the tables of the changes of views: what is followed, the outbox, leases of readers, what left the database.

::

    headrace_followed       view | the stream and its last number, and the as_of of its ``reported_rows``
    headrace_changes        view, seq | the outbox: one change of one row each, numbered without gaps
    headrace_change_steps   view, last_seq | the changes of one comparison: their as_of, version and time
    headrace_change_leases  view | until when readers of the change feed want the view to be followed
    headrace_published      view | the topic, and the number of the last change that it has
    headrace_keys           view, version | the columns that identify a row of the version
    headrace_schemas        view, version | the columns of the version, as an Arrow schema
    headrace_exported       view | the folder with the view as a Delta table, and its last snapshot

A *stream* is one sequence of changes. It has a random id. A view gets a new stream if its columns or its key change, if
more rows change at once than the outbox keeps, and if it was not followed for a while. Numbers begin at 1 again then.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, Table, Text

from headrace.pipeline.serving.catalog_tables.versions import METADATA

FOLLOWED = Table(
    "headrace_followed",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("columns", Text, nullable=False),
    Column("key_columns", Text),
    Column("first_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("signature", Text, nullable=False),
    Column("as_of", Text, nullable=False),
    Column("began_ms", BigInteger, nullable=False),
)

CHANGES = Table(
    "headrace_changes",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("op", Text, nullable=False),
    Column("key", Text),
    Column("before", Text),
    Column("after", Text),
    Column("copies", BigInteger, nullable=False),
)

CHANGE_STEPS = Table(
    "headrace_change_steps",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("last_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("as_of", Text, nullable=False),
    Column("made_ms", BigInteger, nullable=False),
)

CHANGE_LEASES = Table(
    "headrace_change_leases",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("until_ms", BigInteger, nullable=False),
)

PUBLISHED = Table(
    "headrace_published",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("topic", Text, nullable=False),
    Column("topic_id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("error", Text),
    Column("updated_ms", BigInteger, nullable=False),
)

VERSION_KEYS = Table(
    "headrace_keys",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("columns", Text, nullable=False),
)

VERSION_SCHEMAS = Table(
    "headrace_schemas",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("schema", Text, nullable=False),
)

EXPORTED = Table(
    "headrace_exported",
    METADATA,
    Column("view", Text, primary_key=True),
    Column("path", Text, nullable=False),
    Column("snapshot", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("as_of", Text, nullable=False),
    Column("error", Text),
    Column("updated_ms", BigInteger, nullable=False),
)

#: The tables whose rows belong to a version and are deleted with it.
OF_COLUMNS = (VERSION_KEYS, VERSION_SCHEMAS)
#: The tables whose rows belong to a view and are deleted with it.
OF_CHANGES = (FOLLOWED, CHANGES, CHANGE_STEPS, CHANGE_LEASES, PUBLISHED, EXPORTED)


def reported_table_name(view: str) -> str:
    """The table with the rows of a view as they were reported last."""
    return f"{view}__told"
