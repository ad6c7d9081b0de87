"""headrace consumer-groups: lists, lag, members and resets, in Kafka's words."""

import pytest

from headrace.client.admin.types import GroupDescription, GroupMember
from headrace.client.types import Node, OffsetAndMetadata, TopicPartition
from headrace.tools.consumer_groups.descriptions import (
    assignment_text,
    member_state,
    members_text,
    members_value,
    offsets_text,
    offsets_value,
    partition_rows,
    state_text,
)

HEADINGS = (
    "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
    "HOST            CLIENT-ID"
)


@pytest.fixture(scope="module")
def topic(admin):
    admin.create_topic("read", num_partitions=3)
    return "read"


@pytest.fixture
def idle(admin, topic, produce):
    """A group without members that has committed 1 in partitions 0 and 1, each with 3 records more every time."""
    for index in (0, 1):
        produce(topic, index, [b"a", b"b", b"c"], first_ms=10_000, step_ms=1_000)
    admin.alter_group_offsets("idle", {TopicPartition(topic, index): 1 for index in (0, 1)}).all()
    return "idle"


def end_of(admin, topic, index):
    at = TopicPartition(topic, index)
    return admin.list_offsets({at: "latest"}).value(at).offset


def committed(admin, group="idle"):
    return {at.partition: found.offset for at, found in admin.list_group_offsets(group).items()}


# -- look


def test_groups_are_listed_with_type_and_state(tool, idle, join):
    join("busy", ["read"], [TopicPartition("read", 0)])
    assert {"busy", "idle"} <= set(tool("consumer-groups", "--list").lines)
    assert [line.split() for line in tool("consumer-groups", "--list", "--state", "Stable").lines] == [
        ["GROUP", "STATE"],
        ["busy", "Stable"],
    ]
    both = tool("consumer-groups", "--list", "--state", "empty,stable", "--type").lines
    longest = max(len(line.split()[0]) for line in both[1:])
    assert both[0] == f"{'GROUP':{longest + 10}} TYPE                 STATE               "
    assert ["idle", "Classic", "Empty"] in [line.split() for line in both]
    assert tool("consumer-groups", "--list", "--type", "consumer", "--json").value == []


def test_lag_of_a_group_without_members(tool, idle, admin, topic):
    end = end_of(admin, topic, 0)
    done = tool("consumer-groups", "--describe", "--group", idle)
    assert done.code == 0
    assert done.err == "\nConsumer group 'idle' has no active members.\n"
    blank, headings, first, second = done.lines
    assert (blank, headings) == ("", HEADINGS)
    assert first.split() == ["idle", "read", "0", "1", str(end), str(end - 1), "-", "-", "-"]
    assert second.split()[2] == "1"
    (told,) = tool("consumer-groups", "--describe", "--group", idle, "--json").value
    assert told["state"] == "Empty"
    assert told["offsets"][0]["lag"] == end - 1


def test_members_and_state(tool, join, topic):
    member = join("busy", [topic], [TopicPartition(topic, 0), TopicPartition(topic, 2)])
    _, headings, row = tool("consumer-groups", "--describe", "--group", "busy", "--members", "--verbose").lines
    assert headings.split() == [
        "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH", "TARGET-ASSIGNMENT",
    ]  # fmt: skip
    assert row.split() == ["busy", member.member_id, "/127.0.0.1", "member-client", "2", "-", "read:0,2", "-", "-"]
    _, headings, row = tool("consumer-groups", "--describe", "--group", "busy", "--state").lines
    assert headings == ("GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS")
    assert row.split()[-3:] == ["range", "Stable", "1"]
    (told,) = tool("consumer-groups", "--describe", "--group", "busy", "--members", "--json").value
    assert told["members"][0]["assignment"] == [{"topic": topic, "partition": index} for index in (0, 2)]
    (told,) = tool("consumer-groups", "--describe", "--group", "busy", "--state", "--json").value
    assert (told["assignmentStrategy"], told["members"]) == ("range", 1)
    _, _, *rows = tool("consumer-groups", "--describe", "--group", "busy").lines
    assert [row.split()[:4] for row in rows] == [["busy", topic, index, "-"] for index in ("0", "2")]


