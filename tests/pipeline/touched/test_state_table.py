"""State in both databases: rows are added up, read by key, and gone at 0."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.state_table import StateTable

_CODEC = RowCodec(pa.schema([("c0", pa.string()), ("c1", pa.float64()), ("c2", pa.list_(pa.int64()))]))
_ROWS = [("a\x00'", 0.5, [1, None]), ("b", float("nan"), None), (None, -0.0, [])]
_KEYS = [-(1 << 63), 7, 7]


def bag(counts: list[int], places: list[int] | None = None) -> Bag:
    chosen = range(len(_ROWS)) if places is None else places
    columns = list(zip(*(_ROWS[at] for at in chosen), strict=True))
    rows = pa.table([pa.array(each, field.type) for each, field in zip(columns, _CODEC.schema, strict=True)],
                    schema=_CODEC.schema)  # fmt: skip
    return Bag.of(_CODEC, rows, [_KEYS[at] for at in chosen], np.asarray(counts))


@pytest.fixture
def state(database) -> StateTable:
    made = StateTable("state", _CODEC)
    with database.begin() as connection:
        made.create(connection)
    return made


def stored(database, state: StateTable, *keys: int) -> dict[bytes, int]:
    with database.read() as connection:
        found = state.read(connection, keys)
    return dict(zip(found.identities, found.counts, strict=True))


def test_rows_come_back_with_their_identity(database, state):
    given = bag([1, 2, 3])
    with database.begin() as connection:
        state.add(connection, given)
    with database.read() as connection:
        found = state.read(connection, set(_KEYS))
    order = sorted(range(3), key=found.identities.__getitem__)
    expected = sorted(range(3), key=given.identities.__getitem__)
    assert [found.identities[at] for at in order] == [given.identities[at] for at in expected]
    assert repr(found.rows.take(order).to_pylist()) == repr(given.rows.take(expected).to_pylist())


def test_only_rows_of_the_keys_are_read(database, state):
    given = bag([1, 2, 3])
    with database.begin() as connection:
        state.add(connection, given)
    assert stored(database, state, 7) == dict(zip(given.identities[1:], [2, 3], strict=True))
    assert stored(database, state, 8) == {}


def test_counts_add_up_and_rows_without_copies_are_gone(database, state):
    given = bag([1, 2, 3])
    with database.begin() as connection:
        state.add(connection, given)
    with database.begin() as connection:
        state.add(connection, bag([-1, 5], [0, 2]))
    assert stored(database, state, *_KEYS) == {given.identities[1]: 2, given.identities[2]: 8}


def test_many_rows_at_once(database, state):
    """More rows than PostgreSQL gets as parameters."""
    count = 5_000
    rows = pa.table([pa.array([f"r{at}" for at in range(count)]), pa.array([float(at) for at in range(count)]),
                     pa.array([[at] for at in range(count)], pa.list_(pa.int64()))], schema=_CODEC.schema)  # fmt: skip
    many = Bag.of(_CODEC, rows, list(range(count)), np.ones(count, dtype=np.int64))
    for _ in range(2):
        with database.begin() as connection:
            state.add(connection, many)
    assert set(stored(database, state, *range(count)).values()) == {2}
    assert len(stored(database, state, *range(0, count, 2))) == count // 2
