"""Every Arrow type of Spark can be stored in both databases and read back; equal values have equal keys."""

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.keys import MAX_KEY_BYTES, canonical_keys
from headrace.pipeline.serving.tables import create_table, data_table

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 16, 12, 0, 0)
SOON = datetime.datetime(2026, 11, 16, 12, 0, 0, 250)
POINT = pa.struct([("x", pa.int32()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])

VALUES = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 2**53]),
    "float32": (pa.float32(), [1.5, -0.25]),
    "float64": (pa.float64(), [0.1, 1e300, float("inf"), float("-inf")]),
    "decimal": (pa.decimal128(12, 3), [Decimal("1.500"), Decimal("-123456789.123")]),
    "string": (pa.string(), ["", "plain", "q\"uo'te\\", "ünï ☃ 𝄞", "a,b\nc\r\n", "NULL", "\\N", "null"]),
    "large_string": (pa.large_string(), ["x"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["x", "y", "x"]),
    "binary": (pa.binary(), [b"", b"\x00\xff\\"]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2026, 11, 16)]),
    "timestamp": (pa.timestamp("us"), [NOON, SOON]),
    "timestamp in UTC": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), SOON.replace(tzinfo=UTC)]),
    "timestamp in Tokyo": (pa.timestamp("us", "Asia/Tokyo"), [NOON.replace(tzinfo=UTC)]),
    "timestamp ms": (pa.timestamp("ms"), [NOON]),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3)]),
    "duration": (pa.duration("us"), [datetime.timedelta(days=1, microseconds=7)]),
    "struct": (
        POINT,
        [{"x": 1, "name": 'a "b"', "at": NOON.replace(tzinfo=UTC)}, {"x": None, "name": None, "at": None}],
    ),
    "list": (pa.list_(pa.string()), [[], ["a", None], ["b"]]),
    "list of structs": (pa.list_(POINT), [[{"x": 1, "name": "n", "at": None}]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
    "null": (pa.null(), [None]),
}


def stored_and_fetched(database, kind, values, **options):
    schema = pa.schema([("id", pa.int64()), ("value", kind)])
    table = data_table("things", schema, ["id"], **options)
    rows = pa.table([list(range(len(values))), pa.array(values, kind)], schema=schema)
    with database.begin() as connection:
        create_table(connection, table)
        database.bulk_load(connection, table, rows)
        database.upsert(connection, table, rows, batch_id=1)
        found = database.fetch(connection, table).sort_by("id")
    assert found.schema.field("value").type == kind
    return found.column("value").to_pylist()


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was(database, name):
    kind, values = VALUES[name]
    values = [*values, None]
    wanted = pa.array(values, kind).to_pylist()
    assert stored_and_fetched(database, kind, values) == wanted


def test_large_loads_take_the_same_types(database):
    """From some number of rows on, upserts go another way in PostgreSQL."""
    schema = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
    columns = [pa.array((values * 2100)[:2100], kind) for kind, values in VALUES.values()]
    rows = pa.table([*columns, list(range(2100))], schema=schema.append(pa.field("id", pa.int64())))
    table = data_table("things", rows.schema, ["id"])
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, rows, batch_id=1)
        found = database.fetch(connection, table).sort_by("id")
    assert found.select(rows.column_names).to_pylist() == rows.to_pylist()


def test_decimals_of_many_digits_are_exact_where_that_is_asked_for(database):
    digits = Decimal("12345678901234567890.123456789")
    found = stored_and_fetched(database, pa.decimal128(38, 9), [digits], exact_columns=["value"])
    assert found == [digits]


def test_text_that_is_not_utf8_does_not_stop_a_view(database):
    raw = pa.array([b"good", b"b\xffd", None])
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0], raw.null_count)
    table = data_table("things", pa.schema([("value", pa.string())]), ["value"])
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, pa.table({"value": broken}))
        found = database.fetch(connection, table)
    assert sorted(found.column("value").to_pylist(), key=str) == [None, "b\ufffdd", "good"]


def test_a_zero_byte_does_not_stop_a_view(database):
    kind = pa.struct([("name", pa.string())])
    (found,) = stored_and_fetched(database, kind, [{"name": "a\x00b"}])
    assert found == {"name": "a\ufffdb"}
    with database.begin() as connection:
        table = data_table("texts", pa.schema([("value", pa.string())]), ["value"])
        create_table(connection, table)
        database.upsert(connection, table, pa.table({"value": ["a\x00b"]}))
        (text,) = database.fetch(connection, table).column("value").to_pylist()
    assert text in ("a\x00b", "a\ufffdb")


#: Beyond the years 1 to 9999: epoch milliseconds that were taken for seconds, and both ends of what Spark has.
FAR_US = [1_700_000_000_000_000_000, -(10**17), 2**63 - 1, -(2**63)]
FAR_DAYS = [2**31 - 1, -(2**31)]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [(pa.timestamp("us"), FAR_US), (pa.timestamp("us", "UTC"), FAR_US), (pa.date32(), FAR_DAYS)],
    ids=str,
)
def test_a_far_off_time_does_not_stop_a_view(database, kind, numbers):
    times = pa.array(numbers).cast(pa.int64() if numbers is FAR_US else pa.int32()).view(kind)
    inside = pa.StructArray.from_arrays([times], ["at"])
    rows = pa.table(
        {"at": times, "inside": inside, "all": pa.array([[each] for each in inside], pa.list_(inside.type))}
    )
    table = data_table("things", rows.schema, ["at", "inside"])
    with database.begin() as connection:
        create_table(connection, table)
        for _ in range(2):
            database.upsert(connection, table, rows)
        found = database.fetch(connection, table)
    assert len(found) == len(numbers), "each is a key of its own"
    assert {value.year for value in found.column("at").to_pylist()} == {1, 9999}
    for row in found.to_pylist():
        assert row["inside"] == {"at": row["at"]}
        assert row["all"] == [row["inside"]]