def test_all_groups(tool, idle, join, topic):
    join("busy", [topic], [TopicPartition(topic, 0)])
    groups = {each["group"] for each in tool("consumer-groups", "--describe", "--all-groups", "--json").value}
    assert {"busy", "idle"} <= groups


def test_a_group_that_is_not_there(tool):
    done = tool("consumer-groups", "--describe", "--group", "nobody")
    assert done == (1, "", "headrace consumer-groups: Consumer group 'nobody' does not exist.\n")


# -- reset


def reset(tool, *arguments):
    done = tool("consumer-groups", "--reset-offsets", "--group", "idle", *arguments)
    return {int(row.split()[2]): int(row.split()[3]) for row in done.lines[2:]}


def test_each_strategy(tool, idle, admin, topic):
    end = end_of(admin, topic, 0)
    scope = ("--topic", f"{topic}:0", "--dry-run")
    assert reset(tool, "--to-earliest", *scope) == {0: 0}
    assert reset(tool, "--to-latest", *scope) == {0: end}
    assert reset(tool, "--to-current", *scope) == {0: 1}
    assert reset(tool, "--to-offset", 2, *scope) == {0: 2}
    assert reset(tool, "--to-offset", 0, *scope) == {0: 0}
    assert reset(tool, "--shift-by", 1, *scope) == {0: 2}
    assert reset(tool, "--shift-by", -9, *scope) == {0: 0}
    assert reset(tool, "--to-datetime", "1970-01-01T00:00:11.000", *scope) == {0: 1}
    assert reset(tool, "--by-duration", "P36500D", *scope) == {0: 0}
    assert reset(tool, "--by-duration", "PT1S", *scope) == {0: end}
    assert committed(admin) == {0: 1, 1: 1}, "a dry run changes nothing"


def test_execute_moves_the_group(tool, idle, admin, topic):
    done = tool("consumer-groups", "--reset-offsets", "--group", idle, "--all-topics", "--to-offset", 2, "--execute")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "idle            read            0          2",
        "idle            read            1          2",
    ]
    assert committed(admin) == {0: 2, 1: 2}


def test_an_offset_behind_the_end_is_told(tool, idle, admin, topic):
    scope = ("--topic", f"{topic}:0", "--to-offset", 99999, "--dry-run")
    done = tool("consumer-groups", "--reset-offsets", "--group", idle, *scope, "--json")
    end = end_of(admin, topic, 0)
    assert (done.code, [row["newOffset"] for row in done.value]) == (0, [end])
    assert done.err == (
        "headrace consumer-groups: New offset (99999) is higher than latest offset for topic partition read-0. "
        f"Value will be set to {end}\n"
    )


def test_without_a_word_it_is_a_dry_run_with_a_warning(tool, idle, admin):
    done = tool("consumer-groups", "--reset-offsets", "--group", idle, "--all-topics", "--to-earliest")
    assert "WARN: No action will be performed" in done.err
    assert committed(admin) == {0: 1, 1: 1}


def test_what_is_exported_is_read_again(tool, idle, admin, topic, tmp_path):
    exported = tool(
        "consumer-groups", "--reset-offsets", "--group", idle, "--all-topics", "--to-current", "--export", "--dry-run"
    )
    assert exported.lines == ["read,0,1", "read,1,1"]
    path = tmp_path / "offsets.csv"
    path.write_text("read,0,2\nread,1,0\n")
    assert tool("consumer-groups", "--reset-offsets", "--group", idle, "--from-file", path, "--execute").code == 0
    assert committed(admin) == {0: 2, 1: 0}


@pytest.mark.parametrize("scope", [["--all-topics"], ["--topic", "read"]])
def test_a_file_says_more_than_a_scope(tool, idle, topic, tmp_path, scope):
    path = tmp_path / "offsets.csv"
    path.write_text("read,0,2\n")
    assert reset(tool, *scope, "--from-file", path, "--dry-run") == {0: 2}


