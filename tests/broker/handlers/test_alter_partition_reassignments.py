"""AlterPartitionReassignments and ListPartitionReassignments of a broker alone: it has only itself to move to."""

import pytest
from broker_harness import all_versions, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def reassign(client, targets, version=1, **fields):
    topics = [
        {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for (topic, index), replicas in targets.items()
    ]
    answer = client.ask(Api.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, timeout=10_000, **fields)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        (topic.name, found.partition_index): found.error_code
        for topic in answer.responses
        for found in topic.partitions
    }


def listed(client, wanted=None):
    topics = wanted
    if wanted is not None:
        topics = [{"name": topic, "partition_indexes": indexes} for topic, indexes in wanted.items()]
    answer = client.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=10_000)
    assert (answer.error_code, answer.error_message) == (0, None)
    return answer.topics


@pytest.fixture
def broker_id(client):
    (node,) = client.ask(Api.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False).brokers
    return node.broker_id


@pytest.mark.parametrize("version", all_versions(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_a_partition_may_move_to_where_it_is(client, topic, broker_id, version):
    assert reassign(client, {(topic, 0): [broker_id]}, version) == {(topic, 0): 0}
    assert listed(client, {topic: [0]}) == ()


@pytest.mark.parametrize("replicas", [[], [999], [-1], "twice"])
def test_targets_that_cannot_be(client, topic, broker_id, replicas):
    target = [broker_id, broker_id] if replicas == "twice" else replicas
    assert reassign(client, {(topic, 0): target}) == {(topic, 0): ErrorCode.invalid_replica_assignment}


def test_there_is_nothing_to_cancel(client, topic):
    assert reassign(client, {(topic, 0): None}) == {(topic, 0): ErrorCode.no_reassignment_in_progress}


def test_partitions_that_are_not_there(client, topic, broker_id):
    nowhere = unique()
    answer = reassign(client, {(nowhere, 0): [broker_id], (topic, 99): [broker_id], (topic, 0): [broker_id]})
    unknown = ErrorCode.unknown_topic_or_partition
    assert answer == {(nowhere, 0): unknown, (topic, 99): unknown, (topic, 0): 0}


def test_nothing_moves(client, topic):
    assert listed(client) == ()
    assert listed(client, {topic: [0], unique(): [3]}) == ()
