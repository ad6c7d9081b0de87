"""Records inside a batch: round trips, agreement with the code of other clients, and invalid bytes."""

import tracemalloc
import warnings
from struct import pack_into

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.batch_building import build_batch, control_record, recompress
from headrace.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from headrace.protocol.record_body import (
    ControlKind,
    Record,
    decode_records,
    decompress_body,
    iter_checked,
    read_control_kind,
    slice_records,
)
from headrace.protocol.records import CRC_FIELD_AT, HEADER_BYTES, Codec, check_batch, compute_crc
from headrace.protocol.wire.varints import write_varint

with warnings.catch_warnings():
    # kafka-python uses a function that is deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.record.default_records import DefaultRecordBatch as PyBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder

CODECS = list(Codec)
KAFKA_PYTHON_HAS = {
    Codec.none: True, Codec.gzip: True, Codec.snappy: has_snappy(), Codec.lz4: has_lz4(), Codec.zstd: has_zstd(),
}  # fmt: skip
MB = 1024 * 1024

headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
contents = st.none() | st.binary(max_size=200)
timestamps = st.integers(-1, 2**42)
rows = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=20)

SAMPLE = [
    Record(0, 1_700_000_000_000, b"k0", b"v0", ()),
    Record(1, 1_700_000_000_500, None, b"v" * 300, (("h", b"1"), ("ü", None))),
    Record(2, 1_699_999_999_000, b"", None, ()),
]


def numbered(some_rows, base_offset=0, gap=1):
    return [Record(base_offset + at * gap, *row) for at, row in enumerate(some_rows)]


def recrc(batch):
    batch = bytearray(batch)
    pack_into(">I", batch, CRC_FIELD_AT, compute_crc(batch, 0, len(batch)))
    return bytes(batch)


@given(rows, st.sampled_from(CODECS), st.integers(0, 2**62), st.integers(1, 1000))
def test_records_come_back_as_they_were(some_rows, codec, base_offset, gap):
    records = numbered(some_rows, base_offset, gap)
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    assert decode_records(batch) == records
    header = check_batch(batch)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp_ms for record in records)


@given(rows, st.sampled_from(CODECS), st.sampled_from(CODECS))
def test_recompressing_changes_nothing_but_the_codec(some_rows, before, after):
    records = numbered(some_rows)
    batch = recompress(build_batch(records, codec=before, producer_id=7, producer_epoch=1, base_sequence=3), after)
    assert check_batch(batch).codec_number == after
    assert check_batch(batch).producer_id == 7
    assert decode_records(batch) == records


def test_all_header_fields_are_written():
    header = check_batch(
        build_batch(
            SAMPLE, base_offset=0, producer_id=1 << 40, producer_epoch=5, base_sequence=9, leader_epoch=4,
            is_transactional=True, is_control=True, last_offset_delta=10,
        )
    )  # fmt: skip
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 5, 9)
    assert (header.leader_epoch, header.last_offset_delta, header.record_count) == (4, 10, 3)
    assert header.is_transactional
    assert header.is_control


def test_log_append_time_is_the_time_of_every_record():
    batch = build_batch(SAMPLE, log_append_time_ms=1_800_000_000_000)
    assert {record.timestamp_ms for record in decode_records(batch)} == {1_800_000_000_000}


def test_a_delete_horizon_leaves_the_timestamps_alone():
    batch = build_batch(SAMPLE, delete_horizon_ms=1_900_000_000_000)
    assert decode_records(batch) == SAMPLE
    assert check_batch(batch).has_delete_horizon
    assert check_batch(batch).base_timestamp == 1_900_000_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_an_empty_batch_is_not_compressed(codec):
    batch = build_batch([], base_offset=5, codec=codec, last_offset_delta=3)
    assert len(batch) == HEADER_BYTES
    assert check_batch(batch).codec_number == Codec.none
    assert check_batch(batch).last_offset == 8
    assert decode_records(batch) == []
    assert recompress(batch, Codec.zstd) == batch


def test_slices_are_the_bytes_of_the_records():
    batch = build_batch(SAMPLE, codec=Codec.zstd)
    body = decompress_body(check_batch(batch), batch)
    slices = slice_records(check_batch(batch), body)
    assert b"".join(body[part.start : part.end] for part in slices) == body
    assert [(part.offset, part.key, part.has_value) for part in slices] == [
        (record.offset, record.key, record.value is not None) for record in SAMPLE
    ]


def test_a_header_key_that_is_not_utf8_survives():
    records = [Record(0, 1, b"k", b"v", ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"x"),))]
    batch = build_batch(records)
    assert b"\xff\xfe" in batch
    assert decode_records(batch) == records


