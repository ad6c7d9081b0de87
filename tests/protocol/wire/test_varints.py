"""Varints: what is written reads back, and what Kafka would not read is an error, whatever the bytes are."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.protocol.errors import InvalidRecord
from headrace.protocol.wire.reader import WireReader
from headrace.protocol.wire.varints import (
    LARGEST_LENGTH,
    LARGEST_OF_PROTOBUF,
    LARGEST_TAG,
    PROTOBUF_LAST_SHIFT,
    BadVarint,
    put_uvarint,
    read_long_uvarint,
    read_uvarint,
    read_varint,
    write_varint,
)


def uvarint(value: int) -> bytes:
    out = bytearray()
    put_uvarint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (LARGEST_LENGTH, b"\xff\xff\xff\xff\x07"),
        (LARGEST_TAG, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_unsigned_varints(value, data):
    assert uvarint(value) == data


@given(st.integers(0, LARGEST_LENGTH), st.binary(max_size=3), st.binary(max_size=3))
@example(127, b"", b"").via("the largest of one byte")
@example(128, b"", b"").via("the smallest of two bytes")
@example(LARGEST_LENGTH, b"", b"").via("the largest of all")
def test_an_unsigned_varint_reads_back(value, before, behind):
    data = before + uvarint(value) + behind
    end = len(data) - len(behind)
    assert read_uvarint(data, len(before)) == (value, end)
    assert read_uvarint(memoryview(data), len(before)) == (value, end)
    reader = WireReader(memoryview(data), len(before))
    assert (reader.uvarint(), reader.at) == (value, end)
    if value > 127:
        assert read_long_uvarint(data, len(before) + 1) == (value, end)


@given(st.integers(LARGEST_LENGTH + 1, 2**70))
@example(LARGEST_LENGTH + 1).via("the smallest that Kafka reads as a negative number")
@example(2**35).via("the smallest of six bytes")
def test_a_larger_unsigned_varint_is_an_error(value):
    with pytest.raises(BadVarint):
        read_uvarint(uvarint(value), 0)
    with pytest.raises(BadVarint):
        WireReader(memoryview(uvarint(value))).uvarint()


@given(st.integers(0, 2**70))
@example(LARGEST_TAG).via("the largest tag")
@example(LARGEST_TAG + 1).via("too large for a tag, and no longer")
def test_a_tag_may_use_32_bits(value):
    if value <= LARGEST_TAG:
        assert read_uvarint(uvarint(value), 0, LARGEST_TAG) == (value, len(uvarint(value)))
    else:
        with pytest.raises(BadVarint):
            read_uvarint(uvarint(value), 0, LARGEST_TAG)


@given(st.integers(0, 2**77))
@example(2**64 - 1).via("the largest number of protobuf")
@example(LARGEST_OF_PROTOBUF).via("the largest of ten bytes")
@example(LARGEST_OF_PROTOBUF + 1).via("the smallest of eleven bytes")
def test_a_varint_of_protobuf_may_have_ten_bytes(value):
    data = uvarint(value)
    if value <= LARGEST_OF_PROTOBUF:
        assert read_uvarint(data, 0, LARGEST_OF_PROTOBUF, PROTOBUF_LAST_SHIFT) == (value, len(data))
    else:
        with pytest.raises(BadVarint, match="more than 10 bytes"):
            read_uvarint(data, 0, LARGEST_OF_PROTOBUF, PROTOBUF_LAST_SHIFT)


@given(st.integers(0, LARGEST_LENGTH), st.data())
def test_an_unsigned_varint_that_is_cut_is_an_error(value, data):
    whole = uvarint(value)
    with pytest.raises(IndexError):
        read_uvarint(whole[: data.draw(st.integers(0, len(whole) - 1))], 0)


@given(st.binary(max_size=12))
@example(b"\x80\x80\x80\x80\x00").via("zero in five bytes")
@example(b"\x80\x80\x80\x80\x80\x00").via("zero in six bytes")
@example(b"\xff" * 12).via("endless")
def test_any_bytes_are_a_bounded_unsigned_varint_or_an_error(data):
    try:
        value, end = read_uvarint(data, 0)
    except (BadVarint, IndexError):
        return
    assert 0 <= value <= LARGEST_LENGTH
    assert 1 <= end <= 5
    assert data[end - 1] < 0x80


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_signed_varint_reads_back(value, before):
    data = before + write_varint(value)
    assert read_varint(data, len(before)) == (value, len(data))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_signed_varint_of_64_bits_or_an_error(data):
    try:
        value, end = read_varint(data, 0)
    except (InvalidRecord, IndexError):
        return
    assert -(2**63) <= value < 2**63
    assert 1 <= end <= 10
