"""delete-records, log-dirs, leader-election, preferred-replica-election and broker-api-versions."""

import json

import pytest

from headrace.client.admin.types import BrokerVersions, LogDir, ReplicaSize, VersionRange
from headrace.client.errors import ErrorCode, error_for
from headrace.client.types import Node, TopicPartition
from headrace.tools.broker_api_versions import support_of
from headrace.tools.log_dirs import as_json
from headrace.tools.shared.commands import UsageError
from headrace.tools.shared.partition_files import entries


@pytest.fixture(scope="module")
def topic(admin):
    admin.create_topic("held", num_partitions=2)
    return "held"


@pytest.fixture
def write_json(tmp_path):
    def write(content):
        path = tmp_path / "file.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


# -- delete-records


def test_records_below_an_offset_are_deleted(tool, topic, produce, write_json):
    produce(topic, 0, [b"a", b"b", b"c"])
    path = write_json({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]})
    done = tool("delete-records", "--offset-json-file", path)
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: held-0\tlow_watermark: 2",
    ]
    assert tool("get-offsets", "--topic", topic, "--time", "earliest", "--partitions", 0).lines == ["held:0:2"]


def test_a_partition_that_fails_is_told_and_the_others_go_on(tool, topic, write_json):
    wanted = [
        {"topic": topic, "partition": 1, "offset": 77},
        {"topic": "nowhere", "partition": 0, "offset": 1},
        {"topic": topic, "partition": 0, "offset": -1},
    ]
    path = write_json({"partitions": wanted})
    done = tool("delete-records", "--offset-json-file", path, "--json")
    assert done.code == 1
    good, *bad = done.value
    assert (good["partition"], good["lowWatermark"] >= 0) == (0, True)
    assert ["offset_out_of_range" in each["error"] for each in bad] == [True, False]
    lines = tool("delete-records", "--offset-json-file", path).lines
    assert any(line.startswith("partition: nowhere-0\terror: ") for line in lines)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        [],
        {"version": 2, "partitions": []},
        {"version": 1},
        {"partitions": [1]},
        {"partitions": [{"topic": "a", "partition": 0}]},
        {"partitions": [{"topic": "a", "partition": "0", "offset": 1}]},
        {"partitions": [{"topic": "a", "partition": 0, "offset": True}]},
        {"partitions": [{"topic": "a", "partition": 0, "offset": 1}] * 2},
        {"partitions": [{"topic": "a", "partition": 0, "offset": 2**63}]},
        {"partitions": [{"topic": "a", "partition": 2**31, "offset": 1}]},
    ],
)
def test_a_file_that_makes_no_sense_is_wrong_use(tool, write_json, content):
    failed = tool("delete-records", "--offset-json-file", write_json(content))
    assert (failed.code, failed.out, failed.err.count("\n")) == (2, "", 1)


def test_entries_keep_their_objects():
    item = {"topic": "a", "partition": 3, "replicas": [1]}
    assert entries({"partitions": [item]}, "f", wanted={"replicas": list}) == [(TopicPartition("a", 3), item)]
    with pytest.raises(UsageError, match="duplicate topic partitions: a-3"):
        entries({"partitions": [item, item]}, "f")


# -- log-dirs


def test_log_dirs_are_shown_as_kafkas_json(tool, topic):
    first, second, content = tool("log-dirs", "--describe", "--topic-list", topic).lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 0"
    assert ": " not in content
    (broker,) = json.loads(content)["brokers"]
    (log_dir,) = broker["logDirs"]
    assert [each["partition"] for each in log_dir["partitions"]] == ["held-0", "held-1"]
    everything = tool("log-dirs", "--describe", "--json")
    assert everything.value["version"] == 1


def test_a_broker_that_is_not_there(tool):
    failed = tool("log-dirs", "--describe", "--broker-list", "0,7")
    assert failed.code == 1
    assert "do not exist from --broker-list: 7. Current existent brokers: 0" in failed.err


def test_describe_must_be_said(tool):
    assert tool("log-dirs").code == 2


