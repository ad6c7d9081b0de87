"""What a classic group leaves in the log, and what another coordinator makes of it."""

import pytest
from groupbed import DELAY_MS, NONE, SESSION_MS, GroupBed

from headrace.groups.states import State
from headrace.groups.subscription import subscribed_topics
from headrace.protocol.errors import ErrorCode, GroupIdNotFound, KafkaError, NonEmptyGroup
from headrace.protocol.internal_records import RecordType, encode_key, encode_value


@pytest.fixture
def bed():
    bed = GroupBed()
    bed.join("a")
    bed.join("b", instance_id="B")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    return bed


def test_a_group_is_written_when_it_is_stable(bed):
    ((group_id, value),) = bed.records()
    assert group_id == "g"
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    assert value.leader == bed.clients["a"].member_id
    assert value.current_state_timestamp <= bed.clock.wall_ms()
    a, b = value.members
    assert (a.member_id, a.group_instance_id, a.client_id) == (bed.clients["a"].member_id, None, "a")
    assert (a.client_host, a.session_timeout, a.rebalance_timeout) == ("/127.0.0.1", SESSION_MS, 60_000)
    assert (a.subscription, a.assignment) == (b"by range", b"part-of-a")
    assert (b.group_instance_id, b.assignment) == ("B", b"part-of-B")


def test_a_group_is_not_written_between_two_generations(bed):
    bed.join("c")
    bed.clients["a"].joins()
    bed.clients["b"].joins()
    assert bed.state is State.COMPLETING
    assert len(bed.records()) == 1


def test_a_group_is_written_when_it_is_empty(bed):
    for client in bed.clients.values():
        client.leaves()
    _, value = bed.records()[-1]
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, ())
    assert value.protocol_type == "consumer"


def test_an_empty_group_that_cannot_be_written_is_empty_all_the_same(bed):
    bed.journal.is_broken = True
    for client in bed.clients.values():
        client.leaves()
    assert bed.state is State.EMPTY


def test_members_go_on_after_a_restart(bed):
    again = bed.reloaded()
    assert again.state is State.STABLE
    for client in bed.clients.values():
        client.heartbeats()
        assert client.commit() is NONE
        client.syncs()
    assert again.noted() == ["a synced part-of-a", "b synced part-of-B"]


def test_members_that_do_not_show_up_after_a_restart_are_out(bed):
    again = bed.reloaded()
    again.advance(SESSION_MS - 1)
    bed.clients["a"].heartbeats()
    again.advance(1)
    assert again.state is State.PREPARING
    bed.clients["a"].joins()
    assert again.noted() == ["a joined 2 leading a"]


def test_a_rebalance_that_a_restart_cuts_off_begins_anew(bed):
    bed.join("c")
    bed.clients["a"].joins()
    again = bed.reloaded()
    a, b, c = (again.clients[name] for name in "abc")
    assert again.state is State.STABLE
    a.joins()
    assert b.heartbeat() is ErrorCode.rebalance_in_progress
    c.joins()
    b.joins()
    assert again.noted() == ["a joined 2 leading a B c", "b joined 2", "c joined 2"]


def test_a_restart_with_a_smaller_limit_rebalances_those_out_that_come_last(bed):
    again = bed.reloaded(group_max_size=1)
    a, b = again.clients.values()
    assert again.state is State.PREPARING
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
    bed = GroupBed(batches=[(-1, [(encode_key(RecordType.GROUP_METADATA, group="g"), value)])])
    (member,) = bed.group.members
    assert (bed.state, bed.group.generation_id, bed.group.members.leader_id) == (State.STABLE, 7, "m")
    assert member.rebalance_timeout_ms == (20_000 if version >= 1 else 10_000)
    assert bed.group.state_since_ms == (5 if version >= 2 else -1)
    assert (member.metadata("range"), member.assignment) == (b"s", b"a")


def test_only_empty_groups_are_deleted(bed):
    with pytest.raises(NonEmptyGroup):
        bed.shard.delete_group("g")
    for client in bed.clients.values():
        client.leaves()
    bed.shard.delete_group("g")
    assert bed.records()[-1] == ("g", None)
    assert bed.group is None
    assert bed.reloaded().group is None
    with pytest.raises(GroupIdNotFound):
        bed.shard.delete_group("g")


def test_a_deletion_that_cannot_be_written_did_not_happen(bed):
    for client in bed.clients.values():
        client.leaves()
    bed.journal.is_broken = True
    with pytest.raises(KafkaError):
        bed.shard.delete_group("g")
    assert bed.state is State.EMPTY


def test_nothing_is_due_when_a_group_is_gone(bed):
    for client in bed.clients.values():
        client.leaves()
    bed.shard.delete_group("g")
    assert len(bed.timer) == 0


# -- subscriptions

ORDERS = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x06orders" + b"\x00\x04more" + b"\xff\xff\xff\xff"


def test_what_a_group_reads_is_known_of_its_consumers():
    bed = GroupBed()
    bed.join("a", protocols=(("range", ORDERS),))
    assert bed.group.is_subscribed_to("others")  # nobody knows yet
    bed.settles()
    assert bed.group.is_subscribed_to("orders")
    assert not bed.group.is_subscribed_to("others")
    again = bed.reloaded()
    assert again.group.is_subscribed_to("more")
    bed = again
    bed.clients["a"].leaves()
    assert not bed.group.is_subscribed_to("orders")


@pytest.mark.parametrize("cut", range(len(ORDERS) - 4))
def test_subscriptions_that_are_cut_off(cut):
    assert subscribed_topics([ORDERS]) == {"orders", "more"}
    assert subscribed_topics([ORDERS, ORDERS[:cut]]) is None


def test_offsets_of_members_nobody_can_read_are_not_deleted():
    bed = GroupBed()
    bed.join("a", protocol_type="connect")
    bed.settles()
    with pytest.raises(NonEmptyGroup):
        bed.group.check_offset_delete()
    assert bed.group.expires_from_ms(7) is None
    bed.clients["a"].leaves()
    bed.group.check_offset_delete()
    assert bed.group.expires_from_ms(7) == bed.group.state_since_ms


def test_from_when_offsets_expire():
    bed = GroupBed()
    group = bed.shard.classic_group("g")
    assert group.expires_from_ms(7) == 7  # only keeps offsets
    bed.join("a", protocols=(("range", ORDERS),))
    assert group.expires_from_ms(7) is None
    bed.settles()
    assert group.expires_from_ms(7) == 7  # of those topics that it does not read
    bed.clients["a"].leaves()
    assert group.expires_from_ms(7) == bed.clock.wall_ms()
