"""producer-perf-test: sends what was asked for, and says so in Kafka's words."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from headrace import Consumer, TopicPartition
from headrace.client.admin.types import NewTopic
from headrace.tools.producer_perf_test import main

NUMBER = r"[\d.]+"
TOTAL = (
    rf"{{count}} {{what}} sent, \d+\.\d{{{{6}}}} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, "
    rf"{NUMBER} ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


@pytest.fixture
def perf(tool):
    def run(topic, count, *arguments):
        return tool("producer-perf-test", "--topic", topic, "--num-records", count, *arguments)

    return run


@pytest.fixture
def values(broker):
    """All values of a topic, by partition."""

    def read(topic, *, isolation_level="read_uncommitted"):
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False, isolation_level=isolation_level
        ) as consumer:
            partitions = [TopicPartition(topic, one.partition) for one in consumer.partitions_for(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(*partitions)
            found = {partition.partition: [] for partition in partitions}
            while any(consumer.position(one) < ends[one] for one in partitions):
                for record in consumer.poll(timeout_ms=1000):
                    found[record.partition].append(record.value)
            return found

    return read


def test_random_records(perf, values):
    done = perf("random", 5000, "--record-size", 100, "--throughput", -1)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(TOTAL.format(count=5000, what="records"), done.lines[-1])
    (sent,) = values("random").values()
    assert len(sent) == 5000
    assert {len(value) for value in sent} == {100}


def test_all_partitions_get_some(perf, values, admin):
    admin.create_topics([NewTopic("spread", 3)])
    assert perf("spread", 20_000, "--record-size", 100).code == 0
    sent = values("spread")
    assert sum(map(len, sent.values())) == 20_000
    assert all(sent.values())


def test_numbers_stay_in_order(perf, values):
    assert perf("numbers", 3000, "--payload-monotonic", "--producer-props", "batch.size=500", "linger.ms=1").code == 0
    assert values("numbers")[0] == [b"%d" % number for number in range(3000)]


@pytest.mark.parametrize(("given", "between"), [("|", "|"), ("é", "é"), ("→\\t", "→\t")])
def test_the_lines_of_a_file(perf, values, tmp_path, given, between):
    path = tmp_path / "lines"
    path.write_text(between.join(["one", "two", "three"]), encoding="utf-8")
    topic = f"lines-{ord(given[0])}"
    assert perf(topic, 200, "--payload-file", path, "--payload-delimiter", given).code == 0
    assert set(values(topic)[0]) == {b"one", b"two", b"three"}


def test_a_delimiter_that_is_none(perf, tmp_path):
    (tmp_path / "lines").touch()
    done = perf("lines", 1, "--payload-file", tmp_path / "lines", "--payload-delimiter", "\\x")
    assert (done.code, done.out) == (2, "")
    assert "has a backslash without a character after it" in done.err


def test_transactions(perf, values):
    assert perf("transacted", 2000, "--record-size", 10, "--transaction-duration-ms", 1).code == 0
    assert len(values("transacted", isolation_level="read_committed")[0]) == 2000
    arguments = ("--record-size", 10, "--transactional-id", "perf")
    assert perf("transacted", 2000, *arguments).code == 0
    assert len(values("transacted", isolation_level="read_committed")[0]) == 4000


def test_the_transactional_id_of_a_file(perf, admin, tmp_path):
    file = tmp_path / "producer.properties"
    file.write_text("transactional.id=of-file\n")
    arguments = ("--record-size", 10, "--producer.config", file, "--transaction-duration-ms", 100)
    assert perf("filed", 10, *arguments).code == 0
    assert "of-file" in [each.transactional_id for each in admin.list_transactions()]


def test_throughput_is_kept_to(perf):
    done = perf("throttled", 100, "--record-size", 10, "--throughput", 200, "--json")
    assert done.code == 0
    assert done.value["records"] == 100
    assert 100 < done.value["records.sec"] <= 205


def test_warmup_is_told_of_and_left_out_of_a_second_line(perf):
    done = perf("warm", 3000, "--record-size", 10, "--warmup-records", 1000)
    assert done.lines[0] == (
        "Warmup first 1000 records. Steady state results will print after the complete test summary."
    )
    assert len(done.lines) == 3
    assert re.fullmatch(TOTAL.format(count=3000, what="records"), done.lines[-2])
    assert re.fullmatch(TOTAL.format(count=2000, what="steady state records"), done.lines[-1])


def test_intervals_are_reported(perf):
    arguments = ("--throughput", 200, "--reporting-interval", 100, "--warmup-records", 10)
    done = perf("often", 100, "--record-size", 10, *arguments)
    assert done.lines.count("In steady state.") == 1
    pattern = rf"\d+ records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max"
    windows = [line for line in done.lines if re.match(pattern + " latency\\.$", line)]
    assert len(windows) >= 2


def test_metrics(perf):
    done = perf("metrics", 100, "--record-size", 10, "--print-metrics")
    assert re.search(r"producer-metrics:record-send-total:\{client-id=perf-producer-client\} +: 100\.000", done.out)
    shown = perf("metrics", 100, "--record-size", 10, "--print-metrics", "--json").value
    assert shown["metrics"]["record-send-total"] == 100


def test_a_batch_that_the_broker_finds_too_large_is_split(perf, values, admin):
    admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": 1000})])
    done = perf("small", 500, "--record-size", 100, "--json")
    assert (done.code, done.value["records"]) == (0, 500)
    assert len(values("small")[0]) == 500


def test_records_that_are_refused_are_a_failure(perf, admin):
    admin.create_topics([NewTopic("tiny", 1, configs={"max.message.bytes": 50})])
    done = perf("tiny", 10, "--record-size", 100)
    assert done.code == 1
    assert "10 records were not delivered: " in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of the arguments --record-size --payload-file --payload-monotonic is required"),
        (["--record-size", "1", "--payload-monotonic"], "not allowed with"),
        (["--record-size", "-1"], "is not a number of 0 or more"),
        (["--record-size", "1", "--warmup-records", "10"], "must be strictly fewer than the number of records"),
        (["--record-size", "1", "--throughput", "0"], "--throughput 0 would never end"),
        (["--payload-file", "/is/not/there"], "cannot read /is/not/there"),
        (["--record-size", "1", "--producer-props", "acks=7"], "acks = '7'"),
        (["--record-size", "1", "--command-property", "acks"], "'acks' is not NAME=VALUE"),
    ],
)
def test_wrong_use(perf, arguments, said):
    done = perf("unused", 10, *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_broker_that_is_not_there_is_one_line(capsys):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        arguments = ["--bootstrap-server", f"127.0.0.1:{reserved.getsockname()[1]}", "--timeout", "500"]
        assert main([*arguments, "--topic", "t", "--num-records", "1", "--record-size", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("headrace producer-perf-test: ")
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_the_brokers_may_be_told_as_a_property_as_scripts_for_kafka_do(broker, capsys):
    where = ["--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "acks=1"]
    assert main([*where, "--topic", "by-property", "--num-records", "3", "--record-size", "1"]) == 0
    assert capsys.readouterr().out.startswith("3 records sent")


# -- as a process


def command(broker, *arguments):
    main = "from headrace.tools.main import main; main()"
    test = ("producer-perf-test", "--bootstrap-server", broker.bootstrap_servers, "--record-size", "10")
    return [sys.executable, "-c", main, *test, *arguments]


def test_ctrl_c_says_how_it_went_until_then(broker):
    arguments = ("--topic", "stopped", "--num-records", "1000000", "--throughput", "200", "--reporting-interval", "100")
    with subprocess.Popen(
        command(broker, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert "records sent" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (130, "")
    assert "ms 99.9th." in out.splitlines()[-1]


def test_a_terminal_gets_a_bar_and_a_pipe_does_not(broker):
    terminal, standard_error = pty.openpty()
    arguments = ("--topic", "shown", "--num-records", "200", "--throughput", "200")
    with subprocess.Popen(command(broker, *arguments), stdout=subprocess.PIPE, stderr=standard_error) as run:
        os.close(standard_error)
        shown = read_terminal(terminal)
        assert run.stdout is not None
        out = run.stdout.read()
    assert run.returncode == 0
    assert b"200/200" in shown
    assert b"records/s" in shown
    assert out.startswith(b"200 records sent, ")
    assert b"\x1b" not in out


def read_terminal(terminal):
    """All that is written to it, until nobody has its other end any more."""
    shown = b""
    with suppress(OSError):
        while data := os.read(terminal, 1 << 16):
            shown += data
    os.close(terminal)
    return shown
