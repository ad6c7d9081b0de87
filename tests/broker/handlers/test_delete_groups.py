"""DeleteGroups, in each version."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import find_coordinator, members

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def deleted(client, *groups, version=2):
    answer = client.ask(Api.DELETE_GROUPS, version, groups_names=groups)
    return {result.group_id: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", all_versions(Api.DELETE_GROUPS))
def test_every_version(client, address, version):
    with members(address) as (member,):
        group = member.group
        assert deleted(client, group, version=version) == {group: ErrorCode.non_empty_group}
        member.leave()
        assert deleted(client, group, version=version) == {group: 0}
        assert deleted(client, group, version=version) == {group: ErrorCode.group_id_not_found}


def test_many_groups_each_with_its_outcome(client, address):
    missing = unique("group")
    find_coordinator(client, missing)
    with members(address) as (here,), members(address) as (empty,):
        empty.leave()
        assert deleted(client, here.group, missing, empty.group) == {
            here.group: ErrorCode.non_empty_group,
            missing: ErrorCode.group_id_not_found,
            empty.group: 0,
        }


def test_a_deleted_group_can_be_made_anew(client, address):
    with members(address) as (member,):
        group = member.group
        member.leave()
        assert deleted(client, group) == {group: 0}
    with members(address, group=group) as (member,):
        assert member.joined.generation_id == 1
