"""UpdateMetadata into the metadata cache, and what clients are shown of it."""

from uuid import UUID

import pytest
from cluster_member_harness import ClusterMemberHarness, led, live, update

from headrace.broker.partition_description import describe_partition
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock

ID, OTHER_ID = UUID(int=7), UUID(int=8)


@pytest.fixture
async def broker(tmp_path):
    clock = ManualClock()
    return ClusterMemberHarness(TreeHost(clock), clock, tmp_path / "a", broker_id=1)


def shown(broker, topic, index, listener="PLAINTEXT"):
    partition = describe_partition(broker.metadata, listener, index, broker.metadata.named(topic).partitions[index])
    return partition["error_code"], partition["leader_id"], list(partition["offline_replicas"])


async def test_a_topic_is_put_together_from_what_changes(broker):
    broker.updates.apply(update(led("t", 0, 1), led("t", 1, 2), topic_ids={"t": ID}))
    version = broker.metadata.version
    broker.updates.apply(update(led("t", 1, 3, epoch=4), topic_ids={"t": ID}))
    topic = broker.metadata.identified(ID)
    assert [(one.leader_id, one.leader_epoch) for one in topic.partitions] == [(1, 0), (3, 4)]
    assert broker.metadata.version > version
    assert broker.metadata.controller_id == 1


async def test_a_partition_nobody_has_spoken_of_has_no_leader(broker):
    broker.updates.apply(update(led("t", 1, 2), topic_ids={"t": ID}))
    assert shown(broker, "t", 0)[:2] == (ErrorCode.leader_not_available, -1)
    assert shown(broker, "t", 1)[:2] == (ErrorCode.none, 2)


async def test_a_dead_leader_is_none(broker):
    broker.updates.apply(update(led("t", 0, 2), topic_ids={"t": ID}))
    encoded = broker.metadata.named("t").encoded
    encoded["a"] = b"kept"
    broker.updates.apply(update(brokers=(1, 3)))
    assert shown(broker, "t", 0) == (ErrorCode.leader_not_available, -1, [2])
    assert encoded == {}
    assert ("brokers_changed",) in broker.parts.calls


async def test_a_leader_without_our_listener(broker):
    both = [live(1, listeners=("PLAINTEXT", "OUT")), live(2)]
    broker.updates.apply(update(led("t", 0, 2), brokers=both, topic_ids={"t": ID}))
    assert shown(broker, "t", 0, "OUT")[:2] == (ErrorCode.listener_not_found, -1)
    assert [node.port for node in broker.metadata.nodes_of("OUT").values()] == [9001]
    assert sorted(broker.metadata.nodes) == [1, 2]


async def test_a_topic_that_is_being_deleted_goes(broker):
    broker.updates.apply(update(led("t", 0, 1), led("t", 1, 1), topic_ids={"t": ID}))
    broker.updates.apply(update(led("t", 0, -2), topic_ids={"t": ID}))
    assert broker.metadata.get("t") is None
    assert broker.parts.calls[-2:] == [("topic_deleted", "t"), ("metadata_updated", ["t"])]


async def test_a_topic_made_again_has_nothing_of_the_old_one(broker):
    broker.updates.apply(update(led("t", 0, 1), led("t", 1, 1), topic_ids={"t": ID}))
    broker.updates.apply(update(led("t", 0, 2), topic_ids={"t": OTHER_ID}))
    assert [one.leader_id for one in broker.metadata.named("t").partitions] == [2]
    assert broker.metadata.get_by_id(ID) is None


async def test_names_that_metrics_cannot_tell_apart(broker):
    broker.updates.apply(update(led("a.b", 0, 1), topic_ids={"a.b": ID}))
    assert broker.metadata.twin_of("a_b") == "a.b"
    broker.updates.apply(update(led("a.b", 0, -2)))
    assert broker.metadata.twin_of("a_b") is None
