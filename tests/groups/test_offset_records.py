"""The bytes of a committed offset: the fast encoder and decoder agree with the schema."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.offset_records import (
    CommittedOffset,
    TopicCommit,
    checked_key,
    group_of,
    group_prefix_of,
    offset_key,
    read_value,
    topic_and_partition_of,
    write_values,
)
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import RecordType, encode_key, encode_value

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
metadata = names | st.text("aé", min_size=100, max_size=140)
topic_ids = st.none() | st.uuids().filter(lambda each: each.int)
int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(names, names, int32s)
def test_keys(group, topic, partition):
    key = offset_key(group, topic, partition)
    assert key == encode_key(RecordType.OFFSET_COMMIT, group=group, topic=topic, partition=partition)
    prefix = group_prefix_of(key)
    assert group_of(prefix) == group
    assert topic_and_partition_of(key, len(prefix)) == (topic, partition)


@given(int64s, int32s, metadata, int64s, topic_ids)
def test_values(offset, epoch, text, now_ms, topic_id):
    ((_, value),) = write_values(TopicCommit("t", topic_id, [(3, offset, epoch, text)]), "g", now_ms, -1)
    fields = {"offset": offset, "leader_epoch": epoch, "metadata": text, "commit_timestamp": now_ms}
    assert value == encode_value(RecordType.OFFSET_COMMIT, topic_id=topic_id, **fields)
    assert read_value(value) == CommittedOffset(offset, epoch, text, now_ms, -1, topic_id)


def test_a_commit_with_an_expiry_of_its_own_is_of_the_version_that_has_one():
    ((_, value),) = write_values(TopicCommit("t", UUID(int=1), [(3, 42, 5, "m")]), "g", 1000, 2000)
    assert value[:2] == b"\x00\x01"
    assert read_value(value) == CommittedOffset(42, -1, "m", 1000, 2000, None)


@pytest.mark.parametrize("version", range(5))
def test_every_version_that_kafka_wrote_is_read(version):
    fields = {"offset": 42, "leader_epoch": 5, "metadata": "m", "commit_timestamp": 1000, "expire_timestamp": 2000}
    read = read_value(encode_value(RecordType.OFFSET_COMMIT, version, topic_id=UUID(int=1), **fields))
    assert (read.offset, read.metadata, read.commit_timestamp_ms) == (42, "m", 1000)
    assert read.leader_epoch == (5 if version >= 3 else -1)
    assert read.expire_timestamp_ms == (2000 if version == 1 else -1)
    assert read.topic_id == (UUID(int=1) if version == 4 else None)


def test_keys_of_the_legacy_type_become_todays():
    legacy = encode_key(RecordType.LEGACY_OFFSET_COMMIT, group="g", topic="t", partition=1)
    assert checked_key(legacy) == offset_key("g", "t", 1)


@given(st.binary(max_size=60))
def test_values_that_make_no_sense(value):
    try:
        read = read_value(b"\x00\x04" + value)
    except CorruptMessage:
        return
    assert isinstance(read, CommittedOffset)


def test_metadata_that_is_no_text():
    ((_, value),) = write_values(TopicCommit("t", UUID(int=7), [(0, 1, 2, "xx")]), "g", 3, -1)
    value = value.replace(b"xx", b"\xff\xff")
    with pytest.raises(CorruptMessage):
        read_value(value)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x05abc", b"\x00\x02\x00\x01g"])
def test_keys_that_make_no_sense(key):
    with pytest.raises(CorruptMessage):
        checked_key(key)
