"""headrace reassign-partitions: against a broker for what it answers, and against a pretended cluster of three.

The same was run by hand against three brokers of Apache Kafka 4.3.
"""

import json
from contextlib import contextmanager

import pytest

from headrace.client.admin.types import (
    ClusterDescription,
    LogDir,
    PartitionDescription,
    Reassignment,
    ReplicaSize,
    Results,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
)
from headrace.client.errors import ErrorCode, UnknownTopic, error_for
from headrace.client.types import Node, TopicPartition
from headrace.tools.reassign_partitions import command as reassign_partitions

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class PretendedCluster:
    """Three brokers and a topic; partitions move when ``finish`` says so."""

    def __init__(self):
        self.replicas = {A0: (1, 2), A1: (2, 3)}
        self.targets = {}
        self.paths = {}
        self.configs = {}
        self.late_brokers = []

    def finish(self):
        self.replicas.update(self.targets)
        self.targets.clear()

    def describe_cluster(self):
        return ClusterDescription("c", None, tuple(Node(number, "h", number, f"r{number}") for number in (1, 2, 3)))

    def describe_topics(self, names):
        partitions = tuple(
            PartitionDescription(at.partition, now[0], 0, now, now) for at, now in sorted(self.replicas.items())
        )
        topic = TopicDescription("a", None, False, partitions)
        return Results((name, topic if name == "a" else UnknownTopic(message=f"no {name}")) for name in names)

    def list_topics(self, *, include_internal):
        return {"a": TopicListing("a", None, False)}

    def describe_log_dirs(self):
        found = {
            number: {f"/d{number}": LogDir(f"/d{number}", None, {}), "/e": LogDir("/e", None, {})}
            for number in (1, 2, 3)
        }
        for at, now in self.replicas.items():
            for broker_id in now:
                path = self.paths.get(TopicPartitionReplica(*at, broker_id), f"/d{broker_id}")
                found[broker_id][path].replicas[at] = ReplicaSize(1, 0, False)
        return Results(found)

    def list_partition_reassignments(self, partitions=None):
        return {
            at: Reassignment(
                self.replicas[at],
                tuple(sorted(set(target) - set(self.replicas[at]))),
                tuple(sorted(set(self.replicas[at]) - set(target))),
            )
            for at, target in self.targets.items()
        }

    def alter_partition_reassignments(self, replicas, *, allow_replication_factor_change=True):
        results = Results()
        for at, target in replicas.items():
            if target is not None and len(target) != 2 and not allow_replication_factor_change:
                results[at] = error_for(ErrorCode.invalid_replication_factor, "not so many")
                continue
            results[at] = None
            if target is None:
                self.targets.pop(at)
            elif tuple(target) != self.replicas[at]:
                self.targets[at] = tuple(target)
        return results

    def alter_replica_log_dirs(self, paths):
        late = self.late_brokers.pop() if self.late_brokers else None
        results = Results()
        for replica, path in paths.items():
            if replica.broker_id == late:
                results[replica] = error_for(ErrorCode.replica_not_available)
            else:
                self.paths[replica] = path
                results[replica] = None
        return results

    def alter_configs(self, changes):
        for resource, its in changes.items():
            for change in its:
                if change.operation == "delete":
                    self.configs.pop((resource, change.name), None)
                else:
                    self.configs[resource, change.name] = change.value
        return Results(dict.fromkeys(changes))


@pytest.fixture
def cluster(monkeypatch):
    pretended = PretendedCluster()

    @contextmanager
    def connect(options):
        yield pretended

    monkeypatch.setattr(reassign_partitions, "connect", connect)
    monkeypatch.setattr(reassign_partitions.time, "sleep", lambda _seconds: pretended.finish())
    return pretended


@pytest.fixture
def plan(tmp_path):
    def write(*partitions):
        path = tmp_path / "plan.json"
        items = [{"topic": at.topic, "partition": at.partition, **fields} for at, fields in partitions]
        path.write_text(json.dumps({"version": 1, "partitions": items}))
        return path

    return write


def test_a_plan_is_executed_verified_and_its_throttle_taken_away(tool, cluster, plan):
    path = plan((A0, {"replicas": [3, 1]}), (A1, {"replicas": [2, 3]}))
    done = tool("reassign-partitions", "--execute", "--reassignment-json-file", path, "--throttle", 5000)
    assert done.code == 0
    assert done.lines[0] == "Current partition replica assignment"
    assert json.loads(done.lines[2])["partitions"][0]["log_dirs"] == ["/d1", "/d2"]
    assert done.lines[-2:] == [
        "The inter-broker throttle limit was set to 5000 B/s",
        "Successfully started partition reassignments for a-0,a-1",
    ]
    throttled = {(resource.kind, resource.name, name): value for (resource, name), value in cluster.configs.items()}
    assert throttled["topic", "a", "leader.replication.throttled.replicas"] == "0:1,0:2,1:2,1:3"
    assert throttled["topic", "a", "follower.replication.throttled.replicas"] == "0:3"
    assert throttled["broker", "3", "follower.replication.throttled.rate"] == "5000"

    assert tool("reassign-partitions", "--list").lines == [
        "Current partition reassignments:",
        "a-0: replicas: 1,2. adding: 3. removing: 2.",
    ]
    verify = ("reassign-partitions", "--verify", "--reassignment-json-file", path)
    assert tool(*verify).lines == [
        "Status of partition reassignment:",
        "Reassignment of partition a-0 is still in progress.",
        "Reassignment of partition a-1 is completed.",
        "",
    ]
    assert cluster.configs
    assert tool(*verify, "--wait").lines == [
        "Status of partition reassignment:",
        "Reassignment of partition a-0 is completed.",
        "Reassignment of partition a-1 is completed.",
        "",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic a",
    ]
    assert not cluster.configs
    assert tool(*verify, "--json", "--preserve-throttles").value[0] == {
        "topic": "a", "partition": 0, "status": "completed",
    }  # fmt: skip


