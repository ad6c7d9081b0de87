"""Topics over a znode tree in memory: the rules, the znodes, and who is told."""

import pytest

from headrace.broker.lone.topics import LoneTopics
from headrace.controller.topic_rules import NewTopic
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.paths import PERSISTENT_PATHS
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from headrace.testing import ManualClock


class Listener:
    def __init__(self):
        self.heard = []

    async def topic_changed(self, topic):
        self.heard.append(("changed", topic.name, len(topic.assignment), dict(topic.configs)))

    async def topic_deleted(self, topic):
        self.heard.append(("deleted", topic.name))


def check_configs(configs):
    if "bad" in configs:
        raise InvalidConfig("bad")


@pytest.fixture
async def tree():
    coordination = LocalCoordination(TreeHost(ManualClock()))
    for path in PERSISTENT_PATHS:
        if await coordination.exists(path) is None:
            await coordination.create(path, make_parents=True)
    return coordination


@pytest.fixture
def listener():
    return Listener()


def topics_on(tree, listener):
    return LoneTopics(
        tree, listener, live_brokers=lambda: [0, 1, 2], defaults=lambda: (2, 1), check_configs=check_configs
    )


@pytest.fixture
def topics(tree, listener):
    return topics_on(tree, listener)


async def test_a_topic_is_written_and_told(topics, tree, listener):
    topic = await topics.create(NewTopic("t", 3, 2, configs={"retention.ms": "5"}))
    assert topic.assignment == ((0, 1), (1, 2), (2, 0))
    assert [state.leader for state in topic.states] == [0, 1, 2]
    assert topics.named("t") == topic
    assert listener.heard == [("changed", "t", 3, {"retention.ms": "5"})]
    assert sorted(await tree.children("/brokers/topics/t/partitions")) == ["0", "1", "2"]


async def test_what_the_client_leaves_to_the_broker(topics):
    topic = await topics.create(NewTopic("t"))
    assert [len(replicas) for replicas in topic.assignment] == [1, 1]


async def test_a_check_writes_and_tells_nothing(topics, tree, listener):
    await topics.create(NewTopic("t"), validate_only=True)
    assert await tree.children("/brokers/topics") == []
    assert listener.heard == []


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("a b"), InvalidTopic),
        (NewTopic("t", 0), InvalidPartitions),
        (NewTopic("t", 1, 4), InvalidReplicationFactor),
        (NewTopic("t", assignment={0: (9,)}), InvalidReplicaAssignment),
        (NewTopic("t", configs={"bad": "1"}), InvalidConfig),
    ],
)
async def test_bad_topics_leave_nothing(topics, tree, listener, new, error):
    with pytest.raises(error):
        await topics.create(new)
    assert await tree.children("/brokers/topics") == []
    assert listener.heard == []


async def test_names_that_exist_or_collide(topics):
    await topics.create(NewTopic("a.b"))
    with pytest.raises(TopicAlreadyExists):
        await topics.create(NewTopic("a.b"))
    with pytest.raises(InvalidTopic, match="collides"):
        await topics.create(NewTopic("a_b"))
    await topics.delete("a.b")
    await topics.create(NewTopic("a_b"))


async def test_growing(topics, tree, listener):
    before = await topics.create(NewTopic("t", 1, 2))
    after = await topics.add_partitions("t", 3, None)
    assert after.assignment[0] == before.assignment[0]
    assert [len(replicas) for replicas in after.assignment] == [2, 2, 2]
    assert after.topic_id == before.topic_id
    assert sorted(await tree.children("/brokers/topics/t/partitions")) == ["0", "1", "2"]
    assert listener.heard[-1] == ("changed", "t", 3, {})


async def test_growing_by_an_assignment(topics):
    await topics.create(NewTopic("t", 1, 1))
    after = await topics.add_partitions("t", 2, [(2,)])
    assert after.assignment[1] == (2,)
    with pytest.raises(InvalidReplicaAssignment):
        await topics.add_partitions("t", 4, [(2,)])
    with pytest.raises(InvalidReplicaAssignment):
        await topics.add_partitions("t", 3, [(0, 1)])


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_topic_never_shrinks(topics, count):
    await topics.create(NewTopic("t", 2))
    with pytest.raises(InvalidPartitions):
        await topics.add_partitions("t", count, None)


async def test_settings(topics, listener):
    await topics.create(NewTopic("t"))
    await topics.set_configs("t", {"segment.ms": "1"})
    assert topics.named("t").configs == {"segment.ms": "1"}
    assert listener.heard[-1] == ("changed", "t", 2, {"segment.ms": "1"})


async def test_deleting_leaves_no_znode(topics, tree, listener):
    await topics.create(NewTopic("t", 2))
    await topics.delete("t")
    assert await tree.children("/brokers/topics") == []
    assert await tree.children("/config/topics") == []
    assert listener.heard[-1] == ("deleted", "t")
    with pytest.raises(UnknownTopicOrPartition):
        topics.named("t")


async def test_what_is_not_there(topics):
    for attempt in (topics.delete("t"), topics.add_partitions("t", 2, None), topics.set_configs("t", {})):
        with pytest.raises(UnknownTopicOrPartition):
            await attempt


async def test_all_of_it_is_read_again(topics, tree, listener):
    made = [
        await topics.create(NewTopic("t", 3, 2, configs={"retention.ms": "5"})),
        await topics.create(NewTopic("u", 1)),
    ]
    again = topics_on(tree, listener)
    assert sorted(await again.load(), key=lambda topic: topic.name) == made
    with pytest.raises(TopicAlreadyExists):
        await again.create(NewTopic("t"))


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 249])
def test_good_names(name):
    LoneTopics.check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n"])
def test_bad_names(name):
    with pytest.raises(InvalidTopic):
        LoneTopics.check_name(name)