def test_not_a_number_is_null_in_sqlite_only(database):
    (found,) = stored_and_fetched(database, pa.float64(), [float("nan")])
    assert found is None if database.is_sqlite else found != found


def test_times_compare_with_what_a_reader_types(database):
    stored_and_fetched(
        database, pa.timestamp("us", "Europe/Berlin"), [NOON.replace(tzinfo=UTC), SOON.replace(tzinfo=UTC)]
    )
    with database.read() as connection:
        ask = connection.exec_driver_sql
        assert ask("SELECT id FROM things WHERE value = '2026-11-16 12:00:00'").fetchall() == [(0,)]
        assert ask("SELECT id FROM things WHERE value > '2026-11-16 12:00:00'").fetchall() == [(1,)]
        assert ask("SELECT id FROM things ORDER BY value DESC").fetchall() == [(1,), (0,)]


def test_decimals_compare_as_numbers(database):
    stored_and_fetched(database, pa.decimal128(20, 2), [Decimal("9.50"), Decimal("10.00")])
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT id FROM things WHERE value > 9.7").fetchall() == [(1,)]
        assert float(connection.exec_driver_sql("SELECT sum(value) FROM things").scalar()) == 19.5


def test_what_cannot_be_stored_is_refused_with_the_columns_name():
    with pytest.raises(UnsuitableSchema, match="'gap' has the type month_day_nano_interval"):
        data_table("things", pa.schema([("gap", pa.month_day_nano_interval())]), [])


@pytest.mark.parametrize(
    ("names", "keys", "reason"),
    [
        (["a", "A"], [], "two columns are named 'A'"),
        (["a"], ["b"], "key column 'b' is not an output column; these are: a"),
        (["x" * 64], [], "cannot be the name of a column"),
        ([""], [], "cannot be the name of a column"),
    ],
)
def test_columns_that_cannot_be_are_refused(names, keys, reason):
    with pytest.raises(UnsuitableSchema, match=reason):
        data_table("things", pa.schema([(name, pa.int64()) for name in names]), keys)


def test_a_key_may_have_several_rows_if_the_table_says_so(database):
    schema = pa.schema([("page", pa.string()), ("span", pa.int64()), ("p_count", pa.int64())])
    table = data_table("pages__speed", schema, ["page"], primary_key=["_key", "span"])
    rows = pa.table([["a", "a", "a"], [1, 2, 2], [10, 20, 21]], schema=schema)
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, rows)
        found = database.fetch(connection, table, pa.array(['["a"]'])).sort_by("span")
    assert found.column("p_count").to_pylist() == [10, 21]


# ------------------------------------------------------------------------------------------------------------- keys


def keys_of(*columns):
    names = [f"c{number}" for number in range(len(columns))]
    return canonical_keys(pa.table(dict(zip(names, columns, strict=True))), names).to_pylist()


def test_keys_are_json():
    made = keys_of(
        pa.array(["home", 'q"\\\n', None]),
        pa.array([1, None, -3]),
        pa.array([True, False, None]),
        pa.array([Decimal("1.50"), None, Decimal("0.00")], pa.decimal128(5, 2)),
        pa.array([NOON, SOON, None], pa.timestamp("us")),
    )
    assert made == [
        '["home",1,true,1.50,"2026-11-16 12:00:00"]',
        '["q\\"\\\\\\n",null,false,null,"2026-11-16 12:00:00.000250"]',
        "[null,-3,null,0.00,null]",
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))))
def test_keys_are_the_same_exactly_where_the_values_are(rows):
    texts, numbers = [row[0] for row in rows], [row[1] for row in rows]
    made = keys_of(pa.array(texts, pa.string()), pa.array(numbers, pa.int64()))
    assert [tuple(json.loads(key)) for key in made if not key.startswith("sha256")] == [
        row for row, key in zip(rows, made, strict=True) if not key.startswith("sha256")
    ]
    assert len(set(made)) == len(set(rows))


def test_equal_values_of_different_looks_have_one_key():
    assert len(set(keys_of(pa.array([0.0, -0.0])))) == 1
    assert len(set(keys_of(pa.array([float("nan"), -float("nan")])))) == 1
    assert keys_of(pa.array([NOON], pa.timestamp("us", "UTC"))) == keys_of(
        pa.array([NOON], pa.timestamp("ms", "Asia/Tokyo"))
    )
    assert keys_of(pa.array(["x"]).dictionary_encode()) == keys_of(pa.array(["x"], pa.large_string()))
    assert keys_of(pa.chunked_array([["x"], ["y"]])) == ['["x"]', '["y"]']


def test_long_keys_are_hashed_so_that_an_index_takes_them(database):
    long = ["x" * 5000, "x" * 4999 + "y", "x" * (MAX_KEY_BYTES - 4)]
    made = keys_of(pa.array(long))
    assert len(set(made)) == 3
    assert [len(key) for key in made] == [71, 71, MAX_KEY_BYTES]
    table = data_table("things", pa.schema([("c0", pa.string())]), ["c0"])
    with database.begin() as connection:
        create_table(connection, table)
        database.bulk_load(connection, table, pa.table({"c0": long}))


def test_one_total_has_one_key():
    assert canonical_keys(pa.table({"total": [7]}), []).to_pylist() == ["[]"]


def test_no_rows_have_no_keys():
    assert keys_of(pa.array([], pa.string()), pa.array([], pa.int64())) == []
