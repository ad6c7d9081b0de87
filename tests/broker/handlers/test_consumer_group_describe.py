"""ConsumerGroupDescribe: groups of the consumer protocol, as an administrator sees them."""

import pytest
from broker_harness import all_versions, unique
from group_member_harness import find_coordinator, members
from test_consumer_group_heartbeat import beat

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def group(client):
    name = unique("group")
    while find_coordinator(client, name)[name].error_code:
        pass
    return name


def describe(client, *groups, version=1, operations=False):
    answer = client.ask(
        Api.CONSUMER_GROUP_DESCRIBE, version, group_ids=groups, include_authorized_operations=operations
    )
    return answer.groups


@pytest.mark.parametrize("version", all_versions(Api.CONSUMER_GROUP_DESCRIBE))
def test_every_version(client, group, version):
    topic = client.create_topic(partitions=2)
    epoch = beat(client, group, subscribed_topic_names=[topic], instance_id="i", rack_id="r").member_epoch
    (found,) = describe(client, group, version=version)
    assert (found.error_code, found.group_id, found.group_state) == (0, group, "Stable")
    assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (epoch, epoch, "uniform")
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", epoch)
    assert (member.client_id, member.subscribed_topic_names) == ("raw-client", (topic,))
    assert member.client_host == "/127.0.0.1"
    for assignment in (member.assignment, member.target_assignment):
        (part,) = assignment.topic_partitions
        assert (part.topic_id, part.topic_name) == (client.id_of(topic), topic)
        assert sorted(part.partitions) == [0, 1]
    if version >= 1:
        assert member.member_type == 1
    assert found.authorized_operations == -(2**31)


def test_operations_are_shown_on_demand(client, group, topic):
    beat(client, group, subscribed_topic_names=[topic])
    (found,) = describe(client, group, operations=True)
    assert found.authorized_operations > 0


def test_an_empty_group(client, group, topic):
    epoch = beat(client, group, subscribed_topic_names=[topic]).member_epoch
    beat(client, group, epoch=-1)
    (found,) = describe(client, group)
    assert (found.error_code, found.group_state, found.group_epoch, found.members) == (0, "Empty", epoch + 1, ())


def test_groups_that_are_not_there_and_classic_ones(client, address, group):
    (missing,) = describe(client, group)
    assert missing.error_code == ErrorCode.group_id_not_found
    with members(address, group=group):
        (classic,) = describe(client, group)
        assert classic.error_code == ErrorCode.group_id_not_found


def test_many_at_once_and_one_without_a_name(client, group, topic):
    beat(client, group, subscribed_topic_names=[topic])
    answers = {each.group_id: each.error_code for each in describe(client, group, "")}
    assert answers == {group: 0, "": ErrorCode.invalid_group_id}
