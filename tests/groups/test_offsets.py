"""Committed offsets of a shard: commits, deletions, transactions, expiry."""

from types import SimpleNamespace

import pytest
from offsetsbed import RETENTION_MS, TOPIC_ID, OffsetsBed

from headrace.groups.offsets import Committed, TopicCommit
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalTopic, RecordType, decode, encode_key, encode_value


@pytest.fixture
def bed():
    return OffsetsBed()


def group(group_id="g", *, since_ms=None, in_use=()):
    """A group as expiry sees it: its retention counts from a time, or from each commit."""
    return SimpleNamespace(
        group_id=group_id,
        expires_from_ms=lambda commit_timestamp_ms: commit_timestamp_ms if since_ms is None else since_ms,
        is_subscribed_to=lambda topic: topic in in_use,
    )


# -- commits


def test_a_commit_is_found_again(bed):
    bed.commit(42, epoch=3, metadata="note")
    assert bed.offsets.committed("g", "t", 0) == Committed(42, 3, "note", bed.clock.wall_ms(), -1, TOPIC_ID)


def test_what_was_never_committed(bed):
    bed.commit(42)
    assert [bed.at("g", "t", 1), bed.at("g", "other"), bed.at("other")] == [None] * 3
    assert bed.offsets.of_group("other") == {}


def test_the_last_commit_counts_also_backwards(bed):
    for offset in (5, 9, 3):
        bed.commit(offset)
    assert bed.at() == 3
    assert len(bed.offsets) == 1


def test_groups_whose_names_begin_alike_do_not_mix(bed):
    bed.commit(1, group="g", topic="gt")
    bed.commit(2, group="gg", topic="t")
    assert list(bed.offsets.of_group("g")) == [("gt", 0)]
    assert list(bed.offsets.of_group("gg")) == [("t", 0)]


def test_a_group_may_have_no_name(bed):
    bed.commit(4, group="")
    assert bed.at("") == 4


def test_one_request_commits_many_partitions(bed):
    commits = [TopicCommit(topic, None, [(index, 10 * index, 0, "") for index in range(3)]) for topic in ("a", "b")]
    bed.write(bed.offsets.commit_records("g", commits))
    assert {place: committed.offset for place, committed in bed.offsets.of_group("g").items()} == {
        (topic, index): 10 * index for topic in ("a", "b") for index in range(3)
    }


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("has_pending", [True, False])
def test_many_commits_at_once_are_as_many_one_by_one(bed, is_new, has_pending):
    if not is_new:
        bed.commit(1, partition=1)
    if has_pending:
        bed.commit(99, partition=2, producer_id=7)
    records = bed.offsets.commit_records("g", [TopicCommit("t", None, [(index, 5, 0, "") for index in range(4)])])
    bed.offsets.apply_commits("g", records)
    bed.ends(7, committed=True)
    assert [bed.at(partition=index) for index in range(4)] == [5] * 4


def test_a_groups_first_offset_is_announced(bed):
    bed.commit(1, group="a")
    bed.commit(2, group="a", partition=1)
    bed.commit(1, group="b", producer_id=7)
    assert bed.first == ["a", "b"]
    bed.write(bed.offsets.delete_records("a"))
    bed.commit(3, group="a")
    assert bed.first == ["a", "b", "a"]


def test_decoded_records_are_applied_as_well(bed):
    key = encode_key(RecordType.LEGACY_OFFSET_COMMIT, group="g", topic="t", partition=0)
    value = encode_value(RecordType.LEGACY_OFFSET_COMMIT, offset=8, metadata="old", commit_timestamp=1)
    bed.offsets.apply(decode(InternalTopic.CONSUMER_OFFSETS, key, value))
    assert bed.offsets.committed("g", "t", 0) == Committed(8, -1, "old", 1)
    bed.offsets.apply(decode(InternalTopic.CONSUMER_OFFSETS, key, None))
    assert bed.at() is None
    bed.offsets.apply_pending(7, decode(InternalTopic.CONSUMER_OFFSETS, key, value))
    bed.offsets.complete(7, committed=True)
    assert bed.at() == 8


