"""console-producer: lines become records, and what goes wrong is said in a line."""

import io
import socket
import subprocess
import sys
import time

import pytest

from headrace import Consumer, TopicPartition
from headrace.client.admin.types import NewTopic
from headrace.tools.console_producer.command import main


@pytest.fixture
def send(tool, monkeypatch):
    """Runs the command with some bytes as its input."""

    def run(data, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return tool("console-producer", *arguments)

    return run


@pytest.fixture
def read(broker):
    """The first records of a topic with one partition, as (key, value, headers)."""

    def records_of(topic, count):
        with Consumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            records = []
            while len(records) < count:
                records += consumer.poll(timeout_ms=5000)
            return [(record.key, record.value, record.headers) for record in records]

    return records_of


def test_each_line_is_a_record(send, read):
    assert send(b"one\r\n\ntwo\xff", "--topic", "plain") == (0, "", "")
    assert read("plain", 3) == [(None, b"one", ()), (None, b"", ()), (None, b"two\xff", ())]


def test_keys_headers_and_nulls(send, read):
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=|")
    arguments = [word for one in properties for word in ("--reader-property", one)]
    assert send(b"h:1,i:NULL\tk|v\n\tNULL|NULL\n", "--topic", "parsed", *arguments).code == 0
    assert read("parsed", 2) == [(b"k", b"v", (("h", b"1"), ("i", None))), (None, None, ())]


def test_properties_from_a_file_and_over_them_those_of_the_command_line(send, read, tmp_path):
    (tmp_path / "reader").write_text("parse.key=true\nkey.separator=;\n")
    (tmp_path / "producer").write_text("client.id=me\ncompression.type=gzip\ngroup.id=another\nkey.serializer=a.b.C\n")
    files = ("--reader-config", tmp_path / "reader", "--producer.config", tmp_path / "producer")
    assert send(b"k:v\n", "--topic", "files", *files, "--property", "key.separator=:") == (0, "", "")
    assert read("files", 1) == [(b"k", b"v", ())]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sync"],
        ["--request-required-acks", "1"],
        ["--request-required-acks", "0"],
        ["--compression-codec"],
        ["--compression-codec", "lz4"],
        ["--timeout", "5", "--batch-size", "100", "--max-memory-bytes", "100000", "--message-send-max-retries", "1"],
        ["--producer-property", "linger.ms=1", "--command-property", "acks=all", "--request-timeout-ms", "2000"],
    ],
    ids=" ".join,
)
def test_flags_of_kafkas_tool(send, read, arguments):
    topic = f"flags-{abs(hash(tuple(arguments)))}"
    assert send(b"".join(b"line %d\n" % number for number in range(50)), "--topic", topic, *arguments) == (0, "", "")
    assert [value for _, value, _ in read(topic, 50)] == [b"line %d" % number for number in range(50)]


def test_a_bad_line_ends_it_and_what_came_before_is_sent(send, read):
    done = send(b"k\tv\nbad\nk\tw\n", "--topic", "bad", "--property", "parse.key=true")
    assert done == (1, "", "headrace console-producer: No key separator found on line number 2: 'bad'\n")
    assert read("bad", 1) == [(b"k", b"v", ())]


def test_a_record_that_is_too_large(send):
    done = send(b"x" * 5000 + b"\n", "--topic", "large", "--producer-property", "max.request.size=1000")
    assert done.code == 1
    assert done.err.startswith("headrace console-producer: a record of 5")
    assert done.err.count("\n") == 1


def test_records_that_the_broker_refuses_are_told_and_the_others_sent(send, read, admin):
    admin.create_topics([NewTopic("refusing", 1, configs={"max.message.bytes": 2000})])
    lines = b"small\n" + b"x" * 3000 + b"\nsmall too\n"
    done = send(lines, "--topic", "refusing", "--batch-size", "0")
    assert done.code == 1
    assert done.err.startswith("headrace console-producer: a record was not delivered: ")
    assert done.err.count("\n") == 1
    assert [value for _, value, _ in read("refusing", 2)] == [b"small", b"small too"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "t", "--reader-property", "parse.keys=true"], "there is no reader property parse.keys"),
        (["--topic", "t", "--command-property", "lingerms=1"], "has no option lingerms; did you mean linger.ms"),
        (["--topic", "t", "--reader-property", "parse.key"], "'parse.key' is not NAME=VALUE"),
        (["--topic", "t", "--compression-codec", "zip"], "invalid choice"),
        (["--topic", "t", "--reader-config", "/is/not/there"], "/is/not/there"),
        ([], "--topic"),
    ],
)
def test_wrong_use(send, arguments, said):
    done = send(b"", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_broker_that_is_not_there_is_one_line_in_time(capsys, monkeypatch):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        began = time.monotonic()
        assert main(["--bootstrap-server", address, "--topic", "t", "--timeout", "1000"]) == 1
    assert time.monotonic() - began < 5
    captured = capsys.readouterr()
    assert captured.err.startswith("headrace console-producer: ")
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_by_the_command(broker, read):
    done = subprocess.run(
        [sys.executable, "-c", "from headrace.tools.main import main; main()", "console-producer", "--topic", "piped",
         "--bootstrap-server", broker.bootstrap_servers],
        input=b"a\nb\n", capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [value for _, value, _ in read("piped", 2)] == [b"a", b"b"]
