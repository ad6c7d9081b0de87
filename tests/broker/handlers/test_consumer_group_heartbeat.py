"""ConsumerGroupHeartbeat: members of the consumer protocol over the wire, in each version."""

import pytest
from broker_harness import BROKER, Client, all_versions, unique
from group_member_harness import find_coordinator

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock
from headrace.testing.raw_client import RawClient

#: As a kind of resource that has settings.
GROUP = 32


@pytest.fixture
def group(client):
    name = unique("group")
    while find_coordinator(client, name)[name].error_code:
        pass
    return name


def beat(client, group, member_id="m", epoch=0, version=1, **fields):
    joining = {"rebalance_timeout": 60_000, "topic_partitions": ()} if epoch == 0 else {}
    fields = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **joining,
        **fields,
    }
    return client.ask(Api.CONSUMER_GROUP_HEARTBEAT, version, **fields)


def partitions(answer):
    return {topic.topic_id: sorted(topic.partitions) for topic in answer.assignment.topic_partitions}


def test_the_interval_is_the_groups_own_if_it_has_one(client, group):
    topic = client.create_topic()
    assert client.alter(GROUP, group, ("consumer.heartbeat.interval.ms", 0, "7000")).error_code == 0
    assert beat(client, group, subscribed_topic_names=[topic]).heartbeat_interval.total_seconds() == 7


@pytest.mark.parametrize("version", all_versions(Api.CONSUMER_GROUP_HEARTBEAT))
def test_every_version(client, group, version):
    topic = client.create_topic(partitions=3)
    answer = beat(client, group, version=version, subscribed_topic_names=[topic])
    assert (answer.error_code, answer.member_id) == (0, "m")
    epoch = answer.member_epoch
    assert epoch >= 1
    assert answer.heartbeat_interval.total_seconds() == 5
    assert partitions(answer) == {client.id_of(topic): [0, 1, 2]}
    again = beat(client, group, epoch=epoch, version=version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, epoch, None)
    left = beat(client, group, epoch=-1, version=version)
    assert (left.error_code, left.member_id, left.member_epoch, left.assignment) == (0, "m", -1, None)


def test_in_v0_a_member_may_be_given_its_id(client, group, topic):
    answer = beat(client, group, "", version=0, subscribed_topic_names=[topic])
    assert answer.error_code == 0
    assert len(answer.member_id) == 22
    refused = beat(client, group, "", version=1, subscribed_topic_names=[topic])
    assert refused.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": -3}, ErrorCode.invalid_request),
        ({"epoch": -2}, ErrorCode.invalid_request),
        ({"rebalance_timeout": -1}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"server_assignor": "nobody"}, ErrorCode.unsupported_assignor),
        ({"subscribed_topic_regex": "("}, ErrorCode.invalid_regular_expression),
        ({"epoch": 1}, ErrorCode.group_id_not_found),
        ({"epoch": -1}, ErrorCode.group_id_not_found),
    ],
)
def test_who_is_refused(client, group, topic, fields, error):
    answer = beat(client, group, **{"subscribed_topic_names": [topic], **fields})
    assert answer.error_code == error
    assert answer.error_message
    assert answer.assignment is None


def test_a_member_that_left_joins_again_with_a_full_heartbeat_only(client, group, topic):
    """librdkafka 2.15 sends the partial one if it is unsubscribed while it applies an assignment (its test 0045)."""
    assert beat(client, group, subscribed_topic_names=[topic]).error_code == 0
    assert beat(client, group, epoch=-1).error_code == 0
    partial = {"rebalance_timeout": -1, "topic_partitions": None, "subscribed_topic_names": [topic]}
    assert beat(client, group, **partial).error_code == ErrorCode.invalid_request
    assert beat(client, group, subscribed_topic_names=[topic]).error_code == 0


