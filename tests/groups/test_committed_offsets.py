"""Committed offsets of a shard: commits, deletions, transactions, expiry."""

from types import SimpleNamespace

import pytest
from offsets_harness import RETENTION_MS, TOPIC_ID, OffsetsHarness

from headrace.groups.committed_offsets import CommittedOffset, TopicCommit
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import RecordType, encode_key, encode_value


@pytest.fixture
def harness():
    return OffsetsHarness()


def group(group_id="g", *, since_ms=None, in_use=()):
    """A group as expiry sees it: its retention counts from a time, or from each commit."""
    return SimpleNamespace(
        group_id=group_id,
        expires_from_ms=lambda commit_timestamp_ms: commit_timestamp_ms if since_ms is None else since_ms,
        is_subscribed_to=lambda topic: topic in in_use,
    )


# -- commits


def test_a_commit_is_found_again(harness):
    harness.commit(42, epoch=3, metadata="note")
    assert harness.offsets.committed("g", "t", 0) == CommittedOffset(
        42, 3, "note", harness.clock.wall_ms(), -1, TOPIC_ID
    )


def test_what_was_never_committed(harness):
    harness.commit(42)
    assert [harness.at("g", "t", 1), harness.at("g", "other"), harness.at("other")] == [None] * 3
    assert harness.offsets.of_group("other") == {}


def test_the_last_commit_counts_also_backwards(harness):
    for offset in (5, 9, 3):
        harness.commit(offset)
    assert harness.at() == 3
    assert harness.offset_count == 1


def test_groups_whose_names_begin_alike_do_not_mix(harness):
    harness.commit(1, group="g", topic="gt")
    harness.commit(2, group="gg", topic="t")
    assert list(harness.offsets.of_group("g")) == [("gt", 0)]
    assert list(harness.offsets.of_group("gg")) == [("t", 0)]


def test_a_group_may_have_no_name(harness):
    harness.commit(4, group="")
    assert harness.at("") == 4


def test_one_request_commits_many_partitions(harness):
    commits = [TopicCommit(topic, None, [(index, 10 * index, 0, "") for index in range(3)]) for topic in ("a", "b")]
    harness.write(harness.offsets.commit_records("g", commits))
    assert {place: committed.offset for place, committed in harness.offsets.of_group("g").items()} == {
        (topic, index): 10 * index for topic in ("a", "b") for index in range(3)
    }


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("has_pending", [True, False])
def test_many_commits_at_once_are_as_many_one_by_one(harness, is_new, has_pending):
    if not is_new:
        harness.commit(1, partition=1)
    if has_pending:
        harness.commit(99, partition=2, producer_id=7)
    records = harness.offsets.commit_records("g", [TopicCommit("t", None, [(index, 5, 0, "") for index in range(4)])])
    harness.offsets.apply_commits("g", records)
    harness.ends(7, committed=True)
    assert [harness.at(partition=index) for index in range(4)] == [5] * 4


def test_a_groups_first_offset_is_announced(harness):
    harness.commit(1, group="a")
    harness.commit(2, group="a", partition=1)
    harness.commit(1, group="b", producer_id=7)
    assert harness.first == ["a", "b"]
    harness.write(harness.offsets.delete_records("a"))
    harness.commit(3, group="a")
    assert harness.first == ["a", "b", "a"]


def test_records_of_the_legacy_type_are_applied_as_well(harness):
    key = encode_key(RecordType.LEGACY_OFFSET_COMMIT, group="g", topic="t", partition=0)
    value = encode_value(RecordType.LEGACY_OFFSET_COMMIT, offset=8, metadata="old", commit_timestamp=1)
    harness.offsets.apply(key, value)
    assert harness.offsets.committed("g", "t", 0) == CommittedOffset(8, -1, "old", 1)
    harness.offsets.apply(key, None)
    assert harness.at() is None
    harness.offsets.apply_pending(7, key, value)
    harness.offsets.complete(7, committed=True)
    assert harness.at() == 8


