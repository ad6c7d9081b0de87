"""The rows of a view in both databases: copies, order and limit, as a reader sees them."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy

from headrace.pipeline.query.plan import SortBy
from headrace.pipeline.serving.errors import DuplicateKey
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.tables import TIME, ViewTable
from headrace.pipeline.touched.top import Shown

_CODEC = RowCodec(pa.schema([("c0", pa.string()), ("c1", pa.int64())]))
_SCHEMA = pa.schema([("name", pa.string()), ("amount", pa.int64())])


def bag(*rows: tuple[str | None, int, int]) -> Bag:
    """Rows of a name, an amount and a count."""
    names, amounts, counts = (list(each) for each in zip(*rows, strict=True))
    table = pa.table([pa.array(names, pa.string()), pa.array(amounts, pa.int64())], schema=_CODEC.schema)
    return Bag.of(_CODEC, table, [0] * len(rows), np.asarray(counts, dtype=np.int64))


@pytest.fixture
def made(database):
    def make(key=(), **shown) -> ViewTable:
        table = ViewTable("rows", Shown(("name", "amount"), **shown), _SCHEMA, database, key)
        with database.begin() as connection:
            table.create(connection)
        return table

    return make


def change(database, table: ViewTable, change: Bag) -> list[tuple]:
    """What a reader gets after the change."""
    with database.begin() as connection:
        table.add(connection, change)
    with database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(table.select_sql())]


def test_a_row_is_shown_as_often_as_it_occurs(database, made):
    table = made()
    assert sorted(change(database, table, bag(("a", 1, 1), ("b", 2, 3)))) == [("a", 1), ("b", 2), ("b", 2), ("b", 2)]
    assert sorted(change(database, table, bag(("a", 1, 1), ("b", 2, -1)))) == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]
    assert sorted(change(database, table, bag(("a", 1, -2), ("b", 2, -1)))) == [("b", 2)]
    assert change(database, table, bag(("b", 2, -1))) == []


@pytest.mark.parametrize("name", ["i", "copy", "kept", "more", "everything"])
@pytest.mark.parametrize("shown", [{}, {"order": (SortBy("n", False, False),), "limit": 2}])
def test_columns_may_have_any_name(database, name, shown):
    """The SELECT has names of its own, for the copies of a row."""
    schema = pa.schema([(name, pa.string()), ("n", pa.int64())])
    table = ViewTable("rows", Shown((name,), **shown), schema, database)
    with database.begin() as connection:
        table.create(connection)
    assert change(database, table, bag(("a", 1, 2))) == [("a",), ("a",)]
    with database.begin() as connection:
        connection.exec_driver_sql(f"CREATE VIEW made AS {table.select_sql()}")
        assert list(connection.exec_driver_sql("SELECT * FROM made").keys()) == [name]
        connection.exec_driver_sql("DROP VIEW made")


def test_order_limit_and_offset(database, made):
    table = made(order=(SortBy("amount", True, False), SortBy("name", False, True)), limit=3, offset=1)
    rows = bag(("c", 9, 1), ("b", 5, 2), (None, 5, 1), ("a", 1, 1))
    assert change(database, table, rows) == [(None, 5), ("b", 5), ("b", 5)]


def test_names_of_views_may_be_long(database):
    names = [f"{'v' * 50}__v1_b{number}" for number in (1, 10)]
    with database.begin() as connection:
        for name in names:
            ViewTable(name, Shown(("name", "amount")), _SCHEMA, database).create(connection)
        assert set(names) <= set(sqlalchemy.inspect(connection).get_table_names())


def test_a_row_takes_the_place_of_the_row_with_its_key(database, made):
    table = made(key=("name",))
    assert len(change(database, table, bag(("a", 1, 1), (None, 2, 1)))) == 2
    rows = change(database, table, bag(("a", 3, 1), ("a", 1, -1), (None, 2, -1)))
    assert rows == [("a", 3)]


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ([("a", 1, 1)], [("a", 2, 1)], '["a"]'),
        ([("b", 1, 1)], [("a", 1, 1), ("a", 2, 1)], '["a"]'),
        ([(None, 1, 1)], [(None, 2, 1)], "[null]"),
        ([("a", 1, 1)], [("a", 1, 1)], '["a"]'),
        ([("b", 1, 1)], [("a", 1, 2)], '["a"]'),
    ],
    ids=["later", "at once", "NULL", "the same row again", "two copies"],
)
def test_two_rows_with_the_same_key_are_an_error(database, made, first, second, key):
    table = made(key=("name",))
    before = change(database, table, bag(*first))
    with pytest.raises(DuplicateKey, match=re.escape(f"two rows have the same key (name): {key}. A key must")):
        change(database, table, bag(*second))
    with database.read() as connection:
        assert [tuple(row) for row in connection.exec_driver_sql(table.select_sql())] == before


def test_rows_are_found_by_their_key(database, made):
    table = made(key=("name", "amount"))
    with database.read() as connection:
        indexed = {column for index in sqlalchemy.inspect(connection).get_indexes(table.name)
                   for column in index["column_names"]}  # fmt: skip
    assert {"name", "amount"} <= indexed


def test_an_offset_without_a_limit(database, made):
    table = made(order=(SortBy("amount", False, True),), offset=2)
    assert change(database, table, bag(("a", 1, 1), ("b", 2, 1), ("c", 3, 1))) == [("c", 3)]


def test_rows_are_deleted_by_their_time_in_a_table_with_the_longest_name(database):
    codec = RowCodec(pa.schema([("c0", pa.string()), ("c1", pa.int64())]))
    schema = pa.schema([("name", pa.string()), (TIME, pa.int64())])
    table = ViewTable("r" * 63, Shown(("name",)), schema, database, ("name",))
    rows = pa.table([pa.array(["a", "b", "c"]), pa.array([10, 20, 21])], schema=codec.schema)
    with database.begin() as connection:
        table.create(connection)
        table.add(connection, Bag.of(codec, rows, [0, 0, 0], np.ones(3, dtype=np.int64)))
        table.drop_until(connection, 20)
        assert [tuple(row) for row in connection.exec_driver_sql(table.select_sql())] == [("c",)]
