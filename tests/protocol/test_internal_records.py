"""Records of the internal topics: Kafka's own bytes, round trips, damaged bytes, and records of newer brokers."""

from contextlib import suppress
from dataclasses import MISSING, asdict
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internal_record_examples import GOLDEN, HASHES, OFFSET, OFFSET_KEY, STABLE

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_layouts import LAYOUTS
from headrace.protocol.internal_records import (
    InternalTopic,
    RecordType,
    decode,
    encode_key,
    encode_value,
    java_hash,
    partition_for,
)
from headrace.protocol.layouts import Layout, Struct

EVERY_VERSION = [(kind, version) for kind, layout in LAYOUTS.items() for version in layout.versions]


def expected(struct: Struct, version: int, fields):
    """The given fields that a version has."""
    return {
        layout.name: _kept(layout, version, fields[layout.name])
        for layout in struct.fields
        if layout.since <= version <= layout.until
    }


def _kept(layout: Layout, version: int, value):
    if isinstance(layout.kind, Struct) and value is not None:
        if layout.is_array:
            return tuple(expected(layout.kind, version, item) for item in value)
        return expected(layout.kind, version, value)
    return tuple(value) if layout.is_array and value is not None else value


def id_of(golden):
    return f"{golden.type.name}-v{golden.version}"


@pytest.mark.parametrize("golden", GOLDEN, ids=id_of)
def test_we_write_the_bytes_that_kafka_writes(golden):
    assert encode_key(golden.type, **golden.key).hex() == golden.key_hex
    assert encode_value(golden.type, golden.version, **golden.value).hex() == golden.value_hex


@pytest.mark.parametrize("golden", GOLDEN, ids=id_of)
def test_we_read_the_bytes_that_kafka_writes(golden):
    record = decode(golden.type.topic, bytes.fromhex(golden.key_hex), bytes.fromhex(golden.value_hex))
    assert record is not None
    assert record.type is golden.type
    assert asdict(record.key) == golden.key
    assert asdict(record.value) == expected(LAYOUTS[golden.type].value, golden.version, golden.value)


def test_kafka_wrote_an_example_of_every_type_and_version():
    assert {(golden.type, golden.version) for golden in GOLDEN} == set(EVERY_VERSION)


PRIMITIVES = {
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=200),
    "uuid": st.none() | st.uuids(),
}


def fields_of(struct: Struct):
    return st.fixed_dictionaries({layout.name: _values_of(layout) for layout in struct.fields})


def _values_of(layout: Layout):
    values = fields_of(layout.kind) if isinstance(layout.kind, Struct) else PRIMITIVES[layout.kind]
    if layout.is_array:
        values = st.lists(values, max_size=3)
    if layout.is_nullable:
        values |= st.none()
    if layout.default is not MISSING:
        values |= st.just(layout.default)
    return values


@pytest.mark.parametrize(("kind", "version"), EVERY_VERSION)
@settings(deadline=None, max_examples=40)  # the first example compiles the codec
@given(data=st.data())
def test_what_is_written_is_read(kind, version, data):
    layout = LAYOUTS[kind]
    key, value = data.draw(fields_of(layout.key)), data.draw(fields_of(layout.value))
    record = decode(kind.topic, encode_key(kind, **key), encode_value(kind, version, **value))
    assert record is not None
    assert record.type is kind
    assert asdict(record.key) == key
    assert asdict(record.value) == expected(layout.value, version, value)


def test_a_record_with_no_value_is_a_tombstone():
    record = decode(InternalTopic.CONSUMER_OFFSETS, encode_key(RecordType.OFFSET_COMMIT, **OFFSET_KEY), None)
    assert record is not None
    assert (record.type, record.key.partition, record.value) == (RecordType.OFFSET_COMMIT, 7, None)


def test_left_out_fields_take_their_defaults():
    value = encode_value(RecordType.OFFSET_COMMIT, offset=3, metadata="", commit_timestamp=4)
    assert value == encode_value(
        RecordType.OFFSET_COMMIT, offset=3, leader_epoch=-1, metadata="", commit_timestamp=4, topic_id=None
    )


def test_a_field_that_is_needed_or_unknown_is_our_mistake():
    with pytest.raises(KeyError):
        encode_key(RecordType.OFFSET_COMMIT, group="g", topic="t")
    with pytest.raises(AssertionError, match="leader_epok"):
        encode_value(RecordType.OFFSET_COMMIT, offset=3, leader_epok=1, metadata="", commit_timestamp=4)


