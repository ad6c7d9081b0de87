"""ListGroups, in each version, and its filters."""

import pytest
from broker_harness import all_versions
from group_member_harness import members

from headrace.protocol.api import Api


def listed(client, version=5, states=(), types=()):
    answer = client.ask(Api.LIST_GROUPS, version, states_filter=states, types_filter=types)
    assert answer.error_code == 0
    return {group.group_id: group for group in answer.groups}


@pytest.mark.parametrize("version", all_versions(Api.LIST_GROUPS))
def test_every_version(client, address, version):
    with members(address) as (member,):
        group = listed(client, version)[member.group]
        assert group.protocol_type == "consumer"
        if version >= 4:
            assert group.group_state == "Stable"
        if version >= 5:
            assert group.group_type == "classic"


@pytest.mark.parametrize("states", [["Stable"], ["stable"], ["Empty", "STABLE"]])
def test_states_that_match(client, address, states):
    with members(address) as (member,):
        assert member.group in listed(client, states=states)


@pytest.mark.parametrize("states", [["Empty"], ["Dead", "PreparingRebalance"], ["No such state"]])
def test_states_that_do_not_match(client, address, states):
    with members(address) as (member,):
        assert member.group not in listed(client, states=states)


@pytest.mark.parametrize(
    ("types", "is_listed"), [(["classic"], True), (["Classic", "consumer"], True), (["consumer"], False)]
)
def test_types(client, address, types, is_listed):
    with members(address) as (member,):
        assert (member.group in listed(client, types=types)) == is_listed


def test_both_filters(client, address):
    with members(address) as (member,):
        assert member.group in listed(client, states=["Stable"], types=["classic"])
        assert member.group not in listed(client, states=["Empty"], types=["classic"])
