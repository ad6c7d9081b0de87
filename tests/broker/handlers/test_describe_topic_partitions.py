"""DescribeTopicPartitions: topics by name, a page at a time."""

import pytest
from broker_harness import unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def describe(client, *names, limit=2000, cursor=None):
    cursor = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor}
    return client.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, **fields)


def cursor_of(answer):
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def pages(answer):
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]


@pytest.fixture
def two(client):
    prefix = unique()
    return [client.create_topic(f"{prefix}-{letter}", partitions=3) for letter in "ab"]


def test_a_topic(client, two):
    answer = describe(client, two[0])
    assert cursor_of(answer) is None
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, two[0], False)
    assert topic.topic_id == client.id_of(two[0])
    assert topic.topic_authorized_operations == 0b1101_1111_1000
    for part in topic.partitions:
        assert (part.error_code, part.leader_id, part.leader_epoch) == (0, 0, 0)
        assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ((0,), (0,), ())
        assert not part.eligible_leader_replicas
        assert not part.last_known_elr


def test_topics_come_by_name(client, two):
    assert pages(describe(client, two[1], two[0])) == [(two[0], [0, 1, 2]), (two[1], [0, 1, 2])]


def test_all_topics(client, two):
    names = [topic.name for topic in describe(client).topics]
    assert set(two) <= set(names)
    assert names == sorted(names)


def test_pages(client, two):
    first = describe(client, *two, limit=2)
    assert (pages(first), cursor_of(first)) == ([(two[0], [0, 1])], (two[0], 2))
    second = describe(client, *two, limit=2, cursor=cursor_of(first))
    assert (pages(second), cursor_of(second)) == ([(two[0], [2]), (two[1], [0])], (two[1], 1))
    third = describe(client, *two, limit=2, cursor=cursor_of(second))
    assert (pages(third), cursor_of(third)) == ([(two[1], [1, 2])], None)


def test_a_page_that_ends_with_a_topic(client, two):
    first = describe(client, *two, limit=3)
    assert (pages(first), cursor_of(first)) == ([(two[0], [0, 1, 2])], (two[1], 0))
    second = describe(client, *two, limit=3, cursor=cursor_of(first))
    assert (pages(second), cursor_of(second)) == ([(two[1], [0, 1, 2])], None)


def test_a_topic_that_is_not_there(client):
    (topic,) = describe(client, unique()).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.unknown_topic_or_partition, ())


def test_a_bad_name(client):
    (topic,) = describe(client, "a b").topics
    assert topic.error_code == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(client, two, limit):
    answer = describe(client, *two, limit=limit)
    assert (pages(answer), cursor_of(answer)) == ([(two[0], [0])], (two[0], 1))


def test_a_cursor_behind_the_topics(client, two, ours):
    assert pages(describe(client, two[0], cursor=(two[1], 0))) == []
