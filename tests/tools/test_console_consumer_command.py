"""console-consumer: records become lines, of the partitions, offsets and transactions that were asked for."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from headrace import Consumer, Producer, TopicPartition
from headrace.client.admin.types import NewTopic
from headrace.tools.console_consumer.command import main


@pytest.fixture(scope="module")
def topic(broker, admin):
    """Two partitions, with a record of all that there may be."""
    admin.create_topics([NewTopic("orders", 2)])
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        send = producer.send_and_wait
        send("orders", b"a", partition=0, key=b"k", headers=[("h", b"1")], timestamp_ms=1000)
        send("orders", b"b", partition=0, timestamp_ms=2000)
        send("orders", b"c", partition=1, timestamp_ms=3000)
        send("orders", None, partition=1, key=b"gone", timestamp_ms=4000)
    return "orders"


@pytest.fixture
def consume(tool, topic):
    def run(*arguments):
        return tool("console-consumer", *arguments)

    return run


def of_orders(*arguments):
    return ("--topic", "orders", *arguments)


def test_all_of_a_topic(consume):
    done = consume(*of_orders("--from-beginning", "--max-messages", 4))
    assert (done.code, sorted(done.lines)) == (0, ["a", "b", "c", "null"])
    assert done.err == "Processed a total of 4 messages\n"


def test_limits_that_are_none(consume):
    done = consume(*of_orders("--from-beginning", "--max-messages", -1, "--timeout-ms", 300))
    assert (done.code, len(done.lines)) == (0, 4)
    done = consume(*of_orders("--from-beginning", "--max-messages", 4, "--timeout-ms", -1))
    assert (done.code, len(done.lines)) == (0, 4)


def test_it_ends_when_nothing_comes(consume):
    done = consume(*of_orders("--from-beginning", "--timeout-ms", 300))
    assert (done.code, len(done.lines)) == (0, 4)
    assert consume(*of_orders("--timeout-ms", 300)) == (0, "", "Processed a total of 0 messages\n")


@pytest.mark.parametrize(
    ("offset", "lines"), [(0, ["a", "b"]), (1, ["b"]), ("Earliest", ["a", "b"]), ("LATEST", [])]
)  # fmt: skip
def test_one_partition_from_an_offset(consume, offset, lines):
    done = consume(*of_orders("--partition", 0, "--offset", offset, "--timeout-ms", 300))
    assert (done.code, done.lines) == (0, lines)


def test_properties_of_the_formatter(consume):
    names = ("key", "offset", "partition", "timestamp", "headers")
    properties = [word for name in names for word in ("--property", f"print.{name}=true")]
    done = consume(*of_orders("--partition", 0, "--offset", 0, "--max-messages", 2, *properties))
    assert done.lines == [
        "CreateTime:1000\tPartition:0\tOffset:0\th:1\tk\ta",
        "CreateTime:2000\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tb",
    ]


def test_machines_get_all_of_a_record(consume):
    done = consume(*of_orders("--partition", 1, "--offset", 1, "--max-messages", 1, "--json"))
    assert done.value == {
        "topic": "orders", "partition": 1, "offset": 1, "timestamp": 4000, "timestampType": "CreateTime",
        "leaderEpoch": 0, "headers": [], "key": "gone", "value": None,
    }  # fmt: skip


def test_a_group_goes_on_where_it_was(consume, broker):
    group = ("--group", "readers", "--from-beginning")
    first = consume(*of_orders("--max-messages", 1, *group))
    rest = consume(*of_orders("--max-messages", 3, *group))
    assert sorted(first.lines + rest.lines) == ["a", "b", "c", "null"]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="readers") as consumer:
        partitions = [TopicPartition("orders", index) for index in (0, 1)]
        assert [one.offset for one in consumer.committed(*partitions).values()] == [2, 2]


@pytest.mark.parametrize("topics", [("--topic", "orders"), ("--include", "order.*")])
def test_the_group_of_a_file(consume, admin, tmp_path, topics):
    file = tmp_path / "consumer.properties"
    group = f"filed{topics[0]}"
    file.write_text(f"group.id={group}\n")
    done = consume(*topics, "--consumer.config", file, "--from-beginning", "--max-messages", 4)
    assert (done.code, len(done.lines)) == (0, 4)
    assert sum(one.offset for one in admin.list_group_offsets(group).values()) == 4


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("group.id=filed", ["--group", "other"], "Detected group ids: 'other', 'filed'"),
        ("group.id=filed", ["--consumer-property", "group.id=other"], "Detected group ids: 'other', 'filed'"),
        ("group.id=filed", ["--partition", "0"], "Options group and partition cannot be specified together."),
        ("auto.offset.reset=latest", ["--from-beginning"], "--from-beginning and auto.offset.reset=latest contradict"),
    ],
)
def test_a_file_that_contradicts_the_command_line(tool, tmp_path, content, arguments, said):
    file = tmp_path / "consumer.properties"
    file.write_text(f"{content}\n")
    done = tool("console-consumer", "--topic", "a", "--consumer.config", file, *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_topics_by_a_pattern(consume, broker):
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for name in ("pattern-a", "pattern-b"):
            producer.send_and_wait(name, name.encode())
    done = consume("--include", "pattern-.*", "--from-beginning", "--max-messages", 2)
    assert (done.code, sorted(done.lines)) == (0, ["pattern-a", "pattern-b"])


def test_what_is_not_committed_is_shown_only_if_asked_for(consume, broker, tmp_path):
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx") as producer:
        producer.init_transactions()
        for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send_and_wait("payments", value)
            end()
    arguments = ("--topic", "payments", "--from-beginning", "--timeout-ms", 300)
    assert consume(*arguments).lines == ["kept", "dropped"]
    assert consume(*arguments, "--isolation-level", "read_committed").lines == ["kept"]
    assert consume(*arguments, "--consumer-property", "isolation.level=read_committed").lines == ["kept"]
    file = tmp_path / "consumer.properties"
    file.write_text("isolation.level=read_committed\n")
    assert consume(*arguments, "--consumer.config", file).lines == ["kept"]
    over_file = ("--consumer.config", file, "--isolation-level", "read_uncommitted")
    assert consume(*arguments, *over_file).lines == ["kept", "dropped"]
    shown = consume(
        "--topic", "__transaction_state", "--formatter", "transaction-log", "--from-beginning", "--timeout-ms", 300
    )
    assert json.loads(shown.lines[0])["key"]["data"] == {"transactionalId": "tx"}


def test_committed_offsets_are_readable(consume, broker):
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="shown") as consumer:
        consumer.commit({TopicPartition("orders", 0): 2})
    done = consume("--topic", "__consumer_offsets", "--formatter", "offsets", "--from-beginning", "--timeout-ms", 500)
    keys = [json.loads(line)["key"]["data"] for line in done.lines]
    assert {"group": "shown", "topic": "orders", "partition": 0} in keys


def test_a_record_that_cannot_be_shown(consume):
    arguments = of_orders("--partition", 0, "--offset", 0, "--max-messages", 2, "--value-deserializer", "Long")
    done = consume(*arguments)
    assert done.code == 1
    assert "terminating consumer process: orders-0 at offset 0: Size of data" in done.err
    done = consume(*arguments, "--skip-message-on-error")
    assert (done.code, done.out) == (0, "")
    assert done.err.count("skipping this message") == 2
    assert done.err.endswith("Processed a total of 2 messages\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Exactly one of the following arguments is required: [topic], [include]"),
        (["--topic", "a", "--include", "b"], "Exactly one of the following arguments"),
        (["--include", "b", "--partition", "0"], "The topic is required when partition is specified."),
        (["--topic", "a", "--partition", "0", "--group", "g"], "Options group and partition cannot be specified"),
        (["--topic", "a", "--offset", "0"], "The partition is required when offset is specified."),
        (["--topic", "a", "--partition", "0", "--offset", "-3"], "The provided offset value '-3' is incorrect."),
        (
            ["--topic", "a", "--partition", "0", "--offset", "1", "--from-beginning"],
            "Options from-beginning and offset",
        ),
        (["--topic", "a", "--group", "g", "--consumer-property", "group.id=h"], "Detected group ids: 'g', 'h'"),
        (["--topic", "a", "--partition", "0", "--consumer-property", "group.id=h"], "Options group and partition"),
        (["--topic", "a", "--from-beginning", "--command-property", "auto.offset.reset=latest"], "contradict"),
        (["--topic", "a", "--formatter", "mine"], "there is no formatter mine"),
        (["--topic", "a", "--property", "print.keys=true"], "there is no formatter property print.keys"),
        (["--topic", "a", "--max-messages", "0"], "'0' is not a number above 0"),
    ],
)
def test_wrong_use(tool, arguments, said):
    done = tool("console-consumer", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_pattern_that_is_none(consume):
    done = consume("--include", "[")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "'[' is not a regular expression" in done.err


def test_a_partition_that_is_not_there(consume):
    done = consume(*of_orders("--partition", 7))
    assert done == (1, "", "headrace console-consumer: orders has no partition 7; it has 2\n")


def test_a_broker_that_is_not_there_is_one_line(capsys):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        assert main(["--bootstrap-server", address, "--topic", "t", "--timeout", "500"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("headrace console-consumer: ")
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_ctrl_c_ends_it_with_the_count(broker, topic):
    command = [
        sys.executable, "-c", "from headrace.tools.main import main; main()", "console-consumer",
        *of_orders("--partition", "0", "--offset", "0", "--bootstrap-server", broker.bootstrap_servers),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "Processed a total of 2 messages\n")


def test_a_reader_that_has_enough(broker, topic):
    command = f"""{sys.executable} -c 'from headrace.tools.main import main; main()' console-consumer --topic orders \\
        --from-beginning --bootstrap-server {broker.bootstrap_servers} --timeout-ms 2000 | head -n 1"""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
