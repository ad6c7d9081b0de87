"""OffsetDelete: the offsets that may be deleted, and of which groups."""

import pytest
from broker_harness import unique
from offset_commit_harness import Group
from transaction_harness import TxnProducer

from headrace.protocol.errors import ErrorCode


@pytest.fixture
def group(client):
    return Group(client)


def test_some_partitions(client, group):
    topic = client.create_topic(partitions=3)
    group.commit(topic, {0: 1, 1: 2})
    assert group.delete(topic, 0, 2) == {0: 0, 2: 0}
    assert group.fetched(None) == {(topic, 1): (2, "", 0)}


def test_unknown_groups(client, group, topic):
    assert group.delete(topic, 0) == ErrorCode.group_id_not_found
    assert Group(client, "").delete(topic, 0) == ErrorCode.invalid_group_id


def test_unknown_topics_and_partitions(group, topic):
    group.commit(topic, 1)
    missing = ErrorCode.unknown_topic_or_partition
    assert group.delete(unique(), 0, 1) == {0: missing, 1: missing}
    assert group.delete(topic, 0, 7) == {0: 0, 7: missing}
    assert group.fetched(None) == {}


def test_topics_that_members_read(client, group, topic):
    other = client.create_topic()
    group.join(topic)
    group.commit(topic, 1)
    group.commit(other, 2)
    assert group.delete(topic, 0) == {0: ErrorCode.group_subscribed_to_topic}
    assert group.delete(other, 0) == {0: 0}
    assert group.fetched(None) == {(topic, 0): (1, "", 0)}


def test_groups_of_other_protocols_with_members(group, topic):
    group.join(topic, protocol_type="connect")
    group.commit(topic, 1)
    assert group.delete(topic, 0) == ErrorCode.non_empty_group


def test_what_is_pending_goes_too(client, group, topic):
    producer = TxnProducer(client)
    producer.start()
    assert group.commit_within(producer, topic, 5) == 0
    assert group.delete(topic, 0) == {0: 0}
    producer.end(version=5)
    producer.described()
    assert group.at(topic) == -1
