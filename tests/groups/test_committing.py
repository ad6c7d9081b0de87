"""Commits: the clients that may commit to a group, and the offsets that expire."""

import pytest
from group_harness import GroupHarness
from offsets_harness import RETENTION_MS, TOPIC_ID

from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.committing import Committer, client_error_code, commit, commit_in_transaction, expire
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
def harness():
    return GroupHarness()


def commits(offset=5, *, topic="t", partition=0):
    return [TopicCommit(topic, TOPIC_ID, [(partition, offset, -1, "")])]


def at(harness, group_id="g", topic="t", partition=0):
    found = harness.shard.offsets.committed(group_id, topic, partition)
    return None if found is None else found.offset


def test_a_commit_of_nobody_makes_a_group_that_keeps_offsets(harness):
    commit(harness.shard, Committer("g"), commits(), version=9)
    group = harness.shard.group("g")
    assert (group.state_name, group.protocol_type, group.kind) == ("Empty", None, "classic")
    assert at(harness) == 5
    reloaded = harness.reloaded()
    assert reloaded.shard.group("g").state_name == "Empty"
    assert at(reloaded) == 5


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGeneration), (9, GroupIdNotFound)])
def test_a_generation_without_a_group(harness, version, error):
    with pytest.raises(error):
        commit(harness.shard, Committer("g", "m", 3), commits(), version=version)
    with pytest.raises(IllegalGeneration):
        commit_in_transaction(harness.shard, Committer("g", "m", 3), commits(), 7, 0)
    assert harness.shard.group("g") is None


class _Stale:
    """A group of the new protocol, where the member has missed something."""

    def check_commit(self, *_, **__):
        raise StaleMemberEpoch("of yesterday")


@pytest.mark.parametrize(("version", "error"), [(8, UnsupportedVersion), (9, StaleMemberEpoch)])
def test_stale_epochs_are_told_as_the_version_knows_them(harness, version, error):
    harness.shard.groups["g"] = _Stale()
    with pytest.raises(error):
        commit(harness.shard, Committer("g", "m", 3), commits(), version=version)
    with pytest.raises(IllegalGeneration):
        commit_in_transaction(harness.shard, Committer("g", "m", 3), commits(), 7, 0)


def test_what_cannot_be_written_is_not_committed(harness):
    harness.journal.is_broken = True
    with pytest.raises(StorageError):
        commit(harness.shard, Committer("g"), commits(), version=9)
    assert at(harness) is None


def test_within_a_transaction(harness):
    commit_in_transaction(harness.shard, Committer("g"), commits(), 7, 0)
    assert at(harness) is None
    assert harness.reloaded().shard.offsets.has_pending("g", "t", 0)
    harness.shard.offsets.complete(7, committed=True)
    assert at(harness) == 5


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
    assert client_error_code(error) == code


# -- expiry


def test_a_group_with_nothing_left_goes_with_its_last_offset(harness):
    commit(harness.shard, Committer("g"), commits(), version=9)
    harness.clock.advance(RETENTION_MS - 1)
    assert expire(harness.shard) == 0
    harness.clock.advance(1)
    assert expire(harness.shard) == 1
    assert harness.shard.group("g") is None
    assert harness.reloaded().shard.groups == {}


def test_partitions_of_a_group_of_nobody_expire_one_by_one(harness):
    commit(harness.shard, Committer("g"), commits(), version=9)
    harness.clock.advance(1000)
    commit(harness.shard, Committer("g"), commits(partition=1), version=9)
    harness.clock.advance(RETENTION_MS - 1000)
    assert expire(harness.shard) == 1
    assert (at(harness), at(harness, partition=1)) == (None, 5)
    assert harness.shard.group("g") is not None


def test_an_old_clients_own_retention(harness):
    expires_ms = harness.clock.wall_ms() + 500
    commit(harness.shard, Committer("g"), commits(), version=2, expire_timestamp_ms=expires_ms)
    harness.clock.advance(500)
    assert expire(harness.shard) == 1


def test_a_group_with_a_pending_commit_stays(harness):
    commit_in_transaction(harness.shard, Committer("g"), commits(), 7, 0)
    harness.clock.advance(RETENTION_MS)
    assert expire(harness.shard) == 0
    assert harness.shard.group("g") is not None
    harness.shard.offsets.complete(7, committed=False)
    assert expire(harness.shard) == 0
    assert harness.shard.group("g") is None


# -- members


SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


def member(harness):
    harness.join("m", protocols=(("range", SUBSCRIBED_TO_T),))
    harness.settles()
    client = harness.clients["m"]
    return client, Committer("g", client.member_id, client.generation_id)


def test_a_members_commit_is_a_sign_of_life(harness):
    client, who = member(harness)
    for _ in range(5):
        harness.advance(client.fields["session_timeout_ms"] - 1)
        commit(harness.shard, who, commits(), version=9)
    assert harness.group.state_name == "Stable"
    harness.advance(client.fields["session_timeout_ms"])
    assert harness.group.state_name == "Empty"


def test_what_members_read_does_not_expire(harness):
    client, who = member(harness)
    commit(harness.shard, who, commits(topic="t"), version=9)
    commit(harness.shard, who, commits(topic="left"), version=9)
    harness.context.settings.values["offsets.retention.minutes"] = 0
    assert expire(harness.shard) == 1
    assert (at(harness, topic="t"), at(harness, topic="left")) == (5, None)
    assert harness.group.state_name == "Stable"
    assert client.is_in


def test_retention_counts_from_when_the_last_member_left(harness):
    client, who = member(harness)
    commit(harness.shard, who, commits(), version=9)
    client.leaves()
    assert harness.group.state_name == "Empty"
    harness.clock.advance(RETENTION_MS - 1)
    commit(harness.shard, Committer("g"), commits(partition=1), version=9)
    assert expire(harness.shard) == 0
    harness.clock.advance(1)
    assert expire(harness.shard) == 2
    assert harness.group is None