def test_legacy_keys_as_bytes(bed):
    key = encode_key(RecordType.LEGACY_OFFSET_COMMIT, group="g", topic="t", partition=0)
    for offset in (8, 9):
        value = encode_value(RecordType.LEGACY_OFFSET_COMMIT, offset=offset, metadata="", commit_timestamp=1)
        bed.offsets.apply_bytes(key, value)
    assert bed.at() == 9
    assert len(bed.offsets) == 1


@pytest.mark.parametrize("key", [b"\x00\x01", b"\x00\x01\x00", b"\x00\x01\x00\x07abc"])
def test_a_broken_key_is_no_commit(bed, key):
    with pytest.raises(CorruptMessage):
        bed.offsets.apply_bytes(key, b"value")


# -- deletions


def test_deleted_partitions(bed):
    bed.commit(1)
    bed.commit(2, partition=1)
    records = bed.offsets.delete_records("g", [("t", 1), ("t", 1), ("t", 5), ("none", 0)])
    assert len(records) == 1
    bed.write(records)
    assert (bed.at(), bed.at(partition=1)) == (1, None)


def test_a_group_without_offsets_left_is_forgotten(bed):
    bed.commit(1)
    bed.write(bed.offsets.delete_records("g"))
    assert bed.offsets.count_of("g") == 0
    assert bed.offsets.group_ids() == []


def test_deleting_a_group_takes_back_what_is_pending(bed):
    bed.commit(1)
    bed.commit(2, partition=1, producer_id=7)
    bed.write(bed.offsets.delete_records("g"))
    assert not bed.offsets.has_pending("g")
    bed.ends(7, committed=True)
    assert bed.offsets.of_group("g") == {}


def test_a_deleted_topic_leaves_no_offsets(bed):
    bed.commit(1, group="a", topic="gone")
    bed.commit(2, group="b", topic="gone", partition=3)
    bed.commit(3, group="a", topic="gone-not")
    bed.commit(4, group="gone", topic="kept")
    bed.commit(5, group="c", topic="gone", producer_id=7)
    records = bed.offsets.topic_deleted_records("gone")
    assert len(records) == 3
    bed.write(records)
    bed.ends(7, committed=True)
    assert (bed.at("a", "gone-not"), bed.at("gone", "kept")) == (3, 4)
    assert len(bed.offsets) == 2


# -- transactions


def test_a_transactions_commit_counts_from_its_marker_on(bed):
    bed.commit(1)
    bed.commit(2, producer_id=7)
    assert bed.at() == 1
    assert bed.offsets.has_pending("g")
    assert bed.offsets.has_pending("g", "t")
    assert bed.offsets.has_pending("g", "t", 0)
    assert not bed.offsets.has_pending("g", "t", 1)
    assert not bed.offsets.has_pending("g", "other")
    assert not bed.offsets.has_pending("other")
    bed.ends(7, committed=True)
    assert bed.at() == 2
    assert not bed.offsets.has_pending("g")


def test_an_aborted_transactions_commit_never_counts(bed):
    bed.commit(2, producer_id=7)
    bed.ends(7, committed=False)
    assert bed.at() is None
    assert not bed.offsets.has_pending("g", "t", 0)


def test_the_last_of_a_transactions_commits_counts(bed):
    bed.commit(2, producer_id=7)
    bed.commit(3, producer_id=7)
    bed.ends(7, committed=True)
    assert bed.at() == 3


def test_a_plain_commit_after_it_in_the_log_wins(bed):
    bed.commit(2, producer_id=7)
    bed.commit(9)
    assert bed.offsets.has_pending("g", "t", 0)
    bed.ends(7, committed=True)
    assert bed.at() == 9


def test_and_one_before_it_loses(bed):
    bed.commit(9)
    bed.commit(2, producer_id=7)
    bed.ends(7, committed=True)
    assert bed.at() == 2


def test_of_two_transactions_the_later_commit_in_the_log_wins_not_the_later_marker(bed):
    bed.commit(1, producer_id=7)
    bed.commit(2, producer_id=8)
    bed.ends(8, committed=True)
    bed.ends(7, committed=True)
    assert bed.at() == 2


