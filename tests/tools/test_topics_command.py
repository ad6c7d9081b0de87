"""headrace topics: Kafka's flags, Kafka's words."""

import subprocess
import sys
from uuid import UUID

import pytest

from headrace.client.admin.types import ConfigEntry, PartitionDescription, Reassignment, TopicDescription
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import UsageError
from headrace.tools.shared.topic_names import (
    matching,
    parse_topic_id,
    parse_topic_partitions,
    topic_id_text,
    topic_pattern,
)
from headrace.tools.topics.command import parse_assignment, parse_configs
from headrace.tools.topics.descriptions import Described, Filters, is_shown, lines, tables, value


def test_a_topic_is_created_listed_described_widened_and_deleted(tool):
    made = tool("topics", "--create", "--topic", "life", "--partitions", 2, "--config", "retention.ms=5000")
    assert made == (0, "Created topic life.\n", "")
    assert "life" in tool("topics", "--list").lines
    described = tool("topics", "--describe", "--topic", "life").lines
    assert described[0].startswith("Topic: life\tTopicId: ")
    assert described[0].endswith(
        "\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: file.delete.delay.ms=0,retention.ms=5000"
    )
    assert described[1:] == [
        f"\tTopic: life\tPartition: {index}\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: " for index in (0, 1)
    ]
    assert tool("topics", "--alter", "--topic", "life", "--partitions", 4) == (0, "", "")
    assert len(tool("topics", "--describe", "--topic", "life").lines) == 5
    assert tool("topics", "--delete", "--topic", "life") == (0, "", "")
    assert "life" not in tool("topics", "--list").lines


def test_a_topic_that_is_there_is_a_failure_unless_said_otherwise(tool):
    tool("topics", "--create", "--topic", "twice")
    again = tool("topics", "--create", "--topic", "twice")
    assert (again.code, again.out) == (1, "")
    assert "already exists" in again.err
    assert tool("topics", "--create", "--topic", "twice", "--if-not-exists") == (0, "", "")


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--alter", "--partitions", "3"]])
def test_a_topic_that_is_not_there_is_a_failure_unless_said_otherwise(tool, action):
    failed = tool("topics", *action, "--topic", "nowhere")
    assert failed == (1, "", "headrace topics: Topic 'nowhere' does not exist as expected\n")
    assert tool("topics", *action, "--topic", "nowhere", "--if-exists") == (0, "", "")


def test_names_that_could_collide_are_warned_of(tool):
    made = tool("topics", "--create", "--topic", "a.b")
    assert made.lines[0].startswith("WARNING: Due to limitations in metric names")
    assert made.lines[1] == "Created topic a.b."


def test_json_says_the_same(tool):
    made = tool("topics", "--create", "--topic", "told", "--partitions", 2, "--json").value
    assert (made["topic"], made["created"], made["partitionCount"]) == ("told", True, 2)
    assert tool("topics", "--create", "--topic", "told", "--if-not-exists", "--json").value["created"] is False
    assert "told" in tool("topics", "--list", "--json").value
    (topic,) = tool("topics", "--describe", "--topic", "told", "--json").value
    assert topic["topicId"] == made["topicId"]
    assert topic["partitions"][1] == {
        "partition": 1, "leader": 0, "replicas": [0], "isr": [0], "addingReplicas": [], "removingReplicas": [],
    }  # fmt: skip
    by_id = tool("topics", "--describe", "--topic-id", made["topicId"], "--json").value
    assert by_id == [topic]
    assert tool("topics", "--delete", "--topic", "told", "--json").value == [{"topic": "told", "deleted": True}]


def test_topics_are_chosen_by_a_regular_expression_for_the_whole_name(tool):
    for name in ("re-one", "re-two", "more-one"):
        tool("topics", "--create", "--topic", name)
    assert tool("topics", "--list", "--topic", "re-.*").lines == ["re-one", "re-two"]
    assert tool("topics", "--list", "--topic", "more-one,re-one").lines == ["more-one", "re-one"]
    assert tool("topics", "--list", "--topic", "re-").lines == []


def test_replicas_are_placed_by_hand(tool):
    assert tool("topics", "--create", "--topic", "placed", "--replica-assignment", "0,0,0").code == 0
    assert "PartitionCount: 3" in tool("topics", "--describe", "--topic", "placed").out
    widened = tool("topics", "--alter", "--topic", "placed", "--partitions", 4, "--replica-assignment", "0,0,0,0")
    assert widened.code == 0
    refused = tool("topics", "--create", "--topic", "misplaced", "--replica-assignment", "9")
    assert (refused.code, "unknown brokers" in refused.err) == (1, True)