def test_legacy_keys_as_bytes(harness):
    key = encode_key(RecordType.LEGACY_OFFSET_COMMIT, group="g", topic="t", partition=0)
    for offset in (8, 9):
        value = encode_value(RecordType.LEGACY_OFFSET_COMMIT, offset=offset, metadata="", commit_timestamp=1)
        harness.offsets.apply(key, value)
    assert harness.at() == 9
    assert harness.offset_count == 1


@pytest.mark.parametrize("key", [b"\x00\x01", b"\x00\x01\x00", b"\x00\x01\x00\x07abc"])
def test_a_broken_key_is_no_commit(harness, key):
    with pytest.raises(CorruptMessage):
        harness.offsets.apply(key, b"value")


# -- deletions


def test_deleted_partitions(harness):
    harness.commit(1)
    harness.commit(2, partition=1)
    records = harness.offsets.delete_records("g", [("t", 1), ("t", 1), ("t", 5), ("none", 0)])
    assert len(records) == 1
    harness.write(records)
    assert (harness.at(), harness.at(partition=1)) == (1, None)


def test_a_group_without_offsets_left_is_forgotten(harness):
    harness.commit(1)
    harness.write(harness.offsets.delete_records("g"))
    assert harness.offsets.count_of("g") == 0
    harness.commit(2)
    assert harness.first == ["g", "g"]


def test_deleting_a_group_takes_back_what_is_pending(harness):
    harness.commit(1)
    harness.commit(2, partition=1, producer_id=7)
    harness.write(harness.offsets.delete_records("g"))
    assert not harness.offsets.has_pending("g")
    harness.ends(7, committed=True)
    assert harness.offsets.of_group("g") == {}


def test_a_deleted_topic_leaves_no_offsets(harness):
    harness.commit(1, group="a", topic="gone")
    harness.commit(2, group="b", topic="gone", partition=3)
    harness.commit(3, group="a", topic="gone-not")
    harness.commit(4, group="gone", topic="kept")
    harness.commit(5, group="c", topic="gone", producer_id=7)
    records = harness.offsets.topic_deleted_records("gone")
    assert len(records) == 3
    harness.write(records)
    harness.ends(7, committed=True)
    assert (harness.at("a", "gone-not"), harness.at("gone", "kept")) == (3, 4)
    assert harness.offset_count == 2


# -- transactions


def test_a_transactions_commit_counts_from_its_marker_on(harness):
    harness.commit(1)
    harness.commit(2, producer_id=7)
    assert harness.at() == 1
    assert harness.offsets.has_pending("g")
    assert harness.offsets.has_pending("g", "t")
    assert harness.offsets.has_pending("g", "t", 0)
    assert not harness.offsets.has_pending("g", "t", 1)
    assert not harness.offsets.has_pending("g", "other")
    assert not harness.offsets.has_pending("other")
    harness.ends(7, committed=True)
    assert harness.at() == 2
    assert not harness.offsets.has_pending("g")


def test_an_aborted_transactions_commit_never_counts(harness):
    harness.commit(2, producer_id=7)
    harness.ends(7, committed=False)
    assert harness.at() is None
    assert not harness.offsets.has_pending("g", "t", 0)


def test_the_last_of_a_transactions_commits_counts(harness):
    harness.commit(2, producer_id=7)
    harness.commit(3, producer_id=7)
    harness.ends(7, committed=True)
    assert harness.at() == 3


def test_a_plain_commit_after_it_in_the_log_wins(harness):
    harness.commit(2, producer_id=7)
    harness.commit(9)
    assert harness.offsets.has_pending("g", "t", 0)
    harness.ends(7, committed=True)
    assert harness.at() == 9


def test_and_one_before_it_loses(harness):
    harness.commit(9)
    harness.commit(2, producer_id=7)
    harness.ends(7, committed=True)
    assert harness.at() == 2


def test_of_two_transactions_the_later_commit_in_the_log_wins_not_the_later_marker(harness):
    harness.commit(1, producer_id=7)
    harness.commit(2, producer_id=8)
    harness.ends(8, committed=True)
    harness.ends(7, committed=True)
    assert harness.at() == 2


