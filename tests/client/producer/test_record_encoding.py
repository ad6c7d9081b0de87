"""Columns of records become the bytes that a reader finds the records in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.record_encoding import bound_bytes, encode_records
from headrace.protocol.record_body import decode_records

TIME_MS = 1_700_000_000_000


def read_back(rows):
    batch = ProducerBatch("t", 0, limit_bytes=2**30, reserved_bytes=0, created_ms=0, number=1)
    for timestamp_ms, key, value, headers in rows:
        assert batch.append(timestamp_ms, key, value, headers, None)
    bound = batch.used_bytes
    batch.seal()
    assert batch.used_bytes <= bound
    return [tuple(record[1:]) for record in decode_records(batch.data)]


small = st.binary(max_size=70)


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 63, 64, 8191]), st.none() | small, small), min_size=1, max_size=150)
)
def test_records_with_and_without_keys(rows):
    rows = [(TIME_MS + delta_ms, key, value, ()) for delta_ms, key, value in rows]
    assert read_back(rows) == rows


@given(st.lists(st.tuples(st.sampled_from([0, 0, 5]), small), min_size=1, max_size=150))
def test_records_of_values_alone(rows):
    rows = [(TIME_MS + delta_ms, None, value, ()) for delta_ms, value in rows]
    assert read_back(rows) == rows


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, 8150, 8191, 9000])
@pytest.mark.parametrize("count", [1, 64, 65, 130])
@pytest.mark.parametrize("key", [None, b"", b"k" * 70])
def test_values_of_one_size(size, count, key):
    rows = [(TIME_MS + at // 50, key, b"%d" % (at % 10) * size, ()) for at in range(count)]
    assert read_back(rows) == rows


@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("is_uniform", [True, False])
def test_more_records_than_two_bytes_count(key, is_uniform):
    rows = [(TIME_MS, key, b"x" * (3 if is_uniform else at % 5), ()) for at in range(9000)]
    assert read_back(rows) == rows


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 100))
def test_the_bound_is_one(value_bytes, key_bytes, place):
    key = b"k" * key_bytes if key_bytes else None
    encoded = encode_records(
        [b""] * place + [b"v" * value_bytes], [None] * place + [key], {}, [(0, 5), (place, 8000)][: place + 1]
    )
    assert len(encoded) <= place * bound_bytes(0) + bound_bytes(value_bytes, key_bytes)
