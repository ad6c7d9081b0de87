"""The page Cluster and its actions: log dirs, moves between brokers, elections, and which brokers may be stopped."""

from __future__ import annotations

import json
import re

import pytest

from headrace import Admin, Producer
from headrace.client.admin.types import (
    LogDir,
    NewTopic,
    PartitionDescription,
    Reassignment,
    ReplicaSize,
    Results,
    TopicDescription,
)
from headrace.client.types import TopicPartition
from headrace.console.cluster.reassignments import bytes_copied, plan_moves
from headrace.console.cluster.restart_readiness import readiness_of
from headrace.testing.cluster_process import LocalClusterProcess


def topic(name: str, *in_sync: tuple[int, ...]) -> TopicDescription:
    partitions = [PartitionDescription(at, isr[0], 0, (1, 2, 3), isr) for at, isr in enumerate(in_sync)]
    return TopicDescription(name, None, False, tuple(partitions))


def test_a_broker_may_be_stopped_if_enough_replicas_stay():
    found = readiness_of((1, 2, 3), [topic("a", (1, 2, 3), (1, 2)), topic("b", (3,))], {"a": 2})
    assert [(each.broker_id, each.may_stop, each.goes_offline, each.goes_below) for each in found] == [
        (1, False, 0, 1),
        (2, False, 0, 1),
        (3, False, 1, 0),
    ]
    assert found[2].partitions == (TopicPartition("b", 0),)
    assert all(each.may_stop for each in readiness_of((1, 2, 3), [topic("a", (1, 2, 3))], {"a": 2}))


def test_a_plan_moves_little_and_spreads_leaders_and_racks():
    a0, a1 = TopicPartition("a", 0), TopicPartition("a", 1)
    assert plan_moves({a0: (1, 2), a1: (1, 2)}, {1: None, 2: None}, None, {}) == {a0: (1, 2), a1: (2, 1)}
    plan = plan_moves({a0: (1, 2)}, {2: "r1", 3: "r1", 4: "r2"}, None, {3: 0, 4: 9})
    assert plan == {a0: (2, 4)}
    assert plan_moves({a0: (1, 2, 3)}, {3: None, 1: None}, 1, {}) == {a0: (1,)}
    with pytest.raises(ValueError, match="there are 1 brokers"):
        plan_moves({a0: (1, 2)}, {1: None}, None, {})


def test_progress_is_what_the_new_replicas_have():
    at = TopicPartition("a", 0)
    sizes = {1: 1_000, 2: 250}
    log_dirs = Results(
        {each: {"/d": LogDir("/d", None, {at: ReplicaSize(size, 0, False)})} for each, size in sizes.items()}
    )
    assert bytes_copied(at, Reassignment((1, 2), (2,), (1,)), log_dirs) == (250, 1_000)
    assert bytes_copied(at, Reassignment((3, 2), (2,), (3,)), log_dirs) is None


async def test_one_broker_shows_its_log_dirs_and_may_not_be_stopped(console, broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("only-copy")
        where = admin.describe_log_dirs().ok[0]
    found = await console.json("/api/cluster")
    assert {row["path"] for row in found["log_dirs"]} == set(where)
    assert found["log_dirs"][0]["error"] == ""
    (row,) = found["readiness"]
    assert (row["may_stop"], row["goes_offline"] > 0) == (False, True)
    assert "No partition moves." in await console.page("/cluster")
    wrong = await console.submit("reassign-partitions", topics="only-copy", brokers="0,7")
    assert "there is no broker 7" in wrong.text
    same = await console.call("reassign-partitions", topics="only-copy", brokers="0")
    assert (same.status_code, "are on these brokers already" in same.text) == (422, True)
    idle = await console.submit("cancel-reassignment", topic="only-copy", partition="0")
    assert "is not being moved" in idle.text


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory):
    with LocalClusterProcess(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster.address


@pytest.fixture
async def wide(open_console, three_brokers):
    return await open_console(clients={"bootstrap.servers": three_brokers})


async def test_partitions_move_with_a_throttle_and_leaders_come_back(wide, three_brokers):
    with Admin(bootstrap_servers=three_brokers) as admin:
        first, second, third = (node.id for node in admin.describe_cluster().brokers)
        admin.create_topics([NewTopic("moved", assignments={0: [first, second], 1: [first, second]})])
        with Producer(bootstrap_servers=three_brokers, acks="all") as producer:
            for _ in range(200):
                producer.send("moved", value=b"x" * 50_000, partition=0)
        found = await wide.json("/api/cluster")
        assert len(found["readiness"]) == 3
        fields = {"topics": "moved", "brokers": f"{second},{third}", "throttle": "20000"}
        asked = await wide.submit("reassign-partitions", **fields)
        plan = json.loads(re.search(r"&lt;&lt;'EOF'\n(.*)\nEOF", asked.text)[1].replace("&#34;", '"'))
        assert [sorted(each["replicas"]) for each in plan["partitions"]] == [[second, third]] * 2
        assert "--throttle 20000" in asked.text
        assert admin.list_partition_reassignments() == {}
        assert (await wide.submit("reassign-partitions", step="run", **fields)).is_redirect
        assert admin.describe_config("broker", str(second))["follower.replication.throttled.rate"].value == "20000"

        moving = {row["partition"]: row for row in (await wide.json("/api/cluster"))["moves"]}
        assert moving[0]["adding"] == [third]
        assert moving[0]["whole_bytes"] > moving[0]["copied_bytes"]
        busy = await wide.call("reassign-partitions", topics="moved", brokers=str(first))
        assert "are being moved" in busy.text
        assert (
            f"stays on {first}, {second}"
            in (await wide.submit("cancel-reassignment", topic="moved", partition="0")).text
        )
        assert (await wide.call("cancel-reassignment", topic="moved", partition=0)).status_code == 200
        assert TopicPartition("moved", 0) not in admin.list_partition_reassignments()
        assert sorted(admin.describe_topic("moved").partitions[0].replicas) == [first, second]
        assert (await wide.call("remove-throttles", topics="moved")).status_code == 200
        assert admin.describe_config("topic", "moved")["follower.replication.throttled.replicas"].value == ""

        assert (await wide.submit("elect-preferred-leaders")).status_code == 200
        assert (await wide.call("elect-preferred-leaders")).status_code == 200
        half = await wide.call("elect-preferred-leaders", topic="moved")
        assert "a topic and a partition, or neither" in half.text