def test_filters_of_a_healthy_cluster_show_nothing_but_overrides(tool):
    tool("topics", "--create", "--topic", "overridden", "--config", "segment.bytes=2000000")
    assert tool("topics", "--describe", "--under-replicated-partitions") == (0, "", "")
    assert tool("topics", "--describe", "--unavailable-partitions") == (0, "", "")
    assert tool("topics", "--describe", "--under-min-isr-partitions") == (0, "", "")
    assert "\tTopic: overridden\t" in tool("topics", "--describe", "--at-min-isr-partitions").out
    sized = ("--partition-size-limit-per-response", 20)
    shown = tool("topics", "--describe", "--topics-with-overrides", "--topic", "overridden", *sized).lines
    assert len(shown) == 1
    assert shown[0].endswith(",segment.bytes=2000000")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--create"],
        ["--alter", "--topic", "x"],
        ["--list", "--partitions", "3"],
        ["--list", "--partition-size-limit-per-response", "3"],
        ["--create", "--topic", "x", "--partitions", "0"],
        ["--create", "--topic", "x", "--replication-factor", "40000"],
        ["--create", "--topic", "x", "--config", "retention.ms"],
        ["--create", "--topic", "x", "--replica-assignment", "0:0"],
        ["--create", "--topic", "x", "--replica-assignment", "0,0:1"],
        ["--create", "--topic", "x", "--replica-assignment", "a"],
        ["--create", "--topic", "x", "--replica-assignment", "0", "--partitions", "1"],
        ["--describe", "--topic", "("],
        ["--describe", "--topic-id", "short"],
    ],
)
def test_wrong_use_is_2_and_one_line(tool, arguments):
    failed = tool("topics", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


def test_as_a_process_of_its_own(broker):
    command = [sys.executable, "-c", "from headrace.tools.main import main; main()", "topics"]
    done = subprocess.run(
        [*command, "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", "apart"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "Created topic apart.\n", "")


# -- without a broker

ID = UUID(int=0xDA3B0542FEAB49EC9E6EEF9A3017D350)
MOVE = Reassignment((1, 2, 3), (3,), (1,))
SICK = Described(
    TopicDescription(
        "t",
        ID,
        False,
        (
            PartitionDescription(0, 1, 5, (1, 2), (1, 2), (), (), ()),
            PartitionDescription(1, -1, 5, (1, 2), (2,), (), None, None),
            PartitionDescription(2, 1, 5, (1, 2, 3), (1, 2)),
        ),
    ),
    {
        "min.insync.replicas": ConfigEntry("min.insync.replicas", "2", "DYNAMIC_TOPIC_CONFIG"),
        "retention.ms": ConfigEntry("retention.ms", "1", "DEFAULT_CONFIG"),
    },
    {TopicPartition("t", 2): MOVE},
    frozenset({1, 2, 3}),
)


@pytest.mark.parametrize(
    ("filters", "partitions"),
    [
        (Filters(), [0, 1, 2]),
        (Filters(under_replicated=True), [1]),
        (Filters(unavailable=True), [1]),
        (Filters(under_min_isr=True), [1]),
        (Filters(at_min_isr=True), [0, 2]),
        (Filters(with_overrides=True), []),
    ],
)
def test_filters(filters, partitions):
    assert [each.partition for each in SICK.partitions(filters)] == partitions
    assert len(list(lines(SICK, filters))) == len(partitions) + is_shown(SICK, filters)
    (table,) = tables([SICK], filters)
    assert len(list(table.rows)) == (1 if filters.with_overrides else len(partitions))
    assert bool(table.title) is (filters == Filters())


def test_moves_and_missing_leaders_are_told():
    topic, first, second, third = lines(SICK, Filters())
    assert topic == (
        "Topic: t\tTopicId: 2jsFQv6rSeyebu-aMBfTUA\tPartitionCount: 3\tReplicationFactor: 2"
        "\tConfigs: min.insync.replicas=2"
    )
    assert first.endswith("\tElr: \tLastKnownElr: ")
    assert "\tLeader: none\t" in second
    assert second.endswith("\tElr: N/A\tLastKnownElr: N/A")
    assert "\tAdding Replicas: 3\tRemoving Replicas: 1\t" in third
    assert value(SICK, Filters())["partitions"][1]["leader"] is None


def test_ids_are_written_as_kafka_writes_them():
    assert topic_id_text(ID) == "2jsFQv6rSeyebu-aMBfTUA"
    assert parse_topic_id("2jsFQv6rSeyebu-aMBfTUA") == ID
    assert topic_id_text(None) == ""


def test_names_and_partitions_of_the_command_line():
    assert parse_topic_partitions("orders:0,2") == ("orders", [0, 2])
    assert parse_topic_partitions("orders") == ("orders", None)
    for text in ("orders:", ":1", "orders:x"):
        with pytest.raises(UsageError):
            parse_topic_partitions(text)
    assert matching(["b", "a", "ab"], topic_pattern("a|b")) == ["a", "b"]
    assert parse_assignment("0:1,1:2") == [[0, 1], [1, 2]]
    assert parse_configs(["a = b=c"]) == {"a": "b=c"}