def test_control_records_are_those_of_kafka():
    record = control_record(ControlKind.commit, 7, timestamp_ms=1)
    assert record.key == bytes.fromhex("0000 0001")
    assert record.value == bytes.fromhex("0000 00000007")
    assert read_control_kind(record.key) == ControlKind.commit
    assert read_control_kind(bytes.fromhex("0000 0005")) == 5
    with pytest.raises(CorruptMessage):
        read_control_kind(b"\0")


# ------------------------------------------------------------------------------------------- other clients' own code


@given(rows, st.sampled_from(CODECS))
def test_aiokafka_reads_ours(some_rows, codec):
    records = numbered(some_rows)
    theirs = AioBatch(build_batch(records, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@given(rows, st.sampled_from(CODECS))
def test_we_read_aiokafkas(some_rows, codec):
    # aiokafka's writer treats a first timestamp of -1 as none, and uses that of the second record as the base.
    records = numbered([(max(0, timestamp_ms), *rest) for timestamp_ms, *rest in some_rows])
    assert decode_records(_built_by(AioBuilder, records, codec)) == records


@pytest.mark.parametrize("codec", [codec for codec in CODECS if KAFKA_PYTHON_HAS[codec]])
def test_kafka_python_reads_ours_and_we_read_its(codec):
    theirs = PyBatch(build_batch(SAMPLE, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == SAMPLE
    assert decode_records(_built_by(PyBuilder, SAMPLE, codec)) == SAMPLE


def _built_by(builder_class, records, codec):
    builder = builder_class(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=MB,
    )  # fmt: skip
    for record in records:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


# ------------------------------------------------------------------------------------------------------ bad input


def test_a_wrong_crc_is_corrupt():
    batch = bytearray(build_batch(SAMPLE))
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        decode_records(batch)


@pytest.mark.parametrize("count", [-1, 2, 4, 2**31 - 1, -(2**31)])
def test_a_wrong_count_is_invalid(count):
    batch = bytearray(build_batch(SAMPLE))
    pack_into(">i", batch, 57, count)
    with pytest.raises(InvalidRecord):
        decode_records(recrc(batch))


def test_a_codec_nobody_has_is_unsupported():
    batch = bytearray(build_batch(SAMPLE))
    batch[22] |= 0x05
    with pytest.raises(UnsupportedCompressionType):
        decode_records(recrc(batch))


def test_a_bomb_is_too_large():
    batch = build_batch([Record(0, 0, None, bytes(8 * MB), ())], codec=Codec.zstd)
    with pytest.raises(MessageTooLarge):
        decode_records(batch, limit_bytes=MB)


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_kafka_errors(garbage):
    with pytest.raises(KafkaError):
        decode_records(garbage)


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 20))
@settings(max_examples=200)
def test_random_bodies_raise_only_kafka_errors(codec, garbage, count):
    batch = bytearray(build_batch(SAMPLE)[:HEADER_BYTES] + garbage)
    pack_into(">i", batch, 8, len(batch) - 12)
    batch[22] = codec
    pack_into(">i", batch, 57, count)
    _only_kafka_errors(recrc(batch))


#: Small bytes are lengths that fit, so about half of the examples are read to their end.
header_bytes = st.binary(max_size=40) | st.lists(st.integers(0, 8), max_size=40).map(bytes)


@given(header_bytes, st.integers(-2, 2))
@settings(max_examples=500)
def test_the_check_and_the_decoder_refuse_the_same_record_headers(headers, missing):
    """One record without key and value; its headers may be any bytes, and its length may be wrong by two bytes."""
    record = bytes([0, 0, 0, 1, 1]) + headers
    body = write_varint(len(record) + missing) + record
    batch = bytearray(build_batch(SAMPLE)[:HEADER_BYTES] + body)
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">i", batch, 57, 1)
    _only_kafka_errors(recrc(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_byte_raises_only_kafka_errors(codec):
    good = build_batch(SAMPLE, codec=codec)
    for at in range(21, len(good)):
        for flip in (0x01, 0x80, 0xFF):
            batch = bytearray(good)
            batch[at] ^= flip
            _only_kafka_errors(recrc(batch))


def test_a_check_of_a_batch_makes_no_objects_of_record_headers():
    """A record of 40 MB may have 20 million headers, and a few kilobytes when it is compressed. The check of a broker
    made a tuple of each of them."""
    count = 100_000
    batch = build_batch([Record(0, 0, b"k", b"v", (("", None),) * count)], codec=Codec.zstd)
    tracemalloc.start()
    try:
        (part,) = iter_checked(batch)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (part.key, part.value_bytes) == (b"k", 1)
    assert peak_bytes < 2 * MB


def _only_kafka_errors(batch):
    """A check refuses exactly what cannot be decoded, and for the same reason."""
    reasons = []
    for read in (iter_checked, decode_records):
        try:
            assert len(list(read(batch))) < MB
        except KafkaError as error:
            reasons.append((type(error), str(error)))
    assert len(reasons) in (0, 2)
    assert len(set(reasons)) < 2
