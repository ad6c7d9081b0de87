"""OffsetFetch: of groups, of topics by name and id, stable or not."""

from uuid import uuid4

import pytest
from broker_harness import all_versions, unique
from offset_commit_harness import Group
from transaction_harness import TxnProducer

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

MANY_GROUPS, TOPIC_IDS = 8, 10
VERSIONS = all_versions(Api.OFFSET_FETCH)


@pytest.fixture
def group(client):
    return Group(client)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(client, group, version):
    topic = client.create_topic(partitions=3)
    group.commit(topic, {1: 7}, metadata="m", epoch=2)
    name = client.id_of(topic) if version >= TOPIC_IDS else topic
    assert group.fetched({name: [0, 1]}, version) == {(name, 0): (-1, "", 0), (name, 1): (7, "m", 0)}
    if version >= 5:
        ((never, committed),) = (found.partitions for found in group.ask({name: [0, 1]}, version).topics)
        assert (never.committed_leader_epoch, committed.committed_leader_epoch) == (-1, 2)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 2])
def test_all_that_a_group_has(client, group, version):
    first, second = client.create_topic(partitions=2), client.create_topic()
    group.commit(first, {0: 1, 1: 2})
    group.commit(second, {0: 3})
    names = {each: client.id_of(each) if version >= TOPIC_IDS else each for each in (first, second)}
    assert group.fetched(None, version) == {
        (names[first], 0): (1, "", 0),
        (names[first], 1): (2, "", 0),
        (names[second], 0): (3, "", 0),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_is_not_there_has_nothing(client, group, topic, version):
    name = client.id_of(topic) if version >= TOPIC_IDS else topic
    assert group.fetched({name: [0, 5]}, version) == {(name, 0): (-1, "", 0), (name, 5): (-1, "", 0)}
    if version >= 2:
        assert group.ask(None, version).topics == ()


def test_topics_that_are_not_there(group, topic):
    group.commit(topic, 1)
    missing, missing_id = unique(), uuid4()
    assert group.fetched({missing: [0]}) == {(missing, 0): (-1, "", 0)}
    assert group.fetched({missing_id: [0]}, TOPIC_IDS) == {(missing_id, 0): (-1, "", ErrorCode.unknown_topic_id)}


def test_many_groups_at_once(client, topic):
    groups = [Group(client) for _ in range(3)]
    for number, group in enumerate(groups[:2]):
        group.commit(topic, number)
    named = [{"name": topic, "partition_indexes": [0]}]
    asked = [
        {"group_id": groups[0].name, "topics": named},
        {"group_id": groups[1].name, "topics": None},
        {"group_id": groups[2].name, "topics": named},
    ]
    answer = client.ask(Api.OFFSET_FETCH, MANY_GROUPS, groups=asked, require_stable=False)
    assert [each.group_id for each in answer.groups] == [group.name for group in groups]
    offsets = [each.topics[0].partitions[0].committed_offset for each in answer.groups]
    assert offsets == [0, 1, -1]


def test_a_group_without_a_name(client, topic):
    assert Group(client, "").ask({topic: [9]}).error_code == 0


# -- open transactions


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_stable_offsets_wait_for_open_transactions(client, group, version):
    topic = client.create_topic(partitions=2)
    name = client.id_of(topic) if version >= TOPIC_IDS else topic
    group.commit(topic, {0: 1, 1: 1})
    producer = TxnProducer(client)
    producer.start()
    assert group.commit_within(producer, topic, 5) == 0
    unstable = (-1, "", ErrorCode.unstable_offset_commit)
    expected = {(name, 0): unstable, (name, 1): (1, "", 0)}
    assert group.fetched({name: [0, 1]}, version, require_stable=True) == expected
    assert group.fetched(None, version, require_stable=True) == expected
    assert group.at(name, version=version) == 1
    producer.end(version=5)
    producer.described()
    assert group.at(name, version=version, require_stable=True) == 5


# -- errors of the group


@pytest.mark.parametrize("version", VERSIONS)
def test_where_a_groups_error_stands(ours, version):
    with Broker() as broker, RawClient(broker.bootstrap_servers) as raw:
        topics = [{"name": "t", "topic_id": uuid4(), "partition_indexes": [0, 1]}]
        group = {"group_id": "g", "topics": topics}
        answer = raw.ask(Api.OFFSET_FETCH, version, groups=[group], require_stable=False, **group)
        code = ErrorCode.not_coordinator
        if version == 1:
            partitions = [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]
            assert partitions == [(0, code), (1, code)]
        elif version < MANY_GROUPS:
            assert (answer.error_code, answer.topics) == (code, ())
        else:
            (found,) = answer.groups
            assert (found.group_id, found.error_code, found.topics) == ("g", code, ())


def test_members_of_classic_groups_are_not_asked_who_they_are(group, topic):
    group.commit(topic, 3)
    assert group.fetched({topic: [0]}, 9, member_id="anybody", member_epoch=7)[topic, 0] == (3, "", 0)