@pytest.mark.usefixtures("ours")
def test_a_refusal_as_invalid_request_is_logged_with_rule_group_and_member(client, group, topic, caplog):
    with caplog.at_level("DEBUG", "headrace.broker.handlers._group_answer"):
        assert beat(client, group, "member-7", rebalance_timeout=-1).error_code == ErrorCode.invalid_request
        assert beat(client, group, "member-8", epoch=5).error_code == ErrorCode.group_id_not_found
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    for part in ("ConsumerGroupHeartbeat v1", group, "member-7", "RebalanceTimeoutMs is missing"):
        assert part in record.getMessage()


def test_a_group_needs_a_name(client, topic):
    assert beat(client, "", subscribed_topic_names=[topic]).error_code == ErrorCode.invalid_request


def test_epochs_and_members(client, group, topic):
    epoch = beat(client, group, subscribed_topic_names=[topic]).member_epoch
    assert beat(client, group, epoch=epoch + 1).error_code == ErrorCode.fenced_member_epoch
    assert beat(client, group, "x", epoch=1).error_code == ErrorCode.unknown_member_id
    assert beat(client, group, "x", epoch=-1).error_code == ErrorCode.unknown_member_id


def test_static_members(client, group, topic):
    epoch = beat(client, group, subscribed_topic_names=[topic], instance_id="i").member_epoch
    other = {"instance_id": "i", "subscribed_topic_names": [topic]}
    assert beat(client, group, "n", **other).error_code == ErrorCode.unreleased_instance_id
    assert beat(client, group, "n", 1, instance_id="i").error_code == ErrorCode.fenced_instance_id
    away = beat(client, group, epoch=-2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    back = beat(client, group, "n", **other)
    assert (back.error_code, back.member_epoch) == (0, epoch)
    assert partitions(back) == {client.id_of(topic): [0]}


def test_two_members_share_in_the_end(client, group):
    topic = client.create_topic(partitions=2)
    subscribed = {"subscribed_topic_names": [topic]}
    first = beat(client, group, "a", **subscribed)
    assert list(partitions(first).values()) == [[0, 1]]
    second = beat(client, group, "b", **subscribed)
    assert partitions(second) == {}
    topic_id = client.id_of(topic)
    epochs, owned = {"a": first.member_epoch, "b": second.member_epoch}, {"a": [0, 1], "b": []}
    while sorted(map(len, owned.values())) != [1, 1]:
        for name in "ab":
            mine = [{"topic_id": topic_id, "partitions": owned[name]}] if owned[name] else []
            answer = beat(client, group, name, epochs[name], topic_partitions=mine)
            assert answer.error_code == 0, answer
            epochs[name] = answer.member_epoch
            if answer.assignment is not None:
                owned[name] = partitions(answer).get(topic_id, [])
            assert not set(owned["a"]) & set(owned["b"])


def test_an_expression_finds_topics(client, group):
    prefix = unique("regex")
    topic, _ = client.create_topic(f"{prefix}-a"), client.create_topic(f"other-{prefix}")
    answer = beat(client, group, subscribed_topic_regex=f"{prefix}.*")
    epoch = answer.member_epoch
    while not answer.assignment or not answer.assignment.topic_partitions:  # Apache Kafka looks at it in its own time
        answer = beat(client, group, epoch=epoch)
        epoch = answer.member_epoch
        assert answer.error_code == 0
    assert partitions(answer) == {client.id_of(topic): [0]}


def commit(client, group, topic, member_id, epoch, version=9):
    asked = [{"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}]
    answer = client.ask(
        Api.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=None,
        topics=[{"name": topic, "partitions": asked}],
    )
    return answer.topics[0].partitions[0].error_code


def fetched(client, group, topic, member_id, epoch):
    asked = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    (answer,) = client.ask(Api.OFFSET_FETCH, 9, groups=[asked], require_stable=False).groups
    return answer.error_code or answer.topics[0].partitions[0].committed_offset


def test_commits_of_members(client, group, topic):
    epoch = beat(client, group, subscribed_topic_names=[topic]).member_epoch
    assert commit(client, group, topic, "m", epoch) == 0
    assert commit(client, group, topic, "m", epoch + 1) == ErrorCode.stale_member_epoch
    assert commit(client, group, topic, "x", epoch) == ErrorCode.unknown_member_id
    assert commit(client, group, topic, "", -1) == ErrorCode.unknown_member_id
    assert commit(client, group, topic, "m", epoch, version=8) == ErrorCode.unsupported_version
    assert commit(client, group, topic, "m", epoch + 1, version=8) == ErrorCode.unsupported_version
    assert fetched(client, group, topic, "m", epoch) == 5
    assert fetched(client, group, topic, None, -1) == 5
    assert fetched(client, group, topic, "m", epoch + 1) == ErrorCode.stale_member_epoch
    assert fetched(client, group, topic, "x", epoch) == ErrorCode.unknown_member_id
    beat(client, group, epoch=-1)
    assert commit(client, group, topic, "", -1) == 0


def test_lists_and_deletions(client, group, topic):
    beat(client, group, subscribed_topic_names=[topic])
    listed = client.ask(Api.LIST_GROUPS, 5, states_filter=(), types_filter=["consumer"]).groups
    (found,) = [each for each in listed if each.group_id == group]
    assert (found.group_state, found.group_type, found.protocol_type) == ("Stable", "consumer", "consumer")
    (described,) = client.ask(Api.DESCRIBE_GROUPS, 6, groups=[group], include_authorized_operations=False).groups
    assert (described.error_code, described.group_state) == (ErrorCode.group_id_not_found, "Dead")
    (deleted,) = client.ask(Api.DELETE_GROUPS, 2, groups_names=[group]).results
    assert deleted.error_code == ErrorCode.non_empty_group
    beat(client, group, epoch=-1)
    (deleted,) = client.ask(Api.DELETE_GROUPS, 2, groups_names=[group]).results
    assert deleted.error_code == 0
    assert beat(client, group, epoch=1).error_code == ErrorCode.group_id_not_found


def test_the_protocol_may_be_switched_off(ours):
    with (
        Broker(config={"group.coordinator.rebalance.protocols": "classic"}) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert beat(client, "g", subscribed_topic_names=["t"]).error_code == ErrorCode.unsupported_version


def test_members_outlive_a_restart(ours, tmp_path):
    data = str(tmp_path / "data")
    with Broker(data=data) as broker, RawClient(broker.bootstrap_servers) as client:
        find_coordinator(client, "g")
        assert beat(client, "g", subscribed_topic_names=["t"]).member_epoch == 1
    with Broker(data=data) as broker, RawClient(broker.bootstrap_servers) as client:
        find_coordinator(client, "g")
        while (answer := beat(client, "g", epoch=1)).error_code == ErrorCode.coordinator_load_in_progress:
            pass
        assert (answer.error_code, answer.member_epoch) == (0, 1)


def test_a_new_assignment_interval_counts_for_the_next_member(ours):
    """group.consumer.assignment.interval.ms: the clock stands still, so no interval passes."""
    with Broker(clock=ManualClock()) as broker, Client(broker.bootstrap_servers) as client:
        topic, group = client.create_topic(partitions=4), unique("group")

        def epochs_after(member_id):
            """The epoch of the group, and that of its last assignment."""
            beat(client, group, member_id, subscribed_topic_names=[topic])
            asked = {"group_ids": [group], "include_authorized_operations": False}
            (found,) = client.ask(Api.CONSUMER_GROUP_DESCRIBE, 0, **asked).groups
            return found.group_epoch, found.assignment_epoch

        find_coordinator(client, group)
        assert epochs_after("first") == (1, 1)
        assert epochs_after("second") == (2, 1), "the next assignment waits for a second"
        change = ("group.consumer.assignment.interval.ms", 0, "0")
        assert client.alter(BROKER, "", change).error_code == 0
        assert epochs_after("third") == (3, 3)
