"""The rows of a view in both databases: copies, order and limit, as a reader sees them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy

from headrace.pipeline.query.plan import SortBy
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.tables import ViewTable
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
    def make(**shown) -> ViewTable:
        table = ViewTable("rows", Shown(("name", "amount"), **shown), _SCHEMA, database)
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


def test_an_offset_without_a_limit(database, made):
    table = made(order=(SortBy("amount", False, True),), offset=2)
    assert change(database, table, bag(("a", 1, 1), ("b", 2, 1), ("c", 3, 1))) == [("c", 3)]
