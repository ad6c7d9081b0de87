"""The record of a classic group, and the group that another coordinator loads from it."""

import pytest
from group_harness import DELAY_MS, NONE, SESSION_MS, GroupHarness

from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.embedded_protocol import subscribed_topics
from headrace.protocol.errors import ErrorCode, GroupIdNotFound, KafkaError, NonEmptyGroup
from headrace.protocol.internal_records import RecordType, encode_key, encode_value


@pytest.fixture
def harness():
    harness = GroupHarness()
    harness.join("a")
    harness.join("b", instance_id="B")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    return harness


def test_a_group_is_written_when_it_is_stable(harness):
    ((group_id, value),) = harness.records()
    assert group_id == "g"
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    assert value.leader == harness.clients["a"].member_id
    assert value.current_state_timestamp <= harness.clock.wall_ms()
    a, b = value.members
    assert (a.member_id, a.group_instance_id, a.client_id) == (harness.clients["a"].member_id, None, "a")
    assert (a.client_host, a.session_timeout, a.rebalance_timeout) == ("/127.0.0.1", SESSION_MS, 60_000)
    assert (a.subscription, a.assignment) == (b"by range", b"part-of-a")
    assert (b.group_instance_id, b.assignment) == ("B", b"part-of-B")


def test_a_group_is_not_written_between_two_generations(harness):
    harness.join("c")
    harness.clients["a"].joins()
    harness.clients["b"].joins()
    assert harness.state is ClassicGroupState.COMPLETING
    assert len(harness.records()) == 1


def test_a_group_is_written_when_it_is_empty(harness):
    for client in harness.clients.values():
        client.leaves()
    _, value = harness.records()[-1]
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, ())
    assert value.protocol_type == "consumer"


def test_an_empty_group_that_cannot_be_written_is_empty_all_the_same(harness):
    harness.journal.is_broken = True
    for client in harness.clients.values():
        client.leaves()
    assert harness.state is ClassicGroupState.EMPTY


def test_members_go_on_after_a_restart(harness):
    again = harness.reloaded()
    assert again.state is ClassicGroupState.STABLE
    for client in harness.clients.values():
        client.heartbeats()
        assert client.commit() is NONE
        client.syncs()
    assert again.noted() == ["a synced part-of-a", "b synced part-of-B"]


def test_members_that_do_not_show_up_after_a_restart_are_out(harness):
    again = harness.reloaded()
    again.advance(SESSION_MS - 1)
    harness.clients["a"].heartbeats()
    again.advance(1)
    assert again.state is ClassicGroupState.PREPARING
    harness.clients["a"].joins()
    assert again.noted() == ["a joined 2 leading a"]


def test_a_rebalance_that_a_restart_cuts_off_begins_anew(harness):
    harness.join("c")
    harness.clients["a"].joins()
    again = harness.reloaded()
    a, b, c = (again.clients[name] for name in "abc")
    assert again.state is ClassicGroupState.STABLE
    a.joins()
    assert b.heartbeat() is ErrorCode.rebalance_in_progress
    c.joins()
    b.joins()
    assert again.noted() == ["a joined 2 leading a B c", "b joined 2", "c joined 2"]


def test_a_restart_with_a_smaller_limit_rebalances_those_out_that_come_last(harness):
    again = harness.reloaded(group_max_size=1)
    a, b = again.clients.values()
    assert again.state is ClassicGroupState.PREPARING
    b.joins()
    a.joins()
    assert again.noted() == ["b joined 2 leading B", "a may not join: group_max_size_reached"]


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_the_record_is_read(version):
    member = {
        "member_id": "m", "group_instance_id": None, "client_id": "c", "client_host": "/h",
        "session_timeout": 10_000, "rebalance_timeout": 20_000, "subscription": b"s", "assignment": b"a",
    }  # fmt: skip
    value = encode_value(
        RecordType.GROUP_METADATA, version, protocol_type="consumer", generation=7, protocol="range", leader="m",
        current_state_timestamp=5, members=[member],
    )  # fmt: skip
    harness = GroupHarness(batches=[(-1, [(encode_key(RecordType.GROUP_METADATA, group="g"), value)])])
    (member,) = harness.group.members
    assert (harness.state, harness.group.generation_id, harness.group.members.leader_id) == (
        ClassicGroupState.STABLE,
        7,
        "m",
    )
    assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)
    assert harness.group.metadata.state_since_ms == (5 if version >= 2 else -1)
    assert (member.metadata("range"), member.assignment) == (b"s", b"a")


def test_only_empty_groups_are_deleted(harness):
    with pytest.raises(NonEmptyGroup):
        harness.shard.delete_group("g")
    for client in harness.clients.values():
        client.leaves()
    harness.shard.delete_group("g")
    assert harness.records()[-1] == ("g", None)
    assert harness.group is None
    assert harness.reloaded().group is None
    with pytest.raises(GroupIdNotFound):
        harness.shard.delete_group("g")


def test_a_deletion_that_cannot_be_written_did_not_happen(harness):
    for client in harness.clients.values():
        client.leaves()
    harness.journal.is_broken = True
    with pytest.raises(KafkaError):
        harness.shard.delete_group("g")
    assert harness.state is ClassicGroupState.EMPTY


def test_nothing_is_due_when_a_group_is_gone(harness):
    for client in harness.clients.values():
        client.leaves()
    harness.shard.delete_group("g")
    assert len(harness.timer) == 0


# -- subscriptions

ORDERS = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x06orders" + b"\x00\x04more" + b"\xff\xff\xff\xff"


def test_what_a_group_reads_is_known_of_its_consumers():
    harness = GroupHarness()
    harness.join("a", protocols=(("range", ORDERS),))
    assert harness.group.is_subscribed_to("others")  # nobody knows yet
    harness.settles()
    assert harness.group.is_subscribed_to("orders")
    assert not harness.group.is_subscribed_to("others")
    again = harness.reloaded()
    assert again.group.is_subscribed_to("more")
    harness = again
    harness.clients["a"].leaves()
    assert not harness.group.is_subscribed_to("orders")


@pytest.mark.parametrize("cut", range(len(ORDERS) - 4))
def test_subscriptions_that_are_cut_off(cut):
    assert subscribed_topics([ORDERS]) == {"orders", "more"}
    assert subscribed_topics([ORDERS, ORDERS[:cut]]) is None


def test_offsets_of_members_nobody_can_read_are_not_deleted():
    harness = GroupHarness()
    harness.join("a", protocol_type="connect")
    harness.settles()
    with pytest.raises(NonEmptyGroup):
        harness.group.check_offset_delete()
    assert harness.group.expires_from_ms(7) is None
    harness.clients["a"].leaves()
    harness.group.check_offset_delete()
    assert harness.group.expires_from_ms(7) == harness.group.metadata.state_since_ms


def test_from_when_offsets_expire():
    harness = GroupHarness()
    group = harness.shard.ensure_group("g")
    assert group.expires_from_ms(7) == 7  # only keeps offsets
    harness.join("a", protocols=(("range", ORDERS),))
    assert group.expires_from_ms(7) is None
    harness.settles()
    assert group.expires_from_ms(7) == 7  # of those topics that it does not read
    harness.clients["a"].leaves()
    assert group.expires_from_ms(7) == harness.clock.wall_ms()
