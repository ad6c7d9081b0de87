"""Topics of a cluster: any broker writes them to the tree, and waits until the controller has created them."""

import asyncio
import json
from random import Random
from uuid import UUID

import pytest
from cluster_member_harness import ClusterMemberHarness, led, live, until, update

from headrace.controller.topic_rules import NewTopic
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    ReassignmentInProgress,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from headrace.testing import ManualClock

ID = UUID(int=7)


@pytest.fixture
async def broker(tmp_path):
    clock = ManualClock()
    broker = ClusterMemberHarness(TreeHost(clock), clock, tmp_path / "a", broker_id=1)
    await broker.registration.identify()
    broker.updates.apply(update(brokers=[live(1, rack="x"), live(2, rack="y"), live(3, rack="x")]))
    return broker


@pytest.fixture
def topics(broker):
    return broker.make_topics(Random(3))


async def content(broker, path):
    data, _ = await broker.coordination.get(path)
    return json.loads(data)


async def test_a_topic_is_written_without_saying_who_leads(topics, broker):
    topic = await topics.create(NewTopic("t", 2, 2, configs={"retention.ms": "5"}))
    written = await content(broker, "/brokers/topics/t")
    assert {int(index): tuple(replicas) for index, replicas in written["partitions"].items()} == dict(
        enumerate(topic.assignment)
    )
    assert (await content(broker, "/config/topics/t"))["config"] == {"retention.ms": "5"}
    assert await broker.coordination.children("/brokers/topics/t") == []


async def test_replicas_part_over_racks_and_begin_anywhere(topics):
    placed = [(await topics.create(NewTopic(f"t{n}", 1, 2))).assignment[0] for n in range(20)]
    assert all(2 in replicas for replicas in placed)
    assert {replicas[0] for replicas in placed} == {1, 2, 3}


async def test_configs_that_a_deleted_topic_left_are_replaced(topics, broker):
    await broker.coordination.create("/config/topics/t", b"{}")
    await topics.create(NewTopic("t", 1, 1, configs={"retention.ms": "5"}))
    assert (await content(broker, "/config/topics/t"))["config"] == {"retention.ms": "5"}


async def test_names_that_are_taken(topics, broker):
    await topics.create(NewTopic("a.b", 1, 1))
    with pytest.raises(InvalidTopic, match="collides"):
        await topics.create(NewTopic("a_b", 1, 1))
    with pytest.raises(TopicAlreadyExists):
        await topics.create(NewTopic("a.b", 1, 1))
    # Another broker has made one that we have not heard of.
    await broker.coordination.create("/brokers/topics/news", b"{}")
    with pytest.raises(TopicAlreadyExists):
        await topics.create(NewTopic("news", 1, 1))


async def test_twins_that_are_asked_for_at_once(topics):
    answers = await asyncio.gather(
        topics.create(NewTopic("a.b", 1, 1)), topics.create(NewTopic("a_b", 1, 1)), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == ["Topic", "InvalidTopic"]


async def test_what_cannot_be_placed(topics, broker):
    with pytest.raises(InvalidReplicationFactor, match="3 are alive"):
        await topics.create(NewTopic("t", 1, 4))
    with pytest.raises(InvalidReplicaAssignment, match="unknown brokers"):
        await topics.create(NewTopic("t", assignment={0: (1, 9)}))
    assert await broker.coordination.children("/brokers/topics") == []


async def test_a_topic_grows(topics, broker):
    topic = await topics.create(NewTopic("t", 1, 2))
    await topics.add_partitions("t", 3, None)
    written = await content(broker, "/brokers/topics/t")
    assert len(written["partitions"]) == 3
    assert tuple(written["partitions"]["0"]) == topic.assignment[0]
    assert all(len(replicas) == 2 for replicas in written["partitions"].values())
    with pytest.raises(InvalidPartitions):
        await topics.add_partitions("t", 2, None)
    with pytest.raises(UnknownTopicOrPartition):
        await topics.add_partitions("none", 2, None)


async def test_a_topic_that_moves_does_not_grow(topics, broker):
    await topics.create(NewTopic("t", 1, 1))
    moving = await content(broker, "/brokers/topics/t")
    moving["adding_replicas"] = {"0": [3]}
    await broker.coordination.set("/brokers/topics/t", json.dumps(moving).encode())
    with pytest.raises(ReassignmentInProgress):
        await topics.add_partitions("t", 2, None)


async def test_a_deletion_is_requested_in_the_tree(topics, broker):
    await topics.create(NewTopic("t", 1, 1))
    await topics.delete("t")
    await topics.delete("t")
    assert await broker.coordination.children("/admin/delete_topics") == ["t"]
    with pytest.raises(UnknownTopicOrPartition):
        await topics.delete("none")


async def test_a_topic_can_be_made_again_when_it_is_gone(topics, broker):
    await topics.create(NewTopic("t", 1, 1))
    first = await content(broker, "/brokers/topics/t")
    broker.updates.apply(update(led("t", 0, 1), topic_ids={"t": ID}))
    broker.updates.apply(update(led("t", 0, -2), topic_ids={"t": ID}))
    await broker.coordination.delete("/brokers/topics/t")
    await topics.create(NewTopic("t", 1, 1))
    assert (await content(broker, "/brokers/topics/t"))["topic_id"] != first["topic_id"]


async def test_waiting_until_all_have_leaders(topics, broker):
    await topics.create(NewTopic("t", 2, 1))
    waiting = asyncio.create_task(topics.wait_until_applied({"t": 2}, 1_000))
    await asyncio.sleep(0)
    broker.updates.apply(update(led("t", 0, 1), topic_ids={"t": ID}))
    await asyncio.sleep(0)
    assert not waiting.done()
    broker.updates.apply(update(led("t", 1, 2), topic_ids={"t": ID}))
    assert await waiting == set()


async def test_what_is_not_so_in_time(topics, broker):
    waiting = asyncio.create_task(topics.wait_until_applied({"t": 1}, 1_000, gone=["u"]))
    await until(lambda: topics._delayed.delayed == 1)
    broker.clock.advance(1_000)
    broker.timer.advance()
    assert await waiting == {"t"}
    assert await topics.wait_until_applied({"t": 1}, 0) == {"t"}
