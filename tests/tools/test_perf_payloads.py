"""Batches of producer-perf-test are batches that a broker takes, of the size that was asked for."""

from random import Random

import pytest

from headrace.protocol.record_body import decode_records
from headrace.protocol.records import HEADER, HEADER_BYTES, compute_crc
from headrace.tools.perf.payloads import BatchMaker, file_source, monotonic_source, random_source


def values_of(made, timestamp_ms=5):
    """Of a batch, once it has the header that a producer would give it."""
    data = bytearray(made.body)
    assert data[:HEADER_BYTES] == bytes(HEADER_BYTES)
    head = [0, len(data) - 12, 0, 2, 0, 0, made.record_count - 1, timestamp_ms, timestamp_ms, -1, -1, -1,
            made.record_count]  # fmt: skip
    HEADER.pack_into(data, 0, *head)
    head[4] = compute_crc(data, 0, len(data))
    HEADER.pack_into(data, 0, *head)
    records = decode_records(bytes(data))
    assert [record.offset for record in records] == list(range(made.record_count))
    assert {record.timestamp_ms for record in records} == {timestamp_ms}
    return [record.value for record in records]


@pytest.mark.parametrize("size_bytes", [0, 1, 7, 8, 100, 9000])
@pytest.mark.parametrize("batch_bytes", [0, 1000, 16384, 100_000])
def test_random_letters_of_one_size(size_bytes, batch_bytes):
    maker = BatchMaker(random_source(size_bytes), batch_bytes)
    for most in (10_000, 1, 10_000, 10_000):
        made = maker.make(most, 5)
        values = values_of(made)
        assert {len(value) for value in values} == {size_bytes}
        assert made.payload_bytes == size_bytes * made.record_count
        assert 1 <= made.record_count <= most
        assert len(made.body) <= batch_bytes or made.record_count == 1
        assert all(65 <= byte <= 90 for value in values for byte in value)


def test_batches_are_nearly_full_and_differ():
    maker = BatchMaker(random_source(100), 16384)
    first, second = maker.make(10_000, 5), maker.make(10_000, 5)
    assert len(first.body) > 16384 * 0.95
    assert len({*values_of(first), *values_of(second)}) == first.record_count + second.record_count


def test_the_lines_of_a_file_in_any_order():
    maker = BatchMaker(file_source([b"a", b"bb" * 300, b"ccc"], Random(1)), 2000)
    seen = set()
    for _ in range(20):
        made = maker.make(50, 5)
        values = values_of(made)
        seen.update(values)
        assert len(made.body) <= 2000
        assert made.payload_bytes == sum(map(len, values))
    assert seen == {b"a", b"bb" * 300, b"ccc"}


def test_numbers_are_never_left_out():
    maker = BatchMaker(monotonic_source(), 300)
    values = []
    while len(values) < 2000:
        values += values_of(maker.make(2000 - len(values), 5))
    assert values == [b"%d" % number for number in range(2000)]
