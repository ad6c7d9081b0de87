"""DescribeGroups, in each version."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import SUBSCRIPTION, Member, find_coordinator, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def described(client, *groups, version=6, operations=False):
    return client.ask(Api.DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=operations).groups


@pytest.mark.parametrize("version", all_versions(Api.DESCRIBE_GROUPS))
def test_every_version(client, address, version):
    with members(address) as (member,):
        (group,) = described(client, member.group, version=version)
        assert (group.error_code, group.group_id, group.group_state) == (0, member.group, "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (only,) = group.members
        assert (only.member_id, only.client_id, only.client_host) == (member.member_id, "tester", "/127.0.0.1")
        assert only.member_metadata == SUBSCRIPTION
        assert only.member_assignment == b"part of " + member.member_id.encode()


@pytest.mark.parametrize("version", all_versions(Api.DESCRIBE_GROUPS))
def test_a_group_that_is_not_there(client, version):
    name = unique("group")
    find_coordinator(client, name)
    (group,) = described(client, name, version=version)
    assert (group.group_id, group.group_state, group.members) == (name, "Dead", ())
    assert group.error_code == (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
    if version >= 6:
        assert group.error_message


@pytest.mark.parametrize("version", [4, 6])
def test_instances(client, address, version):
    with Member(address, unique("group"), instance_id="i") as member:
        member.join()
        member.sync()
        (group,) = described(client, member.group, version=version)
        assert group.members[0].group_instance_id == "i"


def test_between_two_generations_members_are_shown_without_their_parts(client, address):
    with Member(address, unique("group")) as member:
        member.join()
        (group,) = described(client, member.group)
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
        assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"", b"")
        member.sync()
        member.leave()
        (group,) = described(client, member.group)
        assert (group.group_state, group.members) == ("Empty", ())


@pytest.mark.parametrize("version", range(3, 7))
def test_what_one_may_do_with_a_group(client, address, version):
    with members(address) as (member,):
        (group,) = described(client, member.group, version=version, operations=True)
        assert group.authorized_operations == (1 << 3) + (1 << 6) + (1 << 8) + (1 << 10) + (1 << 11)
        (group,) = described(client, member.group, version=version)
        assert group.authorized_operations == -(2**31)


def test_many_groups(client, address):
    with members(address) as (one,), members(address) as (other,):
        names = [one.group, unique("group"), other.group]
        assert {group.group_id for group in described(client, *names)} == set(names)