def test_an_aborted_one_does_not_stand_in_the_way(bed):
    bed.commit(1, producer_id=7)
    bed.commit(2, producer_id=8)
    bed.ends(8, committed=False)
    assert bed.offsets.has_pending("g", "t", 0)
    bed.ends(7, committed=True)
    assert bed.at() == 1


def test_a_tombstone_takes_back_what_is_pending(bed):
    bed.commit(2, producer_id=7)
    bed.write(bed.offsets.delete_records("g", [("t", 0)]))
    assert not bed.offsets.has_pending("g", "t", 0)
    bed.commit(3, partition=1, producer_id=7)
    bed.ends(7, committed=True)
    assert (bed.at(), bed.at(partition=1)) == (None, 3)


def test_a_pending_tombstone_takes_back_too(bed):
    bed.commit(2)
    bed.write(bed.offsets.delete_records("g"), producer_id=7)
    assert bed.at() is None


def test_a_marker_of_a_transaction_without_offsets(bed):
    bed.ends(99, committed=True)
    assert len(bed.offsets) == 0


# -- expiry


def expire(bed, a_group):
    records = bed.offsets.expired_records(a_group, bed.clock.wall_ms())
    bed.write(records)
    return len(records)


def test_offsets_expire_after_the_retention(bed):
    bed.commit(1)
    bed.clock.advance(RETENTION_MS - 1)
    assert expire(bed, group()) == 0
    bed.clock.advance(1)
    assert expire(bed, group()) == 1
    assert bed.at() is None


def test_a_groups_time_counts_from_when_it_became_empty(bed):
    bed.commit(1)
    bed.clock.advance(RETENTION_MS)
    since_ms = bed.clock.wall_ms()
    assert expire(bed, group(since_ms=since_ms)) == 0
    bed.clock.advance(RETENTION_MS)
    assert expire(bed, group(since_ms=since_ms)) == 1


def test_what_is_in_use_is_kept(bed):
    bed.commit(1, topic="read")
    bed.commit(1, topic="left")
    bed.clock.advance(RETENTION_MS)
    assert expire(bed, group(in_use=["read"])) == 1
    assert list(bed.offsets.of_group("g")) == [("read", 0)]


def test_a_group_whose_retention_does_not_count_now(bed):
    bed.commit(1)
    bed.clock.advance(RETENTION_MS)
    busy = SimpleNamespace(group_id="g", expires_from_ms=lambda _: None)
    assert bed.offsets.expired_records(busy, bed.clock.wall_ms()) == []


def test_each_partition_by_its_own_commit(bed):
    bed.commit(1)
    bed.clock.advance(5)
    bed.commit(1, partition=1)
    bed.clock.advance(RETENTION_MS - 5)
    assert expire(bed, group()) == 1
    assert list(bed.offsets.of_group("g")) == [("t", 1)]


def test_a_commit_with_an_expiry_of_its_own_goes_by_that(bed):
    bed.commit(1, expire_timestamp_ms=bed.clock.wall_ms() + 100)
    bed.commit(2, partition=1, expire_timestamp_ms=bed.clock.wall_ms() + 2 * RETENTION_MS)
    bed.clock.advance(99)
    assert expire(bed, group()) == 0
    bed.clock.advance(1)
    assert expire(bed, group()) == 1
    bed.clock.advance(RETENTION_MS)
    assert expire(bed, group()) == 0


def test_what_is_pending_keeps_its_partitions_offset(bed):
    bed.commit(1)
    bed.commit(2, producer_id=7)
    bed.clock.advance(RETENTION_MS)
    assert expire(bed, group()) == 0
    bed.ends(7, committed=False)
    assert expire(bed, group()) == 1


def test_the_retention_is_asked_for_each_time(bed):
    bed.commit(1)
    bed.clock.advance(60_000)
    bed.context.settings.values["offsets.retention.minutes"] = 1
    assert expire(bed, group()) == 1
