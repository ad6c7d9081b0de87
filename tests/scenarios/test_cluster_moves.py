"""Three brokers: preferred leaders are elected, partitions move under load, and wrong requests are rejected."""

import json
from importlib import import_module
from itertools import permutations

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, as_options, until

from headrace import Admin, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import Record
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient
from headrace.tools.main import COMMANDS

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    by_hand = as_options({"auto.leader.rebalance.enable": "false"})
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), *by_hand) as made:
        yield made


@pytest.fixture
def harness(cluster, request):
    made = ClusterScenarioHarness(cluster, request.node.name)
    made.wait_until_in_sync()
    return made


@pytest.fixture
def admin(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def tool(cluster, capsys):
    def run(name, *arguments):
        command = import_module(COMMANDS[name][0])
        code = command.main(["--bootstrap-server", cluster.bootstrap_servers, *map(str, arguments)])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


def partitions_of(harness):
    return harness.metadata().topics[harness.topic].partitions


def test_a_broker_that_was_away_gets_its_leaderships_back(harness, cluster, tool):
    with Load(harness) as load:
        away = harness.partition(0).leader
        cluster.stop(away)
        assert harness.partition(0).leader != away
        cluster.restart(away)
        harness.wait_until_in_sync()
        load.flows()
        said = tool("leader-election", "--election-type", "preferred", "--all-topic-partitions")
        assert f"{harness.topic}-0" in said
        until(
            lambda: all(one.leader == one.replicas[0] for one in partitions_of(harness).values()), "preferred leaders"
        )
        load.flows()
    load.check()


def test_partitions_move_while_they_are_written(harness, admin):
    def move(targets):
        targets = {TopicPartition(harness.topic, index): replicas for index, replicas in targets.items()}
        assert admin.alter_partition_reassignments(targets).errors == {}
        until(lambda: not admin.list_partition_reassignments(), "all moved")
        until(
            lambda: all(tuple(harness.partition(at.partition).replicas) == target for at, target in targets.items()),
            "everybody knows",
        )

    with Load(harness) as load:
        load.flows()
        move(dict(enumerate(permutations((1, 2, 3)))))  # another preferred leader, and what was is still there
        load.flows()
        move({0: (1, 2), 1: (2, 3), 2: (3, 1)})  # one replica less
        load.flows()
        move({0: (3, 1), 1: (1, 3, 2), 2: (2, 1)})  # to brokers that must copy all, and one replica more
        load.flows()
    load.check()
    assert all(set(one.isrs) == set(one.replicas) for one in partitions_of(harness).values())


def test_a_move_is_throttled_shown_and_cancelled(harness, admin, tool, tmp_path):
    topic = f"{harness.topic}-slow"
    admin.create_topic(topic, assignments={0: [1]})
    with RawClient(harness.cluster.addresses[1]) as client:
        batch = build_batch([Record(0, 0, None, bytes(900_000), ())])
        for _ in range(5):
            data = [{"index": 0, "records": batch}]
            answer = client.ask(
                Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000,
                topic_data=[{"name": topic, "partition_data": data}],
            )  # fmt: skip
            assert answer.responses[0].partition_responses[0].error_code == 0
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}))
    with_plan = ("--reassignment-json-file", path)
    tool("reassign-partitions", "--execute", *with_plan, "--throttle", 2_000)
    listed = tool("reassign-partitions", "--list")
    assert f"{topic}-0: replicas: 2,3,1. adding: 2,3. removing: 1." in listed
    assert "is still in progress" in tool("reassign-partitions", "--verify", *with_plan)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in tool(
        "reassign-partitions", "--cancel", *with_plan
    )
    until(lambda: list(harness.partition(0, topic).replicas) == [1], "it is where it was")
    tool("reassign-partitions", "--execute", *with_plan)
    until(lambda: sorted(harness.partition(0, topic).isrs) == [2, 3], "it has moved")
    assert "is completed" in tool("reassign-partitions", "--verify", *with_plan)


def test_what_only_the_controller_answers(harness, cluster):
    for number, address in cluster.addresses.items():
        expected = ErrorCode.none if number == harness.controller else ErrorCode.not_controller
        with RawClient(address) as client:
            elected = client.ask(Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout=5_000)
            moved = client.ask(Api.ALTER_PARTITION_REASSIGNMENTS, 1, topics=(), timeout=5_000)
            moving = client.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout=5_000)
            assert [answer.error_code for answer in (elected, moved, moving)] == [expected] * 3


def test_a_controller_of_the_past_is_refused(harness, cluster):
    head = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": -1}
    stopped = {"partition_index": 0, "leader_epoch": 99, "delete_partition": True}
    requests = [
        (Api.LEADER_AND_ISR, 7, {"topic_states": (), "live_leaders": ()}),
        (Api.UPDATE_METADATA, 8, {"topic_states": (), "live_brokers": ()}),
        (Api.STOP_REPLICA, 4, {"topic_states": [{"topic_name": harness.topic, "partition_states": [stopped]}]}),
    ]
    for address in cluster.addresses.values():
        with RawClient(address) as client:
            for api, version, more in requests:
                answer = client.ask(api, version, **head, **more)
                assert answer.error_code == ErrorCode.stale_controller_epoch
                answer = client.ask(api, version, **{**head, "controller_epoch": 2**31 - 1, "broker_epoch": 0}, **more)
                assert answer.error_code == ErrorCode.stale_broker_epoch
            answer = client.ask(Api.CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=0)
            assert answer.error_code in (ErrorCode.stale_broker_epoch, ErrorCode.not_controller)
    assert harness.alive() == [1, 2, 3]
    harness.create(f"{harness.topic}-after")
