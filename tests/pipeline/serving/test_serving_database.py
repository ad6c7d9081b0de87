"""Transactions, upserts and loads: the same in SQLite and in PostgreSQL."""

import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, ServingError, UnsuitableSchema
from headrace.pipeline.serving.tables import create_table, data_table

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64())])


def pages(*rows):
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


@pytest.fixture
def table(database):
    made = data_table("pages__v1", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, made)
    return made


def rows_of(database, table):
    with database.read() as connection:
        return sorted(connection.execute(table.select()).fetchall(), key=lambda row: row._key)


def test_rows_are_inserted_and_replaced_by_key(database, table):
    with database.begin() as connection:
        database.upsert(connection, table, pages(("a", 1), (None, 2)), batch_id=1)
    with database.begin() as connection:
        database.upsert(connection, table, pages(("a", 5), ("b", 7)), batch_id=2)
    assert rows_of(database, table) == [("a", 5, '["a"]', 2), ("b", 7, '["b"]', 2), (None, 2, "[null]", 1)]


@pytest.mark.parametrize("rows", [1, 3000])
def test_a_batch_that_comes_again_changes_nothing(database, table, rows):
    batch = pages(*((f"page {number:05}", number) for number in range(rows)))
    for _ in range(2):
        with database.begin() as connection:
            database.upsert(connection, table, batch, batch_id=4)
    found = rows_of(database, table)
    assert [row[:2] for row in found] == list(zip(*batch.to_pydict().values(), strict=True))
    assert {row[3] for row in found} == {4}


def test_an_older_batch_does_not_undo_a_newer_one(database, table):
    for batch_id, clicks in ((7, 70), (6, 60)):
        with database.begin() as connection:
            database.upsert(connection, table, pages(("a", clicks)), batch_id=batch_id)
    assert rows_of(database, table) == [("a", 70, '["a"]', 7)]


@pytest.mark.parametrize("others", [0, 3000, 12_000])
def test_the_last_of_two_rows_with_one_key_wins(database, table, others):
    batch = pages(("a", 1), *((f"other {number}", number) for number in range(others)), ("a", 2))
    with database.begin() as connection:
        database.upsert(connection, table, batch, batch_id=1)
    assert rows_of(database, table)[0] == ("a", 2, '["a"]', 1)
    assert len(rows_of(database, table)) == others + 1


def test_two_large_upserts_fit_in_one_transaction(database, table):
    with database.begin() as connection:
        for batch_id in (1, 2):
            batch = pages(*((f"page {number}", batch_id) for number in range(2500)))
            database.upsert(connection, table, batch, batch_id=batch_id)
    assert {row.clicks for row in rows_of(database, table)} == {2}


def test_a_load_of_many_rows_arrives_whole(database, table):
    batch = pages(*((f"page {number * 7919 % 20000}", number) for number in range(20_000)))
    with database.begin() as connection:
        database.bulk_load(connection, table, batch, batch_id=3)
    with database.read() as connection:
        query = text("SELECT count(*), sum(clicks), count(DISTINCT page) FROM pages__v1")
        assert connection.execute(query).one() == (20_000, 199_990_000, 20_000)


def test_a_load_does_not_replace(database, table):
    with database.begin() as connection:
        database.bulk_load(connection, table, pages(("a", 1)))
    with pytest.raises(Exception, match=r"(?i)unique"), database.begin() as connection:
        database.bulk_load(connection, table, pages(("a", 2)))
    assert rows_of(database, table) == [("a", 1, '["a"]', 0)]


def test_rows_are_found_by_key(database, table):
    with database.begin() as connection:
        database.upsert(connection, table, pages(("a", 1), ('quote"s', 2), (None, 3), ("b", 4)), batch_id=1)
    keys = pa.array(['["a"]', "[null]", '["none such"]'])
    with database.read() as connection:
        found = database.fetch(connection, table, keys)
    assert sorted(found.column("clicks").to_pylist()) == [1, 3]
    assert found.schema.field("clicks").type == pa.int64()


