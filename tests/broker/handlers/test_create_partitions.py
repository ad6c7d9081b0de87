"""CreatePartitions: the number of partitions grows, and never shrinks."""

import pytest
from broker_harness import all_versions, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def grow(client, name, count, *, assignments=None, version=3, validate_only=False):
    given = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    topics = [{"name": name, "count": count, "assignments": given}]
    fields = {"topics": topics, "timeout": 10_000, "validate_only": validate_only}
    (answer,) = client.ask(Api.CREATE_PARTITIONS, version, **fields).results
    if not answer.error_code and not validate_only:
        client.settle(name, count)
    return answer


def count_of(client, name):
    return len(client.metadata([name]).topics[0].partitions)


@pytest.mark.parametrize("version", all_versions(Api.CREATE_PARTITIONS))
def test_every_version(client, topic, version):
    answer = grow(client, topic, 3, version=version)
    assert (answer.name, answer.error_code, answer.error_message) == (topic, 0, None)
    assert count_of(client, topic) == 3


def test_old_partitions_keep_their_records_and_new_ones_take_some(client, topic, ours):
    client.produce(topic)
    grow(client, topic, 2)
    assert client.offset(topic, -1).offset == 1
    assert client.produce(topic, partition=1).base_offset == 0


@pytest.mark.parametrize("count", [1, 2, 0, -1])
def test_not_fewer_and_not_as_many(client, count):
    topic = client.create_topic(partitions=2)
    assert grow(client, topic, count).error_code == ErrorCode.invalid_partitions


def test_a_topic_that_is_not_there(client):
    assert grow(client, unique(), 2).error_code == ErrorCode.unknown_topic_or_partition


def test_only_a_check(client, topic):
    assert grow(client, topic, 3, validate_only=True).error_code == 0
    assert grow(client, topic, 1, validate_only=True).error_code == ErrorCode.invalid_partitions
    assert count_of(client, topic) == 1


def test_an_assignment(client, topic):
    assert grow(client, topic, 3, assignments=[[0], [0]]).error_code == 0
    assert count_of(client, topic) == 3


@pytest.mark.parametrize("assignments", [[[0]], [[0], [0], [0]], [[0], [9]], [[0], []], [[0], [0, 0]], []])
def test_bad_assignments(client, topic, assignments):
    answer = grow(client, topic, 3, assignments=assignments)
    assert answer.error_code == ErrorCode.invalid_replica_assignment
    assert count_of(client, topic) == 1


def test_one_that_is_named_twice(client, topic):
    topics = [{"name": topic, "count": count, "assignments": None} for count in (2, 3)]
    answer = client.ask(Api.CREATE_PARTITIONS, 3, topics=topics, timeout=1000, validate_only=False)
    assert [result.error_code for result in answer.results] == [ErrorCode.invalid_request]
