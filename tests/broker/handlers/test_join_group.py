"""JoinGroup: the members that a group accepts, in each version."""

from contextlib import ExitStack

import pytest
from broker_harness import all_versions, unique
from group_member_harness import SUBSCRIPTION, Member, find_coordinator, join_request, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def group(client):
    name = unique("group")
    while find_coordinator(client, name)[name].error_code:
        pass
    return name


def refusal(client, group, version=9, **fields):
    answer = client.ask(Api.JOIN_GROUP, version, **join_request(group, **fields))
    assert answer.generation_id == -1
    assert answer.members == ()
    return answer.error_code


@pytest.mark.parametrize("version", all_versions(Api.JOIN_GROUP))
def test_every_version(address, group, version):
    with Member(address, group, version=version) as member:
        joined = member.join()
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.member_id.startswith("tester-")
        assert joined.leader == joined.member_id
        (only,) = joined.members
        assert (only.member_id, only.metadata) == (joined.member_id, SUBSCRIPTION)
        if version >= 7:
            assert joined.protocol_type == "consumer"


@pytest.mark.parametrize("version", all_versions(Api.JOIN_GROUP))
def test_from_v4_on_a_new_member_is_given_its_id_first(client, group, version):
    answer = client.ask(Api.JOIN_GROUP, version, **join_request(group))
    assert answer.error_code == (ErrorCode.member_id_required if version >= 4 else ErrorCode.none)
    assert answer.member_id.startswith("raw-client-")


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_refusal_has_no_protocol(client, group, version):
    answer = client.ask(Api.JOIN_GROUP, version, **join_request(group, "x"))
    assert answer.error_code == ErrorCode.unknown_member_id
    assert answer.member_id == "x"
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "x"}, ErrorCode.unknown_member_id),
        ({"member_id": "x", "instance_id": "i"}, ErrorCode.unknown_member_id),
    ],
    ids=str,
)
def test_refusals(client, group, fields, error):
    assert refusal(client, group, **fields) == error


def test_a_group_needs_a_name(client, group):
    assert refusal(client, "") == ErrorCode.invalid_group_id


def test_members_need_something_in_common(client, address):
    with members(address) as (member,):
        other = (("sticky", SUBSCRIPTION),)
        assert refusal(client, member.group, protocols=other) == ErrorCode.inconsistent_group_protocol
        assert refusal(client, member.group, protocol_type="connect") == ErrorCode.inconsistent_group_protocol


def test_the_leader_is_told_of_all_members(address):
    with members(address, 3) as (leader, *followers):
        told = {each.member_id: each.metadata for each in leader.joined.members}
        assert told == {each.member_id: SUBSCRIPTION for each in (leader, *followers)}
        assert {each.joined.leader for each in followers} == {leader.member_id}
        assert {each.joined.members for each in followers} == {()}


@pytest.mark.parametrize("version", range(5, 10))
def test_a_restarted_static_member_takes_its_place_again(address, group, version):
    with ExitStack() as stack:
        old, new = (stack.enter_context(Member(address, group, version=version, instance_id="i")) for _ in range(2))
        assert old.join().error_code == 0
        assert old.joined.members[0].group_instance_id == "i"
        old.sync(3)
        joined = new.join()
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert joined.member_id != old.member_id
        assert old.heartbeat() == ErrorCode.fenced_instance_id
        if version >= 9:
            assert joined.skip_assignment
            assert joined.leader == joined.member_id
            assert len(joined.members) == 1
        else:
            assert joined.leader == old.member_id
            assert joined.members == ()
        assert new.sync(3, []).assignment == b"part of " + old.member_id.encode()


def test_a_newcomer_begins_a_rebalance(address):
    with members(address, 2) as (leader, follower), Member(address, leader.group) as newcomer:
        newcomer.ask_for_id()
        newcomer.send_join()
        while not leader.heartbeat():
            pass
        assert leader.heartbeat() == follower.heartbeat() == ErrorCode.rebalance_in_progress
        leader.send_join()
        follower.send_join()
        generations = [each.receive_join().generation_id for each in (leader, follower, newcomer)]
        assert generations == [3, 3, 3]
        assert len(leader.joined.members) == 3
