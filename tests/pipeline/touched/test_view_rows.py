"""The rows of a build, as tasks cut them into ranges of identities."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from headrace.pipeline.touched.bag import COUNT
from headrace.pipeline.touched.row_codec import RowCodec, identities
from headrace.pipeline.touched.view_rows import IDENTITY, RangeMaker, ViewRows, range_bits, summed

_COLUMNS = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
_ROWS = [(at % 40, f"t{at % 40}") for at in range(100)]


def ranges(bits: int) -> list[tuple[int, pa.Table]]:
    columns = zip(*_ROWS, strict=True)
    given = pa.table([pa.array(each) for each in columns], schema=_COLUMNS).append_column(
        "_k", pa.nulls(100, pa.int64())
    )
    made = RangeMaker(_COLUMNS, bits)(iter(given.to_batches(max_chunksize=30)))
    return [(batch["range"][0].as_py(), pa.ipc.open_stream(batch["rows"][0].as_buffer()).read_all()) for batch in made]


def test_equal_rows_are_one_row_with_a_count():
    ((number, rows),) = ranges(0)
    assert number == 0
    found = zip(rows["c0"].to_pylist(), rows["c1"].to_pylist(), rows[COUNT].to_pylist(), strict=True)
    assert {(c0, c1): n for c0, c1, n in found} == Counter(_ROWS)


def test_rows_have_the_identity_that_micro_batches_compute():
    ((_, rows),) = ranges(0)
    expected = identities(RowCodec(_COLUMNS).encode(rows.select(["c0", "c1"])), rows.num_rows)
    assert rows[IDENTITY].to_pylist() == [each.hex() for each in expected]


def test_a_range_has_the_identities_that_begin_with_its_bits():
    made = ranges(3)
    assert [number for number, _ in made] == sorted(number for number, _ in made)
    for number, rows in made:
        assert {int(each[0], 16) >> 1 for each in rows[IDENTITY].to_pylist()} == {number}
    assert sum(rows.num_rows for _, rows in made) == 40


def test_counts_of_several_tasks_are_added_up():
    ((_, rows),) = ranges(0)
    both = summed(pa.concat_tables([rows, rows.slice(0, 10)]))
    assert both.num_rows == 40
    assert sum(both[COUNT].to_pylist()) == 100 + sum(rows[COUNT].to_pylist()[:10])


def test_views_of_many_rows_have_more_ranges():
    assert [range_bits(count) for count in (0, 99_999, 100_000, 2_000_000)] == [0, 0, 1, 5]


def test_ranges_are_fetched_in_order_and_a_few_at_a_time(spark, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.touched.view_rows._ROWS_PER_RANGE", 1_000)
    monkeypatch.setattr("headrace.pipeline.touched.view_rows._BYTES_PER_FETCH", 100_000)
    frame = spark.range(0, 20_000, 1, 3).selectExpr("id % 10000 AS c0", "concat('t', id % 10000) AS c1", "0L AS _k")
    rows = ViewRows(frame, _COLUMNS, 20_000)
    try:
        rows.start()
        in_order = rows.in_order()
        assert 5 <= in_order.rdd.getNumPartitions() <= 32
        assert [row.range for row in in_order.collect()] == sorted(row.range for row in in_order.collect())
        tables = list(rows.tables())
    finally:
        rows.close()
    assert len(tables) == 32
    identities_found = [each for table in tables for each in table[IDENTITY].to_pylist()]
    assert len(identities_found) == len(set(identities_found)) == 10_000
    assert {count for table in tables for count in table[COUNT].to_pylist()} == {2}