def test_several_groups_at_once(tool, idle, admin, topic, tmp_path):
    both = ("--group", "idle", "--group", "fresh")
    done = tool("consumer-groups", "--reset-offsets", *both, "--topic", topic, "--to-earliest", "--export", "--dry-run")
    assert done.lines[0] == "idle,read,0,0"
    assert done.lines[-1] == "fresh,read,2,0"
    path = tmp_path / "offsets.csv"
    path.write_text("idle,read,0,1\nfresh,read,0,2\n")
    done = tool("consumer-groups", "--reset-offsets", *both, "--from-file", path, "--execute", "--json")
    assert done.value == [
        {"group": "idle", "topic": topic, "partition": 0, "newOffset": 1},
        {"group": "fresh", "topic": topic, "partition": 0, "newOffset": 2},
    ]
    assert committed(admin, "fresh") == {0: 2}
    admin.delete_group("fresh")


def test_a_group_that_is_used_is_not_reset(tool, join, topic, admin):
    join("busy", [topic], [TopicPartition(topic, 0)])
    done = tool("consumer-groups", "--reset-offsets", "--group", "busy", "--topic", topic, "--to-latest", "--execute")
    assert done.code == 1
    assert done.err == (
        "headrace consumer-groups: Assignments can only be reset if the group 'busy' is inactive, "
        "but the current state is Stable.\n"
    )
    assert committed(admin, "busy") == {}


@pytest.mark.parametrize(
    ("scope", "complaint"),
    [("read:9", 'The partitions "read-9" do not exist'), ("nowhere", "nowhere")],
)
def test_partitions_that_are_not_there(tool, idle, scope, complaint):
    done = tool("consumer-groups", "--reset-offsets", "--group", idle, "--to-earliest", "--topic", scope, "--dry-run")
    assert (done.code, complaint in done.err) == (1, True)


# -- delete


def test_offsets_are_forgotten(tool, idle, admin, topic):
    done = tool("consumer-groups", "--delete-offsets", "--group", idle, "--topic", f"{topic}:0")
    assert done.lines == [
        "Request succeeded for deleting offsets from group idle.",
        "",
        "TOPIC           PARTITION  STATUS",
        "read            0          Successful",
    ]
    assert committed(admin) == {1: 1}
    done = tool("consumer-groups", "--delete-offsets", "--group", idle, "--topic", topic, "--topic", "nowhere")
    assert done.code == 1
    assert "see the follow-up details" in done.err
    assert done.lines[2].startswith("nowhere         -          Error: ")
    assert committed(admin) == {}
    missing = tool("consumer-groups", "--delete-offsets", "--group", "nobody", "--topic", topic, "--json")
    assert (missing.code, "group_id_not_found" in missing.value[0]["status"]) == (1, True)


def test_offsets_of_a_topic_that_is_read_stay(tool, join, topic):
    join("busy", [topic], [TopicPartition(topic, 0)])
    done = tool("consumer-groups", "--delete-offsets", "--group", "busy", "--topic", f"{topic}:0")
    assert (done.code, "group_subscribed_to_topic" in done.out) == (1, True)


def test_groups_are_deleted_unless_they_have_members(tool, join, topic, admin):
    join("busy", [topic], [TopicPartition(topic, 0)])
    for group in ("old", "older"):
        admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0}).all()
    assert tool("consumer-groups", "--delete", "--group", "old") == (
        0, "Deletion of requested consumer groups ('old') was successful.\n", "",
    )  # fmt: skip
    done = tool("consumer-groups", "--delete", "--group", "older", "--group", "busy", "--group", "nobody")
    assert done.code == 1
    assert done.lines == ["", "These consumer groups were deleted successfully: 'older'"]
    assert "* Group 'busy' could not be deleted due to: " in done.err
    assert "* Group 'nobody' could not be deleted due to: " in done.err
    again = tool("consumer-groups", "--delete", "--group", "older", "--json")
    assert again.value[0]["deleted"] is False


# -- use


