"""Groups of the consumer protocol: members join, send heartbeats, change and leave, and get their assignments."""

import pytest
from consumer_group_harness import INTERVAL_MS, NONE, REBALANCE_MS, SESSION_MS, ConsumerGroupHarness, Topics

from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.committing import Committer, commit
from headrace.protocol.errors import (
    ErrorCode,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
    UnsupportedVersion,
)


@pytest.fixture
def harness():
    return ConsumerGroupHarness()


# -- joining --------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(harness):
    harness.join("a")
    assert harness.noted() == ["a has t0 t1 t2 t3 at 1"]
    assert (harness.state, harness.epochs) == ("Stable", (1, 1))
    assert harness.records() == [
        ("MEMBER_METADATA", True),
        ("METADATA", True),
        ("TARGET_ASSIGNMENT_MEMBER", True),
        ("TARGET_ASSIGNMENT_METADATA", True),
        ("CURRENT_MEMBER_ASSIGNMENT", True),
    ]


def test_a_second_member_gets_its_share_when_the_first_has_let_go(harness):
    a, b = harness.join("a", "b")
    assert harness.noted() == ["a has t0 t1 t2 t3 at 1", "b has nothing at 2"]
    assert harness.state == "Reconciling"
    b.beats()
    assert harness.noted() == []
    a.beats()
    # The answer to b's join promised nothing; a is told to let go, does, and is at the new epoch.
    assert harness.noted() == ["a revokes t2 t3"]
    assert (a.epoch, b.epoch, harness.state) == (2, 2, "Reconciling")
    b.beats()
    assert harness.noted() == ["b has t2 t3 at 2"]
    assert harness.state == "Stable"


def test_a_member_that_keeps_its_partitions_holds_the_others_up(harness):
    a, b = harness.join("a", "b")
    answer = a.beat()
    assert harness.show(answer.assignment) == ["t0", "t1"]
    for _ in range(3):
        a.beat(owned=a.owned)  # it still has all four
        b.beats()
    assert (a.member.epoch, b.shown) == (1, [])
    a.beat(owned={})
    b.beats()
    assert (a.member.epoch, b.shown) == (2, ["t2", "t3"])


def test_nothing_is_told_twice(harness):
    a = harness.join("a")
    assert a.beat().assignment is None
    written = len(harness.journal.written)
    assert a.beat(owned=a.owned).assignment is None
    assert len(harness.journal.written) == written


def test_who_asks_for_all_is_told_all(harness):
    a = harness.join("a")
    answer = a.beat(rebalance_timeout_ms=REBALANCE_MS, topic_names=frozenset({"t"}), owned=a.owned)
    assert harness.show(answer.assignment) == ["t0", "t1", "t2", "t3"]


def test_a_heartbeat_is_told_the_interval(harness):
    assert harness.join("a").beat().heartbeat_interval_ms == 5_000


def test_joining_again_with_the_same_id_is_no_change(harness):
    a = harness.join("a")
    written = len(harness.journal.written)
    a.joins()
    assert harness.noted()[-1] == "a has t0 t1 t2 t3 at 1"
    assert len(harness.journal.written) == written


def test_members_that_come_together_cost_one_assignment():
    harness = ConsumerGroupHarness(group_consumer_assignment_interval_ms=INTERVAL_MS)
    a, *_ = harness.join("a", "b", "c")
    assert (harness.epochs, harness.state) == ((3, 1), "Assigning")
    harness.advance(INTERVAL_MS - 1)
    assert harness.epochs == (3, 1)
    harness.advance(1)
    assert (harness.epochs, harness.state) == ((3, 3), "Reconciling")
    harness.settles()
    assert sorted(len(client.shown) for client in harness.clients.values()) == [1, 1, 2]
    harness.advance(INTERVAL_MS)
    a.leaves()
    harness.clients["b"].beats()
    assert harness.epochs == (4, 4)


def test_a_member_that_changes_its_topics_does_not_wait_for_the_assignment():
    harness = ConsumerGroupHarness(topics=Topics(t=2, u=2), group_consumer_assignment_interval_ms=INTERVAL_MS)
    a = harness.join("a")
    a.subscribes("u")
    assert a.shown == ["u0", "u1"]


