"""Groups that migrate from one protocol to the other, with and without members."""

import pytest
from consumer_group_harness import REBALANCE_MS, ConsumerGroupHarness
from group_harness import Client as ClassicClient

from headrace.groups.embedded_protocol import (
    Unreadable,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.groups.group import LeavingMember
from headrace.protocol.errors import ErrorCode, GroupIdNotFound, KafkaError, UnknownMemberId

SUBSCRIPTION_V0 = bytes.fromhex("0000 00000001 0001 74 ffffffff")


def subscription(owned=(), version=1):
    """To the topic t, by somebody who has these of its partitions."""
    head = version.to_bytes(2, "big") + bytes.fromhex("00000001 0001 74 ffffffff")
    if version == 0:
        return head
    numbers = b"".join(partition.to_bytes(4, "big") for partition in sorted(owned))
    return head + bytes.fromhex("00000001 0001 74") + len(owned).to_bytes(4, "big") + numbers


class Classic(ClassicClient):
    """A consumer of the classic protocol; it joins again when it is told to, with what it then has."""

    def __init__(self, harness, name, **fields):
        super().__init__(harness, name, protocols=(("cooperative-sticky", subscription()),), **fields)
        self.owned = frozenset()

    def in_group(self):
        self.joins(protocols=(("cooperative-sticky", subscription(self.owned)),))
        return self

    def settle_step(self):
        if self.heartbeat() is ErrorCode.rebalance_in_progress:
            self.in_group()
            self.syncs()
        return self

    def _synced(self, synced):
        if synced.error is ErrorCode.none:
            self.owned = read_assignment(synced.assignment).get("t", frozenset())
        self.harness.events.append(f"{self.name} owns {sorted(self.owned)}")


@pytest.fixture
def harness():
    return ConsumerGroupHarness()


def classic_group(harness, *names):
    """A stable classic group, whose leader gave the partitions in turn."""
    clients = [Classic(harness, name) for name in names]
    for client in clients:
        client.in_group()
    harness.advance(1)
    parts = {client.member_id: frozenset(range(4)[at :: len(clients)]) for at, client in enumerate(clients)}
    shares = {member_id: write_assignment(1, {"t": part}) for member_id, part in parts.items()}
    for client in sorted(clients, key=lambda each: each.leads):
        client.syncs(shares if client.leads else {})
    assert harness.state == "Stable", harness.events
    harness.noted()
    return clients


def steps(harness, classic, rounds=8):
    for _ in range(rounds):
        for client in classic:
            client.settle_step()
        for client in harness.clients.values():
            if client.is_in:
                client.beats()


# -- without members ------------------------------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_one_of_the_consumer_protocol(harness):
    (a,) = classic_group(harness, "a")
    a.leaves()
    assert (harness.group.kind, harness.state) == ("classic", "Empty")
    harness.join("n")
    assert (harness.group.kind, harness.state) == ("consumer", "Stable")
    assert harness.reloaded().group.kind == "consumer"


def test_an_empty_consumer_group_becomes_a_classic_one(harness):
    harness.join("n").leaves()
    classic_group(harness, "a")
    assert harness.group.kind == "classic"
    assert harness.reloaded().group.kind == "classic"


def test_a_classic_member_of_the_past_is_unknown_to_an_empty_consumer_group(harness):
    harness.join("n").leaves()
    stale = Classic(harness, "x")
    stale.member_id = "x-1"
    stale.in_group()
    assert harness.noted()[-1] == "x may not join: unknown_member_id"
    assert harness.group.kind == "consumer"


# -- upgrade --------------------------------------------------------------------------------------------------------


def test_an_upgrade_takes_the_members_along(harness):
    a, b = classic_group(harness, "a", "b")
    generation_id = a.generation_id
    new = harness.join("n")
    assert (harness.group.kind, harness.epochs[0]) == ("consumer", generation_id + 1)
    assert new.shown == []
    assert (a.owned, b.owned) == ({0, 2}, {1, 3})
    steps(harness, (a, b))
    assert harness.state == "Stable"
    assert len(new.shown) + len(a.owned) + len(b.owned) == 4
    assert {len(new.shown), len(a.owned), len(b.owned)} == {1, 2}
    assert not a.owned & b.owned
    assert a.commit() is ErrorCode.none


def test_an_upgraded_group_is_found_again(harness):
    a, b = classic_group(harness, "a", "b")
    harness.join("n")
    other = harness.reloaded()
    for client in (a, b):
        client.harness = other
    assert vars(other.group.metadata) == vars(harness.group.metadata)
    steps(other, (a, b))
    assert other.state == "Stable"


def test_classic_members_that_wait_are_told_to_join_the_new_group(harness):
    a, b = classic_group(harness, "a", "b")
    late = Classic(harness, "c")
    late.in_group()
    a.in_group()
    harness.noted()
    harness.join("n")
    assert [event for event in harness.noted() if "rebalance_in_progress" in event] == [
        "a join failed: rebalance_in_progress",
        "c join failed: rebalance_in_progress",
    ]
    late.member_id = late.answers[-1].member_id
    for client in (a, late):
        client.in_group()
        client.syncs()
    steps(harness, (a, b, late))
    assert harness.state == "Stable"
    assert sorted(map(len, (a.owned, b.owned, late.owned, harness.clients["n"].owned))) == [1, 1, 1, 1]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_may_be_forbidden(policy):
    harness = ConsumerGroupHarness(group_consumer_migration_policy=policy)
    (a,) = classic_group(harness, "a")
    with pytest.raises(GroupIdNotFound):
        harness.client("n").beat(epoch=0, rebalance_timeout_ms=1, owned={}, topic_names=frozenset({"t"}))
    assert harness.group.kind == "classic"
    a.heartbeats()


def test_a_group_whose_members_are_no_consumers_stays_what_it_is(harness):
    other = ClassicClient(harness, "w", protocol_type="connect", protocols=(("x", b""),))
    other.joins()
    harness.advance(1)
    other.syncs({})
    with pytest.raises(GroupIdNotFound):
        harness.client("n").beat(epoch=0, rebalance_timeout_ms=1, owned={}, topic_names=frozenset({"t"}))


# -- classic members in a consumer group ----------------------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(harness):
    new = harness.join("n")
    a = Classic(harness, "a").in_group()
    a.syncs()
    steps(harness, (a,))
    assert (len(new.shown), len(a.owned), harness.state) == (2, 2, "Stable")
    assert harness.group.metadata.members[a.member_id].classic_metadata.session_timeout_ms == 10_000
    harness.advance(10_000)
    new.beats()
    assert a.heartbeat() is ErrorCode.unknown_member_id


def test_a_classic_member_that_does_not_join_again_is_out(harness):
    new = harness.join("n")
    a = Classic(harness, "a", session_timeout_ms=600_000).in_group()
    a.syncs()
    steps(harness, (a,))
    harness.topics.put("t", 6)
    for _ in range(3):
        new.beats()
        assert a.heartbeat() is ErrorCode.rebalance_in_progress
        harness.advance(REBALANCE_MS // 2 - 1)
    assert a.heartbeat() is ErrorCode.unknown_member_id


def test_what_classic_members_may_not(harness):
    new = harness.join("n")
    a = Classic(harness, "a").in_group()
    a.syncs()
    harness.noted()
    group = harness.group
    for generation_id, error in ((a.generation_id + 1, ErrorCode.illegal_generation),):
        a.generation_id, kept = generation_id, a.generation_id
        assert a.heartbeat() is error
        assert a.commit() is error
        a.syncs()
        assert harness.noted()[-1] == f"a may not sync: {error.name}"
        a.generation_id = kept
    a.syncs(protocol_name="other")
    assert harness.noted()[-1] == "a may not sync: inconsistent_group_protocol"
    with pytest.raises(UnknownMemberId):
        group.heartbeat(new.member_id, new.epoch, None)
    assert group.leave([LeavingMember(member_id=new.member_id), LeavingMember(member_id="nobody")]) == [
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    wrong = Classic(harness, "w")
    for protocols in ((("range", subscription()),), (("cooperative-sticky", b"\0"),), ()):
        wrong.joins(protocols=protocols)
        assert harness.noted()[-1] == "w may not join: inconsistent_group_protocol"
    first = Classic(harness, "f", needs_member_id=True)
    first.in_group()
    assert harness.noted()[-1] == "f join failed: member_id_required"


def test_a_static_classic_member_takes_its_own_place(harness):
    harness.join("n")
    a = Classic(harness, "a", instance_id="i").in_group()
    a.syncs()
    steps(harness, (a,))
    again = Classic(harness, "b", instance_id="i").in_group()
    again.syncs()
    assert again.owned == a.owned
    assert a.heartbeat() is ErrorCode.fenced_instance_id
    new = harness.join("c", instance_id="i")  # upgraded: it needs not have left
    assert len(new.shown) == 2
    assert harness.group.leave([LeavingMember(member_id="", instance_id="i")]) == [ErrorCode.none]


# -- downgrade ------------------------------------------------------------------------------------------------------


def test_the_last_of_the_consumer_protocol_leaves_a_classic_group(harness):
    a, b = classic_group(harness, "a", "b")
    new = harness.join("n")
    steps(harness, (a, b))
    epoch = harness.epochs[0]
    new.leaves()
    assert (harness.group.kind, harness.group.state_name) == ("classic", "PreparingRebalance")
    assert harness.group.generation_id == epoch + 1
    for client in (a, b):
        assert client.heartbeat() in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)
        client.in_group()
    assert {a.generation_id, b.generation_id} == {epoch + 2}
    assert a.leads != b.leads
    assert harness.reloaded().group.kind == "classic"


def test_a_group_that_was_downgraded_leaves_no_timer_behind(harness, caplog):
    (a,) = classic_group(harness, "a")
    new = harness.join("n")
    steps(harness, (a,))
    new.leaves()
    assert harness.group.kind == "classic"
    harness.advance(10 * REBALANCE_MS)
    assert (harness.group.kind, harness.group.state_name) == ("classic", "Empty")
    assert not caplog.records, "a timer of the consumer group had nobody to act on"


def test_without_the_policy_classic_members_stay_where_they_are():
    harness = ConsumerGroupHarness(group_consumer_migration_policy="upgrade")
    (a,) = classic_group(harness, "a")
    new = harness.join("n")
    steps(harness, (a,))
    new.leaves()
    assert harness.group.kind == "consumer"
    steps(harness, (a,))
    assert a.owned == {0, 1, 2, 3}


def test_a_group_without_any_member_is_not_downgraded(harness):
    (a,) = classic_group(harness, "a")
    harness.join("n")
    assert harness.group.leave([LeavingMember(member_id=a.member_id)]) == [ErrorCode.none]
    harness.clients["n"].leaves()
    assert (harness.group.kind, harness.state) == ("consumer", "Empty")


# -- bytes ----------------------------------------------------------------------------------------------------------


def test_subscriptions_of_all_versions():
    assert read_subscription(SUBSCRIPTION_V0) == ({"t"}, {}, None)
    assert read_subscription(subscription({1, 3})) == ({"t"}, {"t": {1, 3}}, None)
    newest = subscription({1}, version=3) + (7).to_bytes(4, "big") + bytes.fromhex("0001 72")
    assert read_subscription(newest) == ({"t"}, {"t": {1}}, "r")
    assert version_of(newest) == 3


def test_assignments():
    parts = {"t": frozenset({0, 5}), "u": frozenset({1})}
    assert read_assignment(write_assignment(2, parts)) == parts
    assert read_assignment(b"") == {}


@pytest.mark.parametrize("cut", range(len(subscription({1, 2}))))
def test_what_is_cut_off_is_unreadable(cut):
    with pytest.raises(Unreadable):
        read_subscription(subscription({1, 2})[:cut])


def test_errors_are_kafkas():
    assert issubclass(GroupIdNotFound, KafkaError)
