"""LeaveGroup, in each version."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import Member, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", all_versions(Api.LEAVE_GROUP))
def test_every_version(address, version):
    with members(address) as (member,):
        left = member.leave(version=version)
        assert left.error_code == 0
        if version >= 3:
            (outcome,) = left.members
            assert (outcome.member_id, outcome.error_code) == (member.member_id, 0)
        assert member.heartbeat() == ErrorCode.unknown_member_id
        again = member.leave(version=version)
        unknown = again.error_code if version < 3 else again.members[0].error_code
        assert unknown == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", [2, 5])
def test_a_group_that_is_not_there(address, version):
    with Member(address, unique("group")) as member:
        left = member.leave(version=version)
        if version < 3:
            assert left.error_code == ErrorCode.unknown_member_id
        else:
            assert left.error_code == 0
            assert [each.error_code for each in left.members] == [ErrorCode.unknown_member_id]


def test_a_group_needs_a_name(address):
    with Member(address, "") as member:
        assert member.leave().error_code == ErrorCode.invalid_group_id


def test_many_leave_at_once(address):
    with members(address, 3) as everybody:
        gone = [(each.member_id, None) for each in everybody[1:]]
        left = everybody[0].leave(*gone, ("x", None))
        assert left.error_code == 0
        assert [each.error_code for each in left.members] == [0, 0, ErrorCode.unknown_member_id]
        assert everybody[0].heartbeat() == ErrorCode.rebalance_in_progress
        assert everybody[0].join().generation_id == 3
        assert len(everybody[0].joined.members) == 1


def test_static_members_are_taken_out_by_their_instance(address):
    with Member(address, unique("group"), instance_id="i") as member:
        member.join()
        member.sync()
        left = member.leave(("", "j"), ("x", "i"), ("", "i"))
        unknown, fenced = ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id
        assert [(each.group_instance_id, each.error_code) for each in left.members] == [
            ("j", unknown),
            ("i", fenced),
            ("i", 0),
        ]
        assert member.heartbeat() == unknown