def test_regular_expressions_are_checked_without_a_broker(tool):
    assert tool("consumer-groups", "--validate-regex", "a.*").out == "The regular expression `a.*` is valid.\n"
    assert "The regular expression `a(b` is invalid" in tool("consumer-groups", "--validate-regex", "a(b").err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--list", "--state", "Sleeping"],
        ["--list", "--type", "share"],
        ["--list", "--topic", "a"],
        ["--describe"],
        ["--describe", "--group", "g", "--all-groups"],
        ["--describe", "--group", "g", "--members", "--state"],
        ["--describe", "--group", "g", "--state", "Stable"],
        ["--delete"],
        ["--delete-offsets", "--group", "g"],
        ["--delete-offsets", "--group", "g", "--group", "h", "--topic", "a"],
        ["--reset-offsets", "--group", "g", "--to-earliest"],
        ["--reset-offsets", "--group", "g", "--topic", "a"],
        ["--reset-offsets", "--group", "g", "--topic", "a", "--to-earliest", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--topic", "a", "--all-topics", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--topic", "a", "--to-latest", "--execute", "--dry-run"],
        ["--reset-offsets", "--group", "g", "--topic", "a", "--to-datetime", "now"],
        ["--reset-offsets", "--group", "g", "--topic", "a", "--by-duration", "long"],
        ["--reset-offsets", "--group", "g", "--from-file", "/nowhere.csv", "--dry-run"],
    ],
)
def test_wrong_use(tool, arguments):
    failed = tool("consumer-groups", *arguments)
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


# -- without a broker

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NODE = Node(3, "host", 9092)


def group(*members, state="Stable", **more):
    return GroupDescription("g", "Consumer", state, "consumer", "uniform", members, NODE, **more)


def test_rows_are_members_partitions_then_those_of_nobody():
    small = GroupMember("m1", None, "c", "/h", (A0,))
    large = GroupMember("m2", None, "c", "/h", (B0, A1))
    rows = partition_rows(
        group(small, large), {A0: OffsetAndMetadata(4), TopicPartition("z", 0): OffsetAndMetadata(1)}, {A0: 10}
    )
    assert [str(row.partition) for row in rows] == ["a-1", "b-0", "a-0", "z-0"]
    assert [row.lag for row in rows] == [None, None, 6, None]
    _, headings, *lines = offsets_text("g", rows, verbose=True).lines()
    assert "LEADER-EPOCH" in headings
    assert lines[2].split() == ["g", "a", "0", "-", "4", "10", "6", "m1", "/h", "c"]


def test_machines_get_all_columns():
    old = GroupMember("m1", None, "c", "/h", (A0,), target_assignment=(A0,), member_epoch=4, is_classic=True)
    described = group(old, old._replace(is_classic=False), old._replace(is_classic=None), assignment_epoch=5)
    members = members_value(described)["members"]
    assert [member["upgraded"] for member in members] == [False, True, None]
    assert {(member["epoch"], member["targetEpoch"]) for member in members} == {(4, 5)}
    committed = {A0: OffsetAndMetadata(4, leader_epoch=7), A1: OffsetAndMetadata(4)}
    offsets = offsets_value(described, partition_rows(group(), committed, {}))["offsets"]
    assert [row["leaderEpoch"] for row in offsets] == [7, None]


def test_columns_come_as_they_are_needed():
    static = GroupMember("m1", "me", "c", "/h", (A0,), target_assignment=(A0, B0), member_epoch=4, is_classic=True)
    new = GroupMember("m2", None, "c", "/h", (), target_assignment=(), member_epoch=5, is_classic=False)
    text = members_text(group(static, new, group_epoch=6, assignment_epoch=5), verbose=True)
    _, headings, first, second = text.lines()
    assert headings.split()[2] == "GROUP-INSTANCE-ID"
    assert headings.split()[-1] == "UPGRADED"
    assert first.split() == ["g", "m1", "me", "/h", "c", "1", "4", "a:0", "5", "a:0;b:0", "false"]
    assert second.split() == ["g", "m2", "-", "/h", "c", "0", "5", "-", "5", "-", "true"]


def test_states_that_want_a_word():
    assert member_state(group()) is None
    assert member_state(group(state="Empty")) == "Consumer group 'g' has no active members."
    assert member_state(group(state="Reconciling")) == "Warning: Consumer group 'g' is rebalancing."
    _, _, row = state_text(group(group_epoch=6, assignment_epoch=5), verbose=True).lines()
    assert row.split() == ["g", "host:9092", "(3)", "uniform", "Stable", "6", "5", "0"]


def test_assignments_by_topic():
    assert assignment_text([B0, A1, A0]) == "a:0,1;b:0"
    assert assignment_text([]) is None
