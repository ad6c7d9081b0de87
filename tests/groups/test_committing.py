"""Commits by the rules of groups, and what expiry takes out."""

import pytest
from groupbed import GroupBed
from offsetsbed import RETENTION_MS, TOPIC_ID

from headrace.groups.committing import Committer, commit, commit_in_transaction, expire, told_code
from headrace.groups.offsets import TopicCommit
from headrace.protocol.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    MessageTooLarge,
    StaleMemberEpoch,
    StorageError,
    UnsupportedVersion,
)


@pytest.fixture
def bed():
    return GroupBed()


def commits(offset=5, *, topic="t", partition=0):
    return [TopicCommit(topic, TOPIC_ID, [(partition, offset, -1, "")])]


def at(bed, group_id="g", topic="t", partition=0):
    found = bed.shard.offsets.committed(group_id, topic, partition)
    return None if found is None else found.offset


def test_a_commit_of_nobody_makes_a_group_that_keeps_offsets(bed):
    commit(bed.shard, Committer("g"), commits(), version=9)
    group = bed.shard.group("g")
    assert (group.state_name, group.protocol_type, group.kind) == ("Empty", None, "classic")
    assert at(bed) == 5
    reloaded = bed.reloaded()
    assert reloaded.shard.group("g").state_name == "Empty"
    assert at(reloaded) == 5


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGeneration), (9, GroupIdNotFound)])
def test_a_generation_without_a_group(bed, version, error):
    with pytest.raises(error):
        commit(bed.shard, Committer("g", "m", 3), commits(), version=version)
    with pytest.raises(IllegalGeneration):
        commit_in_transaction(bed.shard, Committer("g", "m", 3), commits(), 7, 0)
    assert bed.shard.group("g") is None


class _Stale:
    """A group of the new protocol, where the member has missed something."""

    def check_commit(self, *_, **__):
        raise StaleMemberEpoch("of yesterday")


@pytest.mark.parametrize(("version", "error"), [(8, UnsupportedVersion), (9, StaleMemberEpoch)])
def test_stale_epochs_are_told_as_the_version_knows_them(bed, version, error):
    bed.shard.groups["g"] = _Stale()
    with pytest.raises(error):
        commit(bed.shard, Committer("g", "m", 3), commits(), version=version)
    with pytest.raises(IllegalGeneration):
        commit_in_transaction(bed.shard, Committer("g", "m", 3), commits(), 7, 0)


def test_what_cannot_be_written_is_not_committed(bed):
    bed.journal.is_broken = True
    with pytest.raises(StorageError):
        commit(bed.shard, Committer("g"), commits(), version=9)
    assert at(bed) is None


def test_within_a_transaction(bed):
    commit_in_transaction(bed.shard, Committer("g"), commits(), 7, 0)
    assert at(bed) is None
    assert bed.reloaded().shard.offsets.has_pending("g", "t", 0)
    bed.shard.offsets.complete(7, committed=True)
    assert at(bed) == 5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("disk"), ErrorCode.not_coordinator),
        (MessageTooLarge("big"), ErrorCode.unknown_server_error),
        (IllegalGeneration("old"), ErrorCode.illegal_generation),
        (OSError("disk"), ErrorCode.not_coordinator),
    ],
)
def test_codes(error, code):
    assert told_code(error) == code


# -- expiry


def test_a_group_with_nothing_left_goes_with_its_last_offset(bed):
    commit(bed.shard, Committer("g"), commits(), version=9)
    bed.clock.advance(RETENTION_MS - 1)
    assert expire(bed.shard) == 0
    bed.clock.advance(1)
    assert expire(bed.shard) == 1
    assert bed.shard.group("g") is None
    assert bed.reloaded().shard.groups == {}


def test_partitions_of_a_group_of_nobody_expire_one_by_one(bed):
    commit(bed.shard, Committer("g"), commits(), version=9)
    bed.clock.advance(1000)
    commit(bed.shard, Committer("g"), commits(partition=1), version=9)
    bed.clock.advance(RETENTION_MS - 1000)
    assert expire(bed.shard) == 1
    assert (at(bed), at(bed, partition=1)) == (None, 5)
    assert bed.shard.group("g") is not None


def test_an_old_clients_own_retention(bed):
    expires_ms = bed.clock.wall_ms() + 500
    commit(bed.shard, Committer("g"), commits(), version=2, expire_timestamp_ms=expires_ms)
    bed.clock.advance(500)
    assert expire(bed.shard) == 1


def test_a_group_with_a_pending_commit_stays(bed):
    commit_in_transaction(bed.shard, Committer("g"), commits(), 7, 0)
    bed.clock.advance(RETENTION_MS)
    assert expire(bed.shard) == 0
    assert bed.shard.group("g") is not None
    bed.shard.offsets.complete(7, committed=False)
    assert expire(bed.shard) == 0
    assert bed.shard.group("g") is None


# -- members


SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


def member(bed):
    bed.join("m", protocols=(("range", SUBSCRIBED_TO_T),))
    bed.settles()
    client = bed.clients["m"]
    return client, Committer("g", client.member_id, client.generation_id)


def test_a_members_commit_is_a_sign_of_life(bed):
    client, who = member(bed)
    for _ in range(5):
        bed.advance(client.fields["session_timeout_ms"] - 1)
        commit(bed.shard, who, commits(), version=9)
    assert bed.group.state_name == "Stable"
    bed.advance(client.fields["session_timeout_ms"])
    assert bed.group.state_name == "Empty"


def test_what_members_read_does_not_expire(bed):
    client, who = member(bed)
    commit(bed.shard, who, commits(topic="t"), version=9)
    commit(bed.shard, who, commits(topic="left"), version=9)
    bed.context.settings.values["offsets.retention.minutes"] = 0
    assert expire(bed.shard) == 1
    assert (at(bed, topic="t"), at(bed, topic="left")) == (5, None)
    assert bed.group.state_name == "Stable"
    assert client.is_in


def test_retention_counts_from_when_the_last_member_left(bed):
    client, who = member(bed)
    commit(bed.shard, who, commits(), version=9)
    client.leaves()
    assert bed.group.state_name == "Empty"
    bed.clock.advance(RETENTION_MS - 1)
    commit(bed.shard, Committer("g"), commits(partition=1), version=9)
    assert expire(bed.shard) == 0
    bed.clock.advance(1)
    assert expire(bed.shard) == 2
    assert bed.group is None