def test_an_aborted_one_does_not_stand_in_the_way(harness):
    harness.commit(1, producer_id=7)
    harness.commit(2, producer_id=8)
    harness.ends(8, committed=False)
    assert harness.offsets.has_pending("g", "t", 0)
    harness.ends(7, committed=True)
    assert harness.at() == 1


def test_a_tombstone_takes_back_what_is_pending(harness):
    harness.commit(2, producer_id=7)
    harness.write(harness.offsets.delete_records("g", [("t", 0)]))
    assert not harness.offsets.has_pending("g", "t", 0)
    harness.commit(3, partition=1, producer_id=7)
    harness.ends(7, committed=True)
    assert (harness.at(), harness.at(partition=1)) == (None, 3)


def test_a_pending_tombstone_takes_back_too(harness):
    harness.commit(2)
    harness.write(harness.offsets.delete_records("g"), producer_id=7)
    assert harness.at() is None


def test_a_marker_of_a_transaction_without_offsets(harness):
    harness.ends(99, committed=True)
    assert harness.offset_count == 0


# -- expiry


def expire(harness, a_group):
    records = harness.offsets.expired_records(a_group, harness.clock.wall_ms())
    harness.write(records)
    return len(records)


def test_offsets_expire_after_the_retention(harness):
    harness.commit(1)
    harness.clock.advance(RETENTION_MS - 1)
    assert expire(harness, group()) == 0
    harness.clock.advance(1)
    assert expire(harness, group()) == 1
    assert harness.at() is None


def test_a_groups_time_counts_from_when_it_became_empty(harness):
    harness.commit(1)
    harness.clock.advance(RETENTION_MS)
    since_ms = harness.clock.wall_ms()
    assert expire(harness, group(since_ms=since_ms)) == 0
    harness.clock.advance(RETENTION_MS)
    assert expire(harness, group(since_ms=since_ms)) == 1


def test_what_is_in_use_is_kept(harness):
    harness.commit(1, topic="read")
    harness.commit(1, topic="left")
    harness.clock.advance(RETENTION_MS)
    assert expire(harness, group(in_use=["read"])) == 1
    assert list(harness.offsets.of_group("g")) == [("read", 0)]


def test_a_group_whose_retention_does_not_count_now(harness):
    harness.commit(1)
    harness.clock.advance(RETENTION_MS)
    busy = SimpleNamespace(group_id="g", expires_from_ms=lambda _: None)
    assert harness.offsets.expired_records(busy, harness.clock.wall_ms()) == []


def test_each_partition_by_its_own_commit(harness):
    harness.commit(1)
    harness.clock.advance(5)
    harness.commit(1, partition=1)
    harness.clock.advance(RETENTION_MS - 5)
    assert expire(harness, group()) == 1
    assert list(harness.offsets.of_group("g")) == [("t", 1)]


def test_a_commit_with_an_expiry_of_its_own_goes_by_that(harness):
    harness.commit(1, expire_timestamp_ms=harness.clock.wall_ms() + 100)
    harness.commit(2, partition=1, expire_timestamp_ms=harness.clock.wall_ms() + 2 * RETENTION_MS)
    harness.clock.advance(99)
    assert expire(harness, group()) == 0
    harness.clock.advance(1)
    assert expire(harness, group()) == 1
    harness.clock.advance(RETENTION_MS)
    assert expire(harness, group()) == 0


def test_what_is_pending_keeps_its_partitions_offset(harness):
    harness.commit(1)
    harness.commit(2, producer_id=7)
    harness.clock.advance(RETENTION_MS)
    assert expire(harness, group()) == 0
    harness.ends(7, committed=False)
    assert expire(harness, group()) == 1


def test_the_retention_is_asked_for_each_time(harness):
    harness.commit(1)
    harness.clock.advance(60_000)
    harness.context.settings.values["offsets.retention.minutes"] = 1
    assert expire(harness, group()) == 1
