"""The batch header: its layout, its crc, and the values that are rejected."""

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.record_body import Record
from headrace.protocol.records import HEADER, HEADER_BYTES, Codec, check_batch, iter_headers, read_header

BATCH = build_batch(
    [Record(100, 1000, b"k", b"v"), Record(101, 3000, b"k", b"v"), Record(102, 2000, b"k", b"v")],
    base_offset=100, producer_id=9, producer_epoch=2, base_sequence=5, leader_epoch=3,
)  # fmt: skip


def test_the_header_is_61_bytes():
    assert HEADER_BYTES == 61


def test_the_fields_are_where_kafka_has_them():
    header = check_batch(BATCH)
    assert int.from_bytes(BATCH[0:8], "big") == header.base_offset == 100
    assert int.from_bytes(BATCH[8:12], "big") == header.batch_length == len(BATCH) - 12
    assert int.from_bytes(BATCH[12:16], "big") == header.leader_epoch == 3
    assert BATCH[16] == header.magic == 2
    assert int.from_bytes(BATCH[17:21], "big") == header.crc
    assert int.from_bytes(BATCH[23:27], "big") == header.last_offset_delta == 2
    assert int.from_bytes(BATCH[27:35], "big") == header.base_timestamp == 1000
    assert int.from_bytes(BATCH[35:43], "big") == header.max_timestamp == 3000
    assert int.from_bytes(BATCH[43:51], "big") == header.producer_id == 9
    assert int.from_bytes(BATCH[51:53], "big") == header.producer_epoch == 2
    assert int.from_bytes(BATCH[53:57], "big") == header.base_sequence == 5
    assert int.from_bytes(BATCH[57:61], "big") == header.record_count == 3


def test_what_follows_from_the_fields():
    header = check_batch(BATCH)
    assert header.size_bytes == len(BATCH)
    assert (header.last_offset, header.next_offset) == (102, 103)
    assert header.last_sequence == 7
    assert header.has_producer


def test_sequences_wrap_to_zero():
    assert read_header(BATCH)._replace(base_sequence=2**31 - 2).last_sequence == 0
    assert read_header(BATCH)._replace(base_sequence=-1).last_sequence == -1


@pytest.mark.parametrize(
    ("bit", "name"),
    [(0x08, "is_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_each_bit_is_one_property(bit, name):
    assert getattr(read_header(BATCH)._replace(attributes=bit), name)
    assert not getattr(read_header(BATCH)._replace(attributes=0xFF & ~bit), name)


def test_codec_numbers():
    assert [read_header(BATCH)._replace(attributes=0x78 | codec).codec_number for codec in Codec] == [0, 1, 2, 3, 4]


def test_offset_and_epoch_are_outside_the_crc():
    batch = bytearray(BATCH)
    pack_into(">q", batch, 0, 12345)
    pack_into(">i", batch, 12, 99)
    assert check_batch(batch).base_offset == 12345


@given(st.integers(21, len(BATCH) - 1), st.integers(1, 255))
def test_any_change_under_the_crc_is_noticed(at, flip):
    batch = bytearray(BATCH)
    batch[at] ^= flip
    with pytest.raises(CorruptMessage):
        check_batch(batch)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magics_are_refused(magic):
    batch = bytearray(BATCH)
    pack_into("b", batch, 16, magic)
    with pytest.raises(CorruptMessage, match="magic"):
        check_batch(batch)


@pytest.mark.parametrize("length", [-1, 0, 48, len(BATCH) - 11, 2**31 - 1, -(2**31)])
def test_a_length_that_does_not_fit_is_refused(length):
    batch = bytearray(BATCH)
    pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptMessage):
        check_batch(batch)


def test_every_cut_is_refused():
    for end in range(len(BATCH)):
        with pytest.raises(CorruptMessage):
            check_batch(BATCH[:end])


def test_a_batch_is_found_within_a_buffer():
    buffer = b"before" + BATCH + b"after"
    assert check_batch(buffer, 6) == check_batch(BATCH)
    assert HEADER.unpack_from(buffer, 6) == tuple(read_header(buffer, 6))


def test_headers_of_a_buffer_stop_before_a_cut_batch():
    for cut in range(1, len(BATCH)):
        assert [position for position, _ in iter_headers((BATCH * 3)[:-cut])] == [0, len(BATCH)]
    assert [position for position, _ in iter_headers(BATCH * 2)] == [0, len(BATCH)]
    assert list(iter_headers(b"")) == []
