"""Blocks: what tasks make of rows comes back by key, together with later changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.blocks import KEY, BlockMaker, bits_for, bucket_of
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.state_table import StateTable

_CODEC = RowCodec(pa.schema([("text", pa.string()), ("number", pa.float64()), ("list", pa.list_(pa.int64()))]))
_MANY = 3_000


def rows_of(numbers: list[int]) -> pa.Table:
    columns = [
        [None if at % 7 == 0 else f"r{at}" for at in numbers],
        [float("nan") if at % 5 == 0 else at / 2 for at in numbers],
        [[at, None] for at in numbers],
    ]
    pairs = zip(columns, _CODEC.schema, strict=True)
    return pa.table([pa.array(each, field.type) for each, field in pairs], schema=_CODEC.schema)


def key_of(number: int) -> int:
    """Hashes of both signs, three rows each."""
    return ((number // 3) * 0x9E3779B97F4A7C15 + (1 << 63)) % (1 << 64) - (1 << 63)


@pytest.fixture(params=[0, 5], ids=["one bucket", "many buckets"])
def state(database, request) -> StateTable:
    made = StateTable("state", _CODEC)
    numbers = list(range(_MANY))
    given = rows_of(numbers).append_column(KEY, pa.array(map(key_of, numbers), pa.int64()))
    batches = given.to_batches(max_chunksize=1_000)
    with database.begin() as connection:
        made.create(connection)
        for blocks in BlockMaker(_CODEC.schema, request.param)(iter(batches)):
            made.blocks.add(connection, pa.Table.from_batches([blocks]), request.param)
    return made


def read(database, state: StateTable, *numbers: int) -> dict[bytes, int]:
    with database.read() as connection:
        found = state.read(connection, {key_of(each) for each in numbers})
    return dict(zip(found.identities, found.counts, strict=True))


def bag(numbers: list[int], counts: list[int]) -> Bag:
    return Bag.of(_CODEC, rows_of(numbers), [key_of(each) for each in numbers], np.asarray(counts))


def test_the_rows_of_a_key_come_back(database, state):
    expected = bag([30, 31, 32, 2_997, 2_998, 2_999], [1] * 6)
    assert read(database, state, 30, 2_998) == dict(zip(expected.identities, [1] * 6, strict=True))
    with database.read() as connection:
        assert len(state.read_all(connection).identities) == _MANY
        assert not state.read(connection, {12345})


def test_changes_are_added_to_the_blocks(database, state):
    for change in (bag([30, 31, 31], [-1, 1, 1]), bag([7_000], [1])):
        with database.begin() as connection:
            state.add(connection, change)
    thirty, one, two = bag([30], [1]).identities[0], bag([31], [1]).identities[0], bag([32], [1]).identities[0]
    assert read(database, state, 30) == {one: 3, two: 1}
    with database.begin() as connection:
        state.add(connection, bag([30], [1]))
    assert read(database, state, 30) == {thirty: 1, one: 3, two: 1}
    assert list(read(database, state, 7_000).values()) == [1]


def test_equal_rows_in_blocks_are_counted(database):
    made = StateTable("state", _CODEC)
    given = rows_of([1, 2, 1]).append_column(KEY, pa.array([9, 9, 9], pa.int64()))
    with database.begin() as connection:
        made.create(connection)
        for blocks in BlockMaker(_CODEC.schema, 0)(iter(given.to_batches())):
            made.blocks.add(connection, pa.Table.from_batches([blocks]), 0)
    with database.read() as connection:
        assert sorted(made.read(connection, {9}).counts) == [1, 2]


def test_buckets_are_the_first_bits_of_the_hash():
    keys = np.asarray([0, 1, -1, 1 << 62, -(1 << 63)])
    assert bucket_of(keys, 2).tolist() == [0, 0, 3, 1, 2]
    assert bucket_of(keys, 0).tolist() == [0] * 5


def test_more_rows_have_more_buckets_of_about_the_same_size():
    assert [bits_for(count) for count in (0, 255, 256, 5_000_000)] == [0, 0, 1, 15]
    assert 5_000_000 >> bits_for(5_000_000) in range(100, 300)