def test_a_second_plan_must_be_wanted(tool, cluster, plan):
    path = plan((A0, {"replicas": [3, 1]}))
    execute = ("reassign-partitions", "--execute", "--reassignment-json-file", path)
    assert tool(*execute, "--json").value["started"]["partitions"][0]["replicas"] == [3, 1]
    again = tool(*execute)
    assert (again.code, "existing partition assignment" in again.err) == (1, True)
    assert tool(*execute, "--additional").code == 0


def test_a_plan_is_cancelled(tool, cluster, plan):
    path = plan((A0, {"replicas": [3, 1]}))
    tool("reassign-partitions", "--execute", "--reassignment-json-file", path)
    cancel = ("reassign-partitions", "--cancel", "--reassignment-json-file", path, "--preserve-throttles")
    assert tool(*cancel).lines == [
        "Successfully cancelled partition reassignment for: a-0",
        "None of the specified partition moves are active.",
    ]
    assert tool(*cancel).lines[0] == "None of the specified partition reassignments are active."
    assert tool("reassign-partitions", "--list") == (0, "No partition reassignments found.\n", "")


def test_log_dirs_are_told_until_brokers_take_them(tool, cluster, plan):
    path = plan((A0, {"replicas": [1, 3], "log_dirs": ["/e", "/e"]}))
    cluster.late_brokers = [3]
    done = tool(
        "reassign-partitions", "--execute", "--reassignment-json-file", path,
        "--replica-alter-log-dirs-throttle", 5000,
    )  # fmt: skip
    assert done.lines[-4:] == [
        "The replica-alter-dir throttle limit was set to 5000 B/s",
        "Successfully started partition reassignment for a-0",
        "Successfully started moving log directory to /e for replica a-0 with broker 1",
        "Successfully started moving log directory to /e for replica a-0 with broker 3",
    ]
    assert cluster.paths == {TopicPartitionReplica("a", 0, number): "/e" for number in (1, 3)}
    verified = tool("reassign-partitions", "--verify", "--reassignment-json-file", path)
    assert "Reassignment of replica a-0-3 completed successfully." in verified.lines


@pytest.mark.parametrize(
    ("partition", "fields", "complaint"),
    [
        (A0, {"replicas": [9]}, "Unknown broker id 9"),
        (TopicPartition("a", 5), {"replicas": [1]}, "Unable to find partition: a-5"),
        (TopicPartition("z", 0), {"replicas": [1]}, "no z"),
        (A0, {"replicas": [1]}, "Error reassigning partition(s): a-0: not so many"),
    ],
)
def test_a_plan_that_cannot_be(tool, cluster, plan, partition, fields, complaint):
    failed = tool(
        "reassign-partitions", "--execute", "--reassignment-json-file", plan((partition, fields)),
        "--disallow-replication-factor-change",
    )  # fmt: skip
    assert (failed.code, failed.err.count("\n")) == (1, 1)
    assert complaint in failed.err


def test_a_proposal_keeps_racks_apart(tool, cluster, tmp_path):
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "a"}]}')
    generate = ("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list")
    lines = tool(*generate, "3,1").lines
    assert (lines[0], lines[2], lines[3]) == (
        "Current partition replica assignment", "", "Proposed partition reassignment configuration",
    )  # fmt: skip
    proposed = [each["replicas"] for each in json.loads(lines[4])["partitions"]]
    assert proposed == [[1, 3], [3, 1]]
    assert tool(*generate, "1,9").code == 1
    assert tool(*generate, "1").code == 1
    assert tool(*generate, "1,1").code == 2


# -- a real broker


def test_a_broker_alone_can_move_partitions_to_itself_only(tool, admin, plan, tmp_path):
    admin.create_topic("stays")
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "stays"}]}')
    done = tool("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", 0, "--json")
    assert done.value["proposed"]["partitions"][0]["replicas"] == [0]
    assert done.value["current"]["partitions"][0]["log_dirs"] != ["any"]
    assert tool("reassign-partitions", "--list").out == "No partition reassignments found.\n"
    stays = TopicPartition("stays", 0)
    path = plan((stays, {"replicas": [0]}))
    started = tool("reassign-partitions", "--execute", "--reassignment-json-file", path)
    assert started.lines[-1] == "Successfully started partition reassignment for stays-0"
    verified = tool("reassign-partitions", "--verify", "--reassignment-json-file", path)
    assert "Reassignment of partition stays-0 is completed." in verified.lines
    cancelled = tool("reassign-partitions", "--cancel", "--reassignment-json-file", path)
    assert cancelled.lines[0] == "None of the specified partition reassignments are active."
    refused = tool("reassign-partitions", "--execute", "--reassignment-json-file", plan((stays, {"replicas": [7]})))
    assert (refused.code, refused.err) == (1, "headrace reassign-partitions: Unknown broker id 7\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--verify"],
        ["--verify"],
        ["--generate"],
        ["--list", "--throttle", 5000],
        ["--execute", "--reassignment-json-file", "/nowhere.json"],
        ["--execute", "--throttle", 5],
        ["--generate", "--wait"],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("reassign-partitions", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)
