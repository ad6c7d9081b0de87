"""OffsetCommit: who may commit, and what is refused."""

import pytest
from broker_harness import all_versions, unique
from offset_commit_harness import Group

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient

VERSIONS = all_versions(Api.OFFSET_COMMIT)
TOPIC_IDS = 10


@pytest.fixture
def group(client):
    return Group(client)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(client, group, version):
    topic = client.create_topic(partitions=3)
    codes = group.commit(topic, {0: 5, 2: 7}, version, epoch=4, metadata="m", topic_id=client.id_of(topic))
    assert codes == {0: 0, 2: 0}
    assert group.fetched({topic: [0, 1, 2]}) == {
        (topic, 0): (5, "m", 0),
        (topic, 1): (-1, "", 0),
        (topic, 2): (7, "m", 0),
    }
    ((partition,),) = (found.partitions for found in group.ask({topic: [0]}).topics)
    assert partition.committed_leader_epoch == (4 if version >= 6 else -1)


def test_no_metadata_is_none(group, topic):
    assert group.commit(topic, 5, metadata=None) == 0
    assert group.fetched({topic: [0]})[topic, 0] == (5, "", 0)


@pytest.mark.parametrize("version", [2, 9])
def test_unknown_topics_and_partitions(group, topic, version):
    assert group.commit(unique(), 5, version) == ErrorCode.unknown_topic_or_partition
    codes = group.commit(topic, {0: 5, 1: 6, -1: 7}, version)
    assert codes == {0: 0, 1: ErrorCode.unknown_topic_or_partition, -1: ErrorCode.unknown_topic_or_partition}
    assert group.at(topic) == 5


def test_unknown_topic_ids(client, group, topic):
    topic_id = client.id_of(topic)
    assert group.commit(None, {0: 5, 3: 5}, TOPIC_IDS, topic_id=topic_id) == {
        0: 0,
        3: ErrorCode.unknown_topic_or_partition,
    }
    other = type(topic_id)(int=topic_id.int ^ 1)
    assert group.commit(None, 5, TOPIC_IDS, topic_id=other) == ErrorCode.unknown_topic_id
    assert group.commit(None, 5, TOPIC_IDS, topic_id=None) == ErrorCode.unknown_topic_id


def test_answers_name_topics_as_they_were_asked_for(client, group, topic):
    asked = {"group_id": group.name, **group.identity()}
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    topic_id = client.id_of(topic)
    topics = [{"name": topic, "topic_id": topic_id, "partitions": partitions}]
    assert client.ask(Api.OFFSET_COMMIT, 9, topics=topics, **asked).topics[0].name == topic
    assert client.ask(Api.OFFSET_COMMIT, TOPIC_IDS, topics=topics, **asked).topics[0].topic_id == topic_id


def test_metadata_has_a_limit_of_characters(group, topic):
    assert group.commit(topic, 5, metadata="ä" * 4096) == 0
    assert group.commit(topic, 6, metadata="x" * 4097) == ErrorCode.offset_metadata_too_large
    assert group.commit(topic, 6, metadata="𝄞" * 2049) == ErrorCode.offset_metadata_too_large
    assert group.at(topic) == 5


def test_who_may_not_commit_is_not_told_of_metadata(group, topic):
    stranger = {"member_id": "m", "generation_id": 3}
    assert group.commit(topic, {0: 5, 9: 5}, metadata="x" * 4097, **stranger) == {
        0: ErrorCode.group_id_not_found,
        9: ErrorCode.unknown_topic_or_partition,
    }


def test_one_partition_with_too_much_metadata_does_not_refuse_the_others(client, group):
    topic = client.create_topic(partitions=2)
    asked = {"group_id": group.name, **group.identity()}
    partitions = [
        {"partition_index": index, "committed_offset": 9, "committed_metadata": "x" * size}
        for index, size in enumerate([5000, 5])
    ]
    answer = client.ask(Api.OFFSET_COMMIT, 9, topics=[{"name": topic, "partitions": partitions}], **asked)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.offset_metadata_too_large, 0]
    assert group.at(topic, 1) == 9


def test_a_partition_that_is_named_twice(client, group, topic):
    asked = {"group_id": group.name, **group.identity()}
    partitions = [
        {"partition_index": 0, "committed_offset": offset, "committed_metadata": "x" * size}
        for offset, size in [(1, 5), (2, 5), (3, 5000)]
    ]
    answer = client.ask(Api.OFFSET_COMMIT, 9, topics=[{"name": topic, "partitions": partitions}], **asked)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [0, 0, ErrorCode.offset_metadata_too_large]
    assert group.at(topic) == 2


def test_a_group_may_have_an_empty_name(client, topic):
    group = Group(client, "")
    assert group.commit(topic, 5) == 0
    assert group.at(topic) == 5


def test_any_offset_is_accepted(group, topic):
    for offset in (2**63 - 1, 0, -1):
        assert group.commit(topic, offset) == 0
    assert group.fetched({topic: [0]})[topic, 0] == (-1, "", 0)


def test_no_topics(client, group):
    asked = {"group_id": group.name, **group.identity(generation_id=7)}
    assert client.ask(Api.OFFSET_COMMIT, 9, topics=[], **asked).topics == ()


# -- members


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)])
def test_a_generation_of_a_group_that_is_not_there(group, topic, version, code):
    assert group.commit(topic, 5, version, generation_id=1, member_id="m") == code


def test_a_member_commits(group, topic):
    group.join(topic)
    assert group.commit(topic, 5) == 0
    assert group.at(topic) == 5


def test_who_is_not_a_member_may_not_commit_while_there_are_some(group, topic):
    group.join(topic)
    nobody = {"member_id": "", "generation_id": -1}
    assert group.commit(topic, 5, **nobody) == ErrorCode.unknown_member_id
    assert group.commit(topic, 5, member_id="stranger") == ErrorCode.unknown_member_id
    assert group.commit(topic, 5, generation_id=99) == ErrorCode.illegal_generation
    assert group.at(topic) == -1


def test_before_partitions_are_assigned(group, topic):
    group.join(topic, sync=False)
    assert group.commit(topic, 5) == ErrorCode.rebalance_in_progress


def test_static_members_are_fenced(group, topic):
    group.join(topic, instance_id="i")
    assert group.commit(topic, 5) == 0
    assert group.commit(topic, 6, member_id="former") == ErrorCode.fenced_instance_id
    assert group.commit(topic, 6, group_instance_id="other") == ErrorCode.unknown_member_id


def test_an_empty_group_is_anybodys_again(client, group, topic):
    group.join(topic)
    member = {"member_id": group.member["member_id"]}
    assert client.ask(Api.LEAVE_GROUP, 1, group_id=group.name, **member).error_code == 0
    generation_id = group.member["generation_id"]
    group.member = {}
    assert group.commit(topic, 5) == 0
    assert group.commit(topic, 6, generation_id=generation_id, **member) == ErrorCode.unknown_member_id


# -- coordinators


def test_before_anybody_looked_for_a_coordinator(ours):
    with Broker() as broker, RawClient(broker.bootstrap_servers) as raw:
        asked = {"timeout": 1000, "validate_only": False}
        new = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        assert raw.ask(Api.CREATE_TOPICS, 7, topics=[new], **asked).topics[0].error_code == 0
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        answer = raw.ask(Api.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "t", "partitions": partitions}], **member)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.not_coordinator