def test_a_broken_log_dir_and_a_move():
    replicas = {
        TopicPartition("b", 0): ReplicaSize(5, 1, True),
        TopicPartition("a", 10): ReplicaSize(7, 0, False),
        TopicPartition("a", 9): ReplicaSize(7, 0, False),
    }
    found = {
        1: {
            "/x": LogDir("/x", error_for(ErrorCode.kafka_storage_error, "broken"), {}),
            "/y": LogDir("/y", None, replicas),
        }
    }
    broken, whole = as_json(found, set())["brokers"][0]["logDirs"]
    assert broken == {"partitions": [], "error": "broken (kafka_storage_error)", "logDir": "/x"}
    assert [each["partition"] for each in whole["partitions"]] == ["a-9", "a-10", "b-0"]
    assert whole["partitions"][2] == {"partition": "b-0", "size": 5, "offsetLag": 1, "isFuture": True}
    assert as_json(found, {"b"})["brokers"][0]["logDirs"][1]["partitions"] == whole["partitions"][2:]


# -- leader-election


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--election-type", "fair", "--all-topic-partitions"],
        ["--election-type", "preferred"],
        ["--election-type", "preferred", "--topic", "a"],
        ["--election-type", "preferred", "--topic", "a", "--partition", 0, "--all-topic-partitions"],
        ["--election-type", "preferred", "--all-topic-partitions", "--partition", 0],
        ["--election-type", "preferred", "--path-to-json-file", "/nowhere.json"],
    ],
)
def test_wrong_use_of_leader_election(tool, arguments):
    failed = tool("leader-election", *arguments)
    assert (failed.code, failed.out) == (2, "")


def test_an_election_has_an_outcome(tool, topic):
    done = tool("leader-election", "--election-type", "PREFERRED", "--topic", topic, "--partition", 0)
    assert (done.code, done.lines) == (0, ["Valid replica already elected for partitions held-0"])
    everywhere = tool("leader-election", "--election-type", "UNCLEAN", "--all-topic-partitions")
    assert (everywhere.code, everywhere.out) == (0, "")
    failed = tool("leader-election", "--election-type", "PREFERRED", "--topic", topic, "--partition", 9)
    assert failed.code == 1
    assert "topic 'held' has no partition 9" in failed.out


# -- preferred-replica-election


def test_the_older_name_of_a_preferred_election(tool, topic, write_json):
    everywhere = tool("preferred-replica-election")
    assert (everywhere.code, everywhere.out) == (0, "")
    path = write_json({"partitions": [{"topic": topic, "partition": 1}]})
    done = tool("preferred-replica-election", "--path-to-json-file", path)
    assert (done.code, done.lines) == (0, ["Valid replica already elected for partitions held-1"])
    missing = write_json({"partitions": [{"topic": topic, "partition": 9}]})
    assert tool("preferred-replica-election", "--path-to-json-file", missing, "--json").code == 1


@pytest.mark.parametrize("arguments", [["--path-to-json-file", "/nowhere.json"], ["--election-type", "unclean"]])
def test_wrong_use_of_preferred_replica_election(tool, arguments):
    failed = tool("preferred-replica-election", *arguments)
    assert (failed.code, failed.out) == (2, "")


# -- broker-api-versions


def test_versions_are_told_in_kafkas_words(tool, broker):
    lines = tool("broker-api-versions").lines
    assert lines[0] == f"{broker.bootstrap_servers} (id: 0 rack: null isFenced: false) -> ("
    assert "\tMetadata(3): 0 to 13 [usable: 13]," in lines
    assert "\tOffsetDelete(47): 0 [usable: 0]," in lines
    assert lines[-1] == ")"
    (told,) = tool("broker-api-versions", "--json").value
    assert {"key": 47, "name": "OffsetDelete", "min": 0, "max": 0, "usable": 0} in told["apis"]


def test_what_only_one_side_speaks():
    node = Node(1, "h", 9)
    spoken = {
        each.key: each for each in support_of(BrokerVersions(node, {3: VersionRange(90, 91), 200: VersionRange(0, 1)}))
    }
    assert str(spoken[3]) == "Metadata(3): 90 to 91 [unusable]"
    assert str(spoken[200]) == "UNKNOWN(200): 0 to 1 [unusable]"
    assert str(spoken[1]) == "Fetch(1): UNSUPPORTED"
    assert 4 not in spoken