# -- requests that are refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, InvalidRequest),
        ({"epoch": -3}, InvalidRequest),
        ({"epoch": -2}, InvalidRequest),
        ({"instance_id": ""}, InvalidRequest),
        ({"rack_id": ""}, InvalidRequest),
        ({"rebalance_timeout_ms": -1}, InvalidRequest),
        ({"owned": None}, InvalidRequest),
        ({"topic_names": None}, InvalidRequest),
        ({"server_assignor": "mine"}, UnsupportedAssignor),
        ({"topic_regex": "("}, InvalidRegularExpression),
        ({"epoch": 1}, GroupIdNotFound),
        ({"epoch": -1}, GroupIdNotFound),
    ],
)
def test_who_cannot_join_leaves_no_group_behind(harness, fields, error):
    asked = {"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}, "topic_names": frozenset({"t"}), **fields}
    with pytest.raises(error):
        harness.client("a").beat(**asked)
    assert harness.group is None
    assert harness.journal.written == []


def test_a_bad_expression_changes_nothing_for_a_member(harness):
    a = harness.join("a")
    written = len(harness.journal.written)
    with pytest.raises(InvalidRegularExpression):
        a.beat(topic_regex="[")
    assert len(harness.journal.written) == written
    a.beats()
    assert a.is_in


def test_epochs_fence(harness):
    a = harness.join("a")
    harness.join("b")
    for epoch in (2, 7):
        with pytest.raises(FencedMemberEpoch):
            a.beat(epoch=epoch)
    with pytest.raises(UnknownMemberId):
        harness.client("nobody").beat(epoch=1)


def test_an_answer_that_was_lost_is_given_again(harness):
    a = harness.join("a")
    harness.join("b")
    a.beats()
    assert (a.epoch, a.member.previous_epoch) == (2, 1)
    kept = a.owned
    assert a.beat(epoch=1, owned=kept).epoch == 2
    with pytest.raises(FencedMemberEpoch):
        a.beat(epoch=1)
    with pytest.raises(FencedMemberEpoch):
        a.beat(epoch=1, owned={harness.topics.topic("t").topic_id: frozenset(range(4))})


def test_a_full_group():
    harness = ConsumerGroupHarness(group_consumer_max_size=1)
    a = harness.join("a")
    with pytest.raises(GroupMaxSizeReached):
        harness.client("b").beat(epoch=0, rebalance_timeout_ms=1, owned={}, topic_names=frozenset())
    a.beats()
    assert a.is_in


# -- going ----------------------------------------------------------------------------------------------------------


def test_a_member_that_leaves_gives_its_partitions_to_others(harness):
    a, b = harness.join("a", "b")
    harness.settles().noted()
    answer = b.beat(epoch=-1)
    assert (answer.epoch, answer.assignment) == (-1, None)
    b.is_in = False
    assert harness.state == "Assigning"
    a.beats()
    assert harness.noted() == ["a has t0 t1 t2 t3 at 3"]
    assert harness.state == "Stable"


def test_a_crashed_member_is_noticed_after_its_session_timeout(harness):
    a, b = harness.join("a", "b")
    harness.settles().noted()
    harness.advance(SESSION_MS - 1)
    a.beats()
    assert harness.noted() == []
    harness.advance(1)
    assert (harness.state, harness.epochs) == ("Assigning", (3, 2))
    a.beats()
    b.beats()
    assert harness.noted() == ["a has t0 t1 t2 t3 at 3", "b: unknown_member_id"]


def test_a_group_may_have_a_session_timeout_of_its_own(harness):
    harness.group_configs = {"consumer.session.timeout.ms": str(SESSION_MS + 1)}
    a, _ = harness.join("a", "b")
    harness.settles()
    harness.advance(SESSION_MS)
    a.beats()
    assert len(harness.group.metadata.members) == 2
    harness.advance(1)
    assert len(harness.group.metadata.members) == 1


def test_a_crashed_member_is_out_even_if_that_cannot_be_written_at_once(harness):
    a, _ = harness.join("a", "b")
    harness.settles().noted()
    harness.advance(SESSION_MS - 1)
    a.beats()
    harness.journal.is_broken = True
    harness.advance(1)
    assert len(harness.group.metadata.members) == 2
    harness.journal.is_broken = False
    harness.advance(1_000)
    assert len(harness.group.metadata.members) == 1
    a.beats()
    assert harness.noted() == ["a has t0 t1 t2 t3 at 3"]


def test_a_member_that_does_not_let_go_is_out_after_its_rebalance_timeout(harness):
    a, b = harness.join("a", "b")
    a.beat()
    for _ in range(2):
        harness.advance(REBALANCE_MS // 2 - 1)
        a.beat(owned=a.owned)
        b.beats()
    assert b.shown == []
    harness.advance(2)
    b.beats()
    assert b.shown == ["t0", "t1", "t2", "t3"]
    with pytest.raises(UnknownMemberId):
        a.beat()


def test_the_last_member_leaves_an_empty_group(harness):
    harness.join("a").leaves()
    assert (harness.state, harness.group.is_empty) == ("Empty", True)
    assert len(harness.timer) == 0
    harness.join("b")
    assert harness.noted()[-1] == "b has t0 t1 t2 t3 at 3"


def test_an_empty_group_can_be_deleted(harness):
    harness.join("a", regex="t.*").leaves()
    harness.shard.delete_group("g")
    assert harness.group is None
    assert harness.reloaded().group is None


# -- what is read ---------------------------------------------------------------------------------------------------


def test_a_new_subscription():
    harness = ConsumerGroupHarness(topics=Topics(t=2, u=2))
    a = harness.join("a")
    a.subscribes("t", "u")
    assert a.shown == ["t0", "t1", "u0", "u1"]
    a.subscribes("u")
    assert harness.noted()[-2:] == ["a has t0 t1 u0 u1 at 2", "a revokes t0 t1"]
    assert (a.epoch, a.shown) == (3, ["u0", "u1"])


def test_topics_that_grow_come_and_go(harness):
    a = harness.join("a", topics=("t", "u"))
    harness.topics.put("t", 5)
    a.beats()
    assert (a.epoch, a.shown) == (2, ["t0", "t1", "t2", "t3", "t4"])
    harness.topics.put("u", 1)
    a.beats()
    assert (a.epoch, a.shown) == (3, ["t0", "t1", "t2", "t3", "t4", "u0"])
    harness.topics.delete("t")
    a.beats()
    assert (a.epoch, a.shown) == (4, ["u0"])
    harness.topics.put("other", 9)
    a.beats()
    assert a.epoch == 4


def test_an_expression_follows_the_topics(harness):
    a = harness.join("a", topics=None, regex="t.*")
    assert a.shown == ["t0", "t1", "t2", "t3"]
    harness.topics.put("t-2-", 1)
    harness.topics.put("u", 1)
    a.beats()
    assert a.shown == ["t-2-0", "t0", "t1", "t2", "t3"]
    assert harness.group.is_subscribed_to("t-2-")
    assert not harness.group.is_subscribed_to("u")
    harness.topics.delete("t")
    a.beats()
    assert a.shown == ["t-2-0"]


def test_an_expression_is_forgotten_with_its_last_reader(harness):
    a, b = harness.join("a", "b", topics=None, regex="t.*")
    a.beat(topic_regex="", topic_names=frozenset({"t"}), owned=a.owned)
    assert harness.group.metadata.regexes.keys() == {"t.*"}
    b.leaves()
    assert harness.group.metadata.regexes == {}
    assert not harness.group.is_subscribed_to("u")
    assert harness.group.is_subscribed_to("t")


def test_names_and_an_expression_together():
    harness = ConsumerGroupHarness(topics=Topics(a=1, b=1, c=1))
    assert harness.join("m", topics=("a",), regex="b|c").shown == ["a0", "b0", "c0"]


def test_members_vote_on_the_assignor():
    harness = ConsumerGroupHarness(topics=Topics(t=1, u=1))
    harness.join("a", "b", topics=("t", "u"))
    assert harness.group.assignor_name == "uniform"
    harness.settles()
    assert [len(client.shown) for client in harness.clients.values()] == [1, 1]
    harness.join("c", topics=("t", "u"), assignor="range").leaves()
    harness.clients["a"].beats(server_assignor="range")
    assert harness.group.assignor_name == "range"
    harness.topics.put("u", 2)
    harness.settles()
    assert harness.clients["a"].shown == ["t0", "u0"]


# -- offsets --------------------------------------------------------------------------------------------------------


def test_commits_are_of_the_present_epoch(harness):
    a, b = harness.join("a", "b")
    harness.settles()
    assert a.commit() is NONE
    assert a.commit(a.epoch - 1) is ErrorCode.stale_member_epoch
    assert a.commit(a.epoch + 1) is ErrorCode.stale_member_epoch
    assert harness.client("c").commit(1) is ErrorCode.unknown_member_id
    a.leaves()
    b.leaves()
    assert b.commit(1) is ErrorCode.unknown_member_id
    harness.group.check_commit("", -1, None)


def test_fetches_are_of_the_present_epoch(harness):
    a = harness.join("a")
    assert a.fetch() is NONE
    assert a.fetch(0) is ErrorCode.stale_member_epoch
    assert harness.client("c").fetch(1) is ErrorCode.unknown_member_id
    harness.group.check_fetch(None, -1)


# -- loading --------------------------------------------------------------------------------------------------------


def test_another_coordinator_carries_on(harness):
    a, b = harness.join("a", "b")
    a.beat()
    other = harness.reloaded()
    assert other.state == "Reconciling"
    assert vars(other.group.metadata) == vars(harness.group.metadata)
    a.asks_again()
    other.settles()
    assert (a.shown, b.shown) == (["t0", "t1"], ["t2", "t3"])


def test_members_have_a_session_from_the_load_on(harness):
    a, b = harness.join("a", "b")
    harness.settles()
    harness.advance(SESSION_MS - 1)
    other = harness.reloaded()
    other.advance(SESSION_MS - 1)
    a.beats()
    other.advance(1)
    a.beats()
    assert a.shown == ["t0", "t1", "t2", "t3"]
    assert not b.beats().is_in


def test_who_must_let_go_has_its_timeout_from_the_load_on(harness):
    a, b = harness.join("a", "b")
    a.beat()
    other = harness.reloaded()
    for _ in range(2):
        other.advance(REBALANCE_MS // 2)
        b.beats()
    assert b.beats().shown == ["t0", "t1", "t2", "t3"]


def test_a_closed_group_does_nothing_any_more(harness):
    harness.join("a", "b")
    harness.shard.unload()
    assert len(harness.timer) == 0


@pytest.mark.parametrize("kept", range(1, 12))
def test_after_a_crash_between_two_batches_the_next_heartbeat_carries_on(kept):
    """Whatever prefix of the log is left, clients that try again settle."""
    harness = ConsumerGroupHarness()
    harness.join("a", "b")
    harness.settles()
    assert len(harness.journal.written) > 6
    after = ConsumerGroupHarness(topics=harness.topics, batches=harness.journal.written[:kept], clock=harness.clock)
    a, b = after.join("a", "b")
    after.settles()
    assert (len(a.shown), len(b.shown)) == (2, 2)


def test_records_in_the_order_that_compaction_leaves(harness):
    harness.join("a", "b", regex="t.*")
    harness.settles()
    last = {}
    for _, batch in harness.journal.written:
        for key, value in batch:
            last.pop(key, None)
            last[key] = value
    compacted = ConsumerGroupHarness(topics=harness.topics, batches=[(-1, list(last.items()))])
    assert vars(compacted.group.metadata) == vars(harness.group.metadata)


def commit_of(harness, *partitions, topic="t"):
    return [TopicCommit(topic, harness.topics.topic(topic).topic_id, [(number, 5, -1, "") for number in partitions])]


def test_a_commit_of_an_older_epoch_counts_for_what_was_kept_since(harness):
    a, b = harness.join("a", "b")
    harness.settles()
    assert (a.epoch, a.shown, b.shown) == (2, ["t0", "t1"], ["t2", "t3"])
    may = harness.group.may_commit_at_older_epoch
    for who in (harness, harness.reloaded()):
        assert who.group.may_commit_at_older_epoch("a", 1, commit_of(harness, 0, 1))
    assert not may("a", 1, commit_of(harness, 0, 2)), "b has it now"
    assert not may("b", 1, commit_of(harness, 2)), "it came with the present epoch"
    assert not may("a", 3, commit_of(harness, 0))
    assert not may("a", -1, commit_of(harness, 0))
    assert not may("c", 1, commit_of(harness, 0))
    commit(harness.shard, Committer("g", "a", 1), commit_of(harness, 0, 1), version=9)
    assert harness.shard.offsets.committed("g", "t", 1).offset == 5
    with pytest.raises(StaleMemberEpoch):
        commit(harness.shard, Committer("g", "b", 1), commit_of(harness, 2), version=9)
    with pytest.raises(UnsupportedVersion):
        commit(harness.shard, Committer("g", "a", 1), commit_of(harness, 0), version=8)


def test_what_is_being_let_go_of_can_still_be_committed(harness):
    a = harness.join("a")
    harness.topics.put("t", 5)
    a.beats()
    harness.join("b")
    a.beat()
    assert (a.member.epoch, harness.show(a.member.pending_revocation)) == (2, ["t3", "t4"])
    assert harness.group.may_commit_at_older_epoch("a", 1, commit_of(harness, 0, 3))
    assert not harness.group.may_commit_at_older_epoch("a", 1, commit_of(harness, 4))
