"""Heartbeat, in each version."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import Member, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", all_versions(Api.HEARTBEAT))
def test_every_version(address, version):
    with members(address) as (member,):
        assert member.heartbeat(version) == 0
        assert member.heartbeat(version, generation_id=0) == ErrorCode.illegal_generation
        assert member.heartbeat(version, member_id="x") == ErrorCode.unknown_member_id
        assert member.heartbeat(version, group_id="") == ErrorCode.invalid_group_id


def test_a_group_that_is_not_there(address):
    with Member(address, unique("group")) as member:
        assert member.heartbeat() == ErrorCode.unknown_member_id


def test_an_instance_that_is_not_there(address):
    with members(address) as (member,):
        assert member.heartbeat(group_instance_id="i") == ErrorCode.unknown_member_id


def test_a_rebalance_is_announced(address):
    with members(address, 2) as (leader, follower):
        leader.send_join()
        while not (code := follower.heartbeat()):
            pass
        assert code == ErrorCode.rebalance_in_progress
