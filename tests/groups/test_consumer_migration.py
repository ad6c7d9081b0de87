"""Groups that change from one protocol to the other, with and without members."""

import pytest
from consumerbed import REBALANCE_MS, ConsumerBed
from groupbed import Client as ClassicClient

from headrace.groups.consumer_protocol import (
    Unreadable,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.groups.group import Leaving
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

    def __init__(self, bed, name, **fields):
        super().__init__(bed, name, protocols=(("cooperative-sticky", subscription()),), **fields)
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
        self.bed.events.append(f"{self.name} owns {sorted(self.owned)}")


@pytest.fixture
def bed():
    return ConsumerBed()


def classic_group(bed, *names):
    """A stable classic group, whose leader gave the partitions in turn."""
    clients = [Classic(bed, name) for name in names]
    for client in clients:
        client.in_group()
    bed.advance(1)
    parts = {client.member_id: frozenset(range(4)[at :: len(clients)]) for at, client in enumerate(clients)}
    shares = {member_id: write_assignment(1, {"t": part}) for member_id, part in parts.items()}
    for client in sorted(clients, key=lambda each: each.leads):
        client.syncs(shares if client.leads else {})
    assert bed.state == "Stable", bed.events
    bed.noted()
    return clients


def steps(bed, classic, rounds=8):
    for _ in range(rounds):
        for client in classic:
            client.settle_step()
        for client in bed.clients.values():
            if client.is_in:
                client.beats()


# -- without members ------------------------------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_one_of_the_consumer_protocol(bed):
    (a,) = classic_group(bed, "a")
    a.leaves()
    assert (bed.group.kind, bed.state) == ("classic", "Empty")
    bed.join("n")
    assert (bed.group.kind, bed.state) == ("consumer", "Stable")
    assert bed.reloaded().group.kind == "consumer"


def test_an_empty_consumer_group_becomes_a_classic_one(bed):
    bed.join("n").leaves()
    classic_group(bed, "a")
    assert bed.group.kind == "classic"
    assert bed.reloaded().group.kind == "classic"


def test_a_classic_member_of_the_past_is_unknown_to_an_empty_consumer_group(bed):
    bed.join("n").leaves()
    stale = Classic(bed, "x")
    stale.member_id = "x-1"
    stale.in_group()
    assert bed.noted()[-1] == "x may not join: unknown_member_id"
    assert bed.group.kind == "consumer"


# -- upgrade --------------------------------------------------------------------------------------------------------


def test_an_upgrade_takes_the_members_along(bed):
    a, b = classic_group(bed, "a", "b")
    generation_id = a.generation_id
    new = bed.join("n")
    assert (bed.group.kind, bed.epochs[0]) == ("consumer", generation_id + 1)
    assert new.shown == []
    assert (a.owned, b.owned) == ({0, 2}, {1, 3})
    steps(bed, (a, b))
    assert bed.state == "Stable"
    assert len(new.shown) + len(a.owned) + len(b.owned) == 4
    assert {len(new.shown), len(a.owned), len(b.owned)} == {1, 2}
    assert not a.owned & b.owned
    assert a.commit() is ErrorCode.none


def test_an_upgraded_group_is_found_again(bed):
    a, b = classic_group(bed, "a", "b")
    bed.join("n")
    other = bed.reloaded()
    for client in (a, b):
        client.bed = other
    assert vars(other.group.state) == vars(bed.group.state)
    steps(other, (a, b))
    assert other.state == "Stable"


def test_classic_members_that_wait_are_told_to_join_the_new_group(bed):
    a, b = classic_group(bed, "a", "b")
    late = Classic(bed, "c")
    late.in_group()
    a.in_group()
    bed.noted()
    bed.join("n")
    assert [event for event in bed.noted() if "rebalance_in_progress" in event] == [
        "a join failed: rebalance_in_progress",
        "c join failed: rebalance_in_progress",
    ]
    late.member_id = late.answers[-1].member_id
    for client in (a, late):
        client.in_group()
        client.syncs()
    steps(bed, (a, b, late))
    assert bed.state == "Stable"
    assert sorted(map(len, (a.owned, b.owned, late.owned, bed.clients["n"].owned))) == [1, 1, 1, 1]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_may_be_forbidden(policy):
    bed = ConsumerBed(group_consumer_migration_policy=policy)
    (a,) = classic_group(bed, "a")
    with pytest.raises(GroupIdNotFound):
        bed.client("n").beat(epoch=0, rebalance_timeout_ms=1, owned={}, topic_names=frozenset({"t"}))
    assert bed.group.kind == "classic"
    a.heartbeats()


def test_a_group_whose_members_are_no_consumers_stays_what_it_is(bed):
    other = ClassicClient(bed, "w", protocol_type="connect", protocols=(("x", b""),))
    other.joins()
    bed.advance(1)
    other.syncs({})
    with pytest.raises(GroupIdNotFound):
        bed.client("n").beat(epoch=0, rebalance_timeout_ms=1, owned={}, topic_names=frozenset({"t"}))


# -- classic members in a consumer group ----------------------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(bed):
    new = bed.join("n")
    a = Classic(bed, "a").in_group()
    a.syncs()
    steps(bed, (a,))
    assert (len(new.shown), len(a.owned), bed.state) == (2, 2, "Stable")
    assert bed.group.state.members[a.member_id].classic.session_timeout_ms == 10_000
    bed.advance(10_000)
    new.beats()
    assert a.heartbeat() is ErrorCode.unknown_member_id


def test_a_classic_member_that_does_not_join_again_is_out(bed):
    new = bed.join("n")
    a = Classic(bed, "a", session_timeout_ms=600_000).in_group()
    a.syncs()
    steps(bed, (a,))
    bed.topics.put("t", 6)
    for _ in range(3):
        new.beats()
        assert a.heartbeat() is ErrorCode.rebalance_in_progress
        bed.advance(REBALANCE_MS // 2 - 1)
    assert a.heartbeat() is ErrorCode.unknown_member_id


def test_what_classic_members_may_not(bed):
    new = bed.join("n")
    a = Classic(bed, "a").in_group()
    a.syncs()
    bed.noted()
    group = bed.group
    for generation_id, error in ((a.generation_id + 1, ErrorCode.illegal_generation),):
        a.generation_id, kept = generation_id, a.generation_id
        assert a.heartbeat() is error
        assert a.commit() is error
        a.syncs()
        assert bed.noted()[-1] == f"a may not sync: {error.name}"
        a.generation_id = kept
    a.syncs(protocol_name="other")
    assert bed.noted()[-1] == "a may not sync: inconsistent_group_protocol"
    with pytest.raises(UnknownMemberId):
        group.heartbeat(new.member_id, new.epoch, None)
    assert group.leave([Leaving(member_id=new.member_id), Leaving(member_id="nobody")]) == [
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    wrong = Classic(bed, "w")
    for protocols in ((("range", subscription()),), (("cooperative-sticky", b"\0"),), ()):
        wrong.joins(protocols=protocols)
        assert bed.noted()[-1] == "w may not join: inconsistent_group_protocol"
    first = Classic(bed, "f", needs_member_id=True)
    first.in_group()
    assert bed.noted()[-1] == "f join failed: member_id_required"


def test_a_static_classic_member_takes_its_own_place(bed):
    bed.join("n")
    a = Classic(bed, "a", instance_id="i").in_group()
    a.syncs()
    steps(bed, (a,))
    again = Classic(bed, "b", instance_id="i").in_group()
    again.syncs()
    assert again.owned == a.owned
    assert a.heartbeat() is ErrorCode.fenced_instance_id
    new = bed.join("c", instance_id="i")  # upgraded: it needs not have left
    assert len(new.shown) == 2
    assert bed.group.leave([Leaving(member_id="", instance_id="i")]) == [ErrorCode.none]


# -- downgrade ------------------------------------------------------------------------------------------------------


def test_the_last_of_the_consumer_protocol_leaves_a_classic_group(bed):
    a, b = classic_group(bed, "a", "b")
    new = bed.join("n")
    steps(bed, (a, b))
    epoch = bed.epochs[0]
    new.leaves()
    assert (bed.group.kind, bed.group.state_name) == ("classic", "PreparingRebalance")
    assert bed.group.generation_id == epoch + 1
    for client in (a, b):
        assert client.heartbeat() in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)
        client.in_group()
    assert {a.generation_id, b.generation_id} == {epoch + 2}
    assert a.leads != b.leads
    assert bed.reloaded().group.kind == "classic"


def test_a_group_that_was_downgraded_leaves_no_timer_behind(bed, caplog):
    (a,) = classic_group(bed, "a")
    new = bed.join("n")
    steps(bed, (a,))
    new.leaves()
    assert bed.group.kind == "classic"
    bed.advance(10 * REBALANCE_MS)
    assert (bed.group.kind, bed.group.state_name) == ("classic", "Empty")
    assert not caplog.records, "a timer of the consumer group had nobody to act on"


def test_without_the_policy_classic_members_stay_where_they_are():
    bed = ConsumerBed(group_consumer_migration_policy="upgrade")
    (a,) = classic_group(bed, "a")
    new = bed.join("n")
    steps(bed, (a,))
    new.leaves()
    assert bed.group.kind == "consumer"
    steps(bed, (a,))
    assert a.owned == {0, 1, 2, 3}


def test_a_group_without_any_member_is_not_downgraded(bed):
    (a,) = classic_group(bed, "a")
    bed.join("n")
    assert bed.group.leave([Leaving(member_id=a.member_id)]) == [ErrorCode.none]
    bed.clients["n"].leaves()
    assert (bed.group.kind, bed.state) == ("consumer", "Empty")


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