def test_what_fails_leaves_nothing_behind(database, table):
    def fail():
        with database.begin() as connection:
            database.upsert(connection, table, pages(("a", 1)))
            create_table(connection, data_table("another", SCHEMA, ["page"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rows_of(database, table) == []
    with database.begin() as connection:  # it was not created either
        assert not connection.dialect.has_table(connection, "another")


def test_a_snapshot_does_not_see_what_is_committed_later(database, table):
    with database.read() as reader:
        assert reader.execute(table.select()).fetchall() == []
        with database.begin() as writer:
            database.upsert(writer, table, pages(("a", 1)))
        assert reader.execute(table.select()).fetchall() == []
    assert len(rows_of(database, table)) == 1


def test_a_snapshot_cannot_write(database, table):
    with pytest.raises(DBAPIError), database.read() as connection:
        connection.execute(table.delete())


def test_a_transaction_may_be_used_from_another_thread(database, table):
    with database.begin() as connection:
        other = threading.Thread(target=database.upsert, args=(connection, table, pages(("a", 1))))
        other.start()
        other.join()
    assert len(rows_of(database, table)) == 1


def test_threads_that_write_take_turns(database, table):
    def write(name):
        for number in range(10):
            with database.begin() as connection:
                database.upsert(connection, table, pages((name, number)), batch_id=number)

    threads = [threading.Thread(target=write, args=(f"thread {number}",)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row[1] for row in rows_of(database, table)] == [9] * 5


def test_two_processes_may_write(database, database_url, table):
    other = Database(database_url)
    with other.begin() as connection:
        other.upsert(connection, table, pages(("a", 1)))
    with database.begin() as connection:
        database.upsert(connection, table, pages(("b", 1)))
    assert len(rows_of(other, table)) == 2
    other.close()


def test_a_writer_that_waits_too_long_says_so(sqlite_url):
    first, second = Database(sqlite_url), Database(sqlite_url, busy_timeout_ms=20)
    with first.begin(), pytest.raises(DatabaseBusy, match="another process has been writing"), second.begin():
        pass
    first.close()
    second.close()


def test_rows_of_other_columns_are_refused(database, table):
    with pytest.raises(UnsuitableSchema, match="hits"), database.begin() as connection:
        database.upsert(connection, table, pages(("a", 1)).append_column("hits", [[1]]))


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/x", "sqlite://", "sqlite:///:memory:"])
def test_a_url_that_is_no_good_says_what_would_be(url):
    with pytest.raises(ServingError, match="sqlite:///FILE"):
        Database(url)


def test_a_database_that_is_not_there_is_named_without_its_password():
    nowhere = Database("postgresql://me:secret@127.0.0.1:1/x")
    with pytest.raises(DatabaseUnreachable, match=r"me:\*\*\*@127.0.0.1:1") as found, nowhere.begin():
        pass
    assert "secret" not in str(found.value)
    nowhere.close()


def test_a_database_that_is_killed_loses_no_commit_and_is_used_again_when_it_is_back(mortal_postgresql):
    server = mortal_postgresql
    database = Database(server.url)
    made = data_table("pages__v1", SCHEMA, ["page"])

    def write_while_it_dies(rows):
        with database.begin() as connection:
            database.upsert(connection, made, pages(("b", 2)))
            server.kill()
            database.upsert(connection, made, rows)

    many = pages(*((f"page {number}", number) for number in range(3000)))
    try:
        with database.begin() as connection:
            create_table(connection, made)
            database.upsert(connection, made, pages(("a", 1)))
        for rows in (pages(("d", 4)), many):
            with pytest.raises(DatabaseUnreachable, match="the transaction was not committed"):
                write_while_it_dies(rows)
            server.start()
        server.kill()
        with pytest.raises(DatabaseUnreachable), database.read():
            pass
        server.start()
        with database.begin() as connection:
            database.upsert(connection, made, pages(("c", 3)))
        assert [row.page for row in rows_of(database, made)] == ["a", "c"]
    finally:
        database.close()


def test_a_writer_that_is_killed_leaves_nothing_behind_and_nobody_waiting(sqlite_url):
    database = Database(sqlite_url)
    made = data_table("pages__v1", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, made)
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, sqlite_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.kill()
    assert rows_of(database, made) == []
    with database.begin() as connection:
        database.upsert(connection, made, pages(("a", 1)))
    assert len(rows_of(database, made)) == 1
    database.close()


_WRITER = """
import sys
from headrace.pipeline.serving.database import Database
with Database(sys.argv[1]).begin() as connection:
    connection.exec_driver_sql(\"INSERT INTO pages__v1 (page, _key, _batch_id) VALUES ('x', 'x', 1)\")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_odd_names_are_quoted(database):
    schema = pa.schema([("count(1)", pa.int64()), ('say "100%s"', pa.string())])
    made = data_table("odd % table", schema, ['say "100%s"'])
    rows = pa.table([[1, 2], ["x", "y"]], schema=schema)
    many = pa.table([list(range(2500)), [str(n) for n in range(2500)]], schema=schema)
    with database.begin() as connection:
        create_table(connection, made)
        database.bulk_load(connection, made, rows)
        database.upsert(connection, made, rows)
        database.upsert(connection, made, many)
        found = database.fetch(connection, made, pa.array(['["x"]']))
    assert found.column("count(1)").to_pylist() == [1]