def test_values_are_written_in_the_versions_of_kafka_4_3():
    assert {kind.name: layout.written_version for kind, layout in LAYOUTS.items() if len(layout.versions) > 1} == {
        "OFFSET_COMMIT": 4,
        "GROUP_METADATA": 3,
        "TRANSACTION": 1,
    }
    assert encode_value(RecordType.GROUP_METADATA, **STABLE) == encode_value(RecordType.GROUP_METADATA, 3, **STABLE)


def test_an_older_value_has_the_newer_fields_with_their_defaults():
    key = encode_key(RecordType.OFFSET_COMMIT, **OFFSET_KEY)
    record = decode(InternalTopic.CONSUMER_OFFSETS, key, encode_value(RecordType.OFFSET_COMMIT, 0, **OFFSET))
    assert record is not None
    assert (record.value.leader_epoch, record.value.expire_timestamp, record.value.topic_id) == (-1, -1, None)

    key = encode_key(RecordType.GROUP_METADATA, group="g")
    record = decode(InternalTopic.CONSUMER_OFFSETS, key, encode_value(RecordType.GROUP_METADATA, 0, **STABLE))
    assert record is not None
    assert record.value.current_state_timestamp == -1
    assert record.value.members[0].group_instance_id is None


@pytest.mark.parametrize(
    ("topic", "number"), [(InternalTopic.CONSUMER_OFFSETS, 17), (InternalTopic.TRANSACTION_STATE, 1)]
)
def test_a_type_that_only_newer_brokers_know_is_passed_over(topic, number):
    assert decode(topic, number.to_bytes(2, "big") + b"whatever", b"\x00\x00") is None


def test_a_tagged_field_that_only_newer_brokers_know_is_passed_over():
    key = encode_key(RecordType.OFFSET_COMMIT, **OFFSET_KEY)
    value = encode_value(RecordType.OFFSET_COMMIT, offset=3, metadata="m", commit_timestamp=4)
    newer = value[:-1] + b"\x02" + b"\x00\x10" + UUID(int=7).bytes + b"\x63\x02ab"
    record = decode(InternalTopic.CONSUMER_OFFSETS, key, newer)
    assert record is not None
    assert (record.value.metadata, record.value.topic_id) == ("m", UUID(int=7))


@pytest.mark.parametrize("version", [-1, 5])
def test_a_version_that_we_do_not_know_is_refused(version):
    key = encode_key(RecordType.OFFSET_COMMIT, **OFFSET_KEY)
    value = version.to_bytes(2, "big", signed=True) + encode_value(RecordType.OFFSET_COMMIT, **OFFSET)[2:]
    with pytest.raises(CorruptMessage, match="OffsetCommitValue has no version"):
        decode(InternalTopic.CONSUMER_OFFSETS, key, value)


@pytest.mark.parametrize("golden", GOLDEN, ids=id_of)
def test_a_record_that_is_cut_short_is_refused(golden):
    key, value = bytes.fromhex(golden.key_hex), bytes.fromhex(golden.value_hex)
    for end in range(len(key)):
        with pytest.raises(CorruptMessage):
            decode(golden.type.topic, key[:end], value)
    for end in range(len(value)):
        with pytest.raises(CorruptMessage):
            decode(golden.type.topic, key, value[:end])


@settings(deadline=None)
@given(st.sampled_from(GOLDEN), st.data())
def test_damage_is_refused_or_read_but_never_anything_else(golden, data):
    value = bytearray.fromhex(golden.value_hex)
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(2, len(value) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptMessage):
        decode(golden.type.topic, bytes.fromhex(golden.key_hex), bytes(value))


@pytest.mark.parametrize(("text", "hashed", "partition"), HASHES)
def test_groups_are_in_the_partition_where_kafka_looks_for_them(text, hashed, partition):
    assert java_hash(text) == hashed
    assert partition_for(text, 50) == partition


def test_a_member_without_a_classic_side_is_written_as_kafka_writes_it():
    """The bytes come from an Apache Kafka 4.3: the tagged field is there, and is null."""
    kind = RecordType.CONSUMER_GROUP_MEMBER_METADATA
    key = bytes.fromhex("0005 000f 67726f75702d6131363739362d3333 0001 61")
    value = bytes.fromhex(
        "0000 00 00 0b7261772d636c69656e74 0b2f3132372e302e302e31 0210746f7069632d6131363739362d3334 01 0000ea60 00"
        "01000100"
    )
    record = decode(InternalTopic.CONSUMER_OFFSETS, key, value)
    assert record.value.classic_member_metadata is None
    assert record.value.subscribed_topic_names == ("topic-a16796-34",)
    fields = {name: getattr(record.value, name) for name in record.value.__dataclass_fields__}
    assert encode_value(kind, **fields) == value
