"""SyncGroup: the leader's assignment reaches all, in each version."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import Member, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", all_versions(Api.SYNC_GROUP))
def test_every_version(address, version):
    with Member(address, unique("group")) as member:
        member.join()
        synced = member.sync(version)
        assert (synced.error_code, synced.assignment) == (0, b"part of " + member.member_id.encode())
        if version >= 5:
            assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


def test_followers_wait_for_the_leader(address):
    with members(address, 3) as (leader, *followers):
        leader.send_join()
        while not followers[-1].heartbeat():
            pass
        for each in followers:
            each.send_join()
        for each in (leader, *followers):
            each.receive_join()
        for each in followers:
            each.send_sync()
        assert leader.sync().error_code == 0
        for each in followers:
            synced = each.receive()
            assert (synced.error_code, synced.assignment) == (0, b"part of " + each.member_id.encode())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"member_id": "x"}, ErrorCode.unknown_member_id),
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": None}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_name": None}, ErrorCode.inconsistent_group_protocol),
        ({"group_instance_id": "i"}, ErrorCode.unknown_member_id),
    ],
    ids=str,
)
def test_refusals(address, fields, error):
    with members(address) as (member,):
        synced = member.sync(**fields)
        assert (synced.error_code, synced.assignment) == (error, b"")
        assert (synced.protocol_type, synced.protocol_name) == (None, None)


def test_a_group_that_is_not_there(address):
    with Member(address, unique("group")) as member:
        assert member.sync(assignments=[]).error_code == ErrorCode.unknown_member_id


def test_no_sync_while_a_rebalance_is_prepared(address):
    with members(address, 2) as (leader, follower):
        leader.send_join()
        while not follower.heartbeat():
            pass
        assert follower.sync(assignments=[]).error_code == ErrorCode.rebalance_in_progress
