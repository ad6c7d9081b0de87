"""headrace get-offsets: Kafka's rules for partitions, Kafka's lines."""

import pytest

from headrace.tools.get_offsets.command import parse_time
from headrace.tools.get_offsets.partition_rules import matches, parse_rules, rules_of
from headrace.tools.shared.commands import UsageError


@pytest.fixture(scope="module")
def topic(admin):
    admin.create_topic("counted", num_partitions=3)
    return "counted"


def test_begin_end_and_times(tool, topic, produce):
    produce(topic, 0, [b"a", b"b", b"c"], first_ms=5_000, step_ms=1_000)
    assert tool("get-offsets", "--topic", topic) == (0, "counted:0:3\ncounted:1:0\ncounted:2:0\n", "")
    assert tool("get-offsets", "--topic", topic, "--time", "earliest", "--partitions", "0,2").lines == [
        "counted:0:0",
        "counted:2:0",
    ]
    # A time past the last record leads nowhere.
    assert tool("get-offsets", "--topic", topic, "--time", 5_500).lines == ["counted:0:1"]
    assert tool("get-offsets", "--topic", topic, "--time", -3).lines == ["counted:0:2"]
    assert tool("get-offsets", "--topic", topic, "--time", 9_999) == (0, "", "")
    assert tool("get-offsets", "--topic-partitions", "count.*:1-", "--json").value == [
        {"topic": topic, "partition": 1, "offset": 0},
        {"topic": topic, "partition": 2, "offset": 0},
    ]


def test_nothing_that_matches_is_a_failure(tool, topic):
    failed = tool("get-offsets", "--topic", "nowhere")
    assert failed.code == 1
    assert failed.err == "headrace get-offsets: Could not match any topic-partitions with the specified filters\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--time", "soon"],
        ["--topic", "a", "--topic-partitions", "b"],
        ["--partitions", "x"],
        ["--topic-partitions", "a:b"],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("get-offsets", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("rules", "partitions"),
    [
        ("a:1", ["a-1"]),
        ("a:0-2", ["a-0", "a-1"]),
        ("a:2-", ["a-2", "a-3"]),
        ("a:-1", ["a-0"]),
        ("b", ["b-0", "b-1", "b-2", "b-3"]),
        (":3", ["a-3", "b-3"]),
        ("a:0,b:0-1", ["a-0", "b-0"]),
        ("", ["a-0", "a-1", "a-2", "a-3", "b-0", "b-1", "b-2", "b-3"]),
    ],
)
def test_rules(rules, partitions):
    parsed = parse_rules(rules)
    there = [(topic, index) for topic in "ab" for index in range(4)]
    assert [f"{topic}-{index}" for topic, index in there if matches(parsed, topic, index)] == partitions


def test_topic_and_partitions_make_rules_too():
    assert [matches(rules_of("a|b", "1,2"), "b", index) for index in range(3)] == [False, True, True]
    assert matches(rules_of(None, None), "anything", 7)
    with pytest.raises(UsageError, match="received: 1,x"):
        rules_of(None, "1,x")


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("latest", "latest"), ("-1", "latest"), ("-2", "earliest"), ("max-timestamp", "max_timestamp"),
        ("-4", "earliest_local"), ("latest-tiered", "latest_tiered"), ("earliest-pending-upload", -6), ("17", 17),
    ],
)  # fmt: skip
def test_times(text, spec):
    assert parse_time(text) == spec
