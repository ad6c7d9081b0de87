"""Rows are compared by their types, and differences are told row by row and column by column."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.pipeline.view_tests.cells import UnfitValue, expected_cell, is_equal, rows_of, rows_of_database
from headrace.pipeline.view_tests.comparing import Difference, compare
from headrace.pipeline.view_tests.diff_text import MAX_ROWS, diff_lines, shown, summary

STRUCT = pa.struct([("name", pa.string()), ("n", pa.int64())])
MAP = pa.map_(pa.string(), pa.float64())


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (pa.int64(), 7, 7),
        (pa.bool_(), True, True),
        (pa.float64(), 1.5, Decimal("1.5")),
        (pa.float64(), 2.0, 2),
        (pa.decimal128(10, 2), Decimal("12.50"), Decimal("12.5")),
        (pa.decimal128(10, 2), Decimal("12.50"), "12.5"),
        (pa.decimal128(38, 4), Decimal("12345678901234567890.1234"), Decimal("12345678901234567890.1234")),
        (pa.string(), "ä", "ä"),
        (pa.date32(), date(2026, 11, 16), date(2026, 11, 16)),
        (pa.date32(), date(2026, 11, 16), "2026-11-16"),
        (pa.timestamp("us", "UTC"), datetime(2026, 11, 16, 8, 30, tzinfo=UTC), "2026-11-16T09:30:00+01:00"),
        (pa.timestamp("us", "UTC"), datetime(2026, 11, 16, 8, 30, tzinfo=UTC), datetime(2026, 11, 16, 8, 30)),
        (pa.timestamp("us"), datetime(2026, 11, 16, 8, 30, 0, 5), datetime(2026, 11, 16, 8, 30, 0, 5)),
        (pa.binary(), b"\x01\xff", "01FF"),
        (pa.list_(pa.int64()), [1, None], [1, None]),
        (STRUCT, {"name": "a", "n": None}, {"name": "a"}),
        (MAP, [("a", 1.0)], {"a": 1}),
        (pa.string(), None, None),
        (pa.float64(), float("nan"), Decimal("nan")),
    ],
)
def test_what_a_test_writes_is_what_spark_and_sqlite_have(kind, value, written):
    table = pa.table({"a": pa.array([value], kind)})
    ((found,),) = rows_of(table)
    assert is_equal(found, expected_cell(written, kind), kind)


def test_rows_of_the_database_have_the_types_of_the_answer():
    schema = pa.schema([("ok", pa.bool_()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(5, 1))])
    rows = rows_of_database([(1, "2026-11-16 08:30:00", 0.30000000000000004), (None, None, None)], schema)
    assert rows == [(True, "2026-11-16T08:30:00", "0.3"), (None, None, None)]
    assert rows_of_database([], schema) == []


@pytest.mark.parametrize(
    ("kind", "value", "advice"),
    [
        (pa.int64(), "7", "a whole number"),
        (pa.int64(), True, "a whole number"),
        (pa.int64(), 1.5, "a whole number"),
        (pa.bool_(), 1, "true or false"),
        (pa.float64(), "x", "a number"),
        (pa.decimal128(3, 1), [], "a number"),
        (pa.string(), 7, "a text in quotes"),
        (pa.date32(), datetime(2026, 1, 1), "a date such as"),
        (pa.timestamp("us", "UTC"), "yesterday", "a time such as"),
        (pa.binary(), "xyz", "hexadecimal"),
        (pa.list_(pa.int64()), 7, "a list"),
        (STRUCT, 7, "a table"),
        (STRUCT, {"nam": "a"}, "the struct has no field nam"),
        (MAP, [], "a table"),
    ],
)
def test_a_value_that_no_such_column_has_is_a_mistake(kind, value, advice):
    with pytest.raises(UnfitValue, match=advice):
        expected_cell(value, kind)


SCHEMA = pa.schema([("country", pa.string()), ("year", pa.int64()), ("total", pa.float64())])
DE, FR = ("DE", 2026, 1.5), ("FR", 2026, 2.0)


def compared(expected, found, key=(), *, is_ordered=False) -> Difference:
    return compare(expected, found, SCHEMA, key, is_ordered=is_ordered)


def test_the_order_counts_only_if_the_test_says_so():
    assert not compared([DE, FR], [FR, DE])
    assert compared([DE, FR], [FR, DE], is_ordered=True) == Difference(order=0)
    assert not compared([DE, FR], [DE, FR], is_ordered=True)


def test_rows_are_a_bag():
    assert compared([DE], [DE, DE]) == Difference(unexpected=(DE,))
    assert compared([DE, DE, FR], [DE, FR]) == Difference(missing=(DE,))


def test_sums_of_floats_may_differ_in_their_last_digits():
    assert not compared([("DE", 1, 0.1 + 0.2)], [("DE", 1, 0.3)])
    assert compared([("DE", 1, 0.3001)], [("DE", 1, 0.3)])
    assert compared([("DE", 1, 0.0)], [("DE", 1, None)])


def test_rows_with_the_same_key_have_changed():
    difference = compared([DE, ("US", 1, 1.0)], [("DE", 2025, 9.0), FR], ["country"])
    (changed,) = difference.changed
    assert (changed.expected, changed.found, changed.columns) == (DE, ("DE", 2025, 9.0), (1, 2))
    assert (difference.missing, difference.unexpected) == ((("US", 1, 1.0),), (FR,))


def test_without_a_key_similar_rows_have_changed():
    assert compared([DE], [("DE", 2026, 9.0)]).changed[0].columns == (2,)
    assert compared([DE], [("US", 1, 9.0)]).missing == (DE,)


def test_a_difference_is_a_table_with_marks():
    difference = compared([DE, ("US", 1, None)], [("DE", 2026, 9.0), ("", 2026, 2.0)], ["country"])
    assert diff_lines(difference, SCHEMA.names) == [
        "   country  year  total",
        "~  DE       2026  1.5 -> 9.0",
        "-  US       1     NULL",
        '+  ""       2026  2.0',
    ]
    assert summary(difference) == "1 row missing, 1 row unexpected, 1 row changed"
    assert diff_lines(Difference(order=2), SCHEMA.names) == [
        "the rows are right, but their order differs from row 3 on"
    ]


def test_a_large_difference_is_cut():
    lines = diff_lines(compared([("DE", year, 1.0) for year in range(MAX_ROWS + 5)], []), SCHEMA.names)
    assert (len(lines), lines[-1]) == (MAX_ROWS + 2, "and 5 more rows that differ")


def test_cells_are_readable():
    assert [shown(cell) for cell in (None, "a", " ", "NULL", True, [1], {"a": None})] == [
        "NULL", "a", '" "', "NULL", "true", "[1]", '{"a": null}',
    ]  # fmt: skip
    assert len(shown("x" * 1000)) == 60
