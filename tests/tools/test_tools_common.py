"""The parts that all commands share: exit codes, one line for a failure, output in three forms."""

import io
import json
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from headrace import __version__
from headrace.client.admin.types import NewTopic
from headrace.client.config import AdminConfig
from headrace.client.errors import BrokerUnreachable
from headrace.tools import main
from headrace.tools.shared import commands as common
from headrace.tools.shared.commands import (
    CommandError,
    Output,
    Table,
    UsageError,
    chosen_action,
    client_options,
    columns,
    int16,
    int32,
    int64,
    new_parser,
    run,
)
from headrace.tools.shared.parser_facts import parser_of
from headrace.tools.zookeeper_shell import command as zookeeper_shell


def parser():
    made = new_parser("try", "Tries.", "headrace try --once")
    made.add_argument("--once", action="store_true", help="one time")
    made.add_argument("--delete-all", action="store_true", help="everything")
    return made


def fail_with(error):
    def work(options, out):
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CommandError("it is\nbroken"), 1, "headrace try: it is broken\n"),
        (BrokerUnreachable("nobody there"), 1, "headrace try: nobody there\n"),
        (UsageError("not so"), 2, "headrace try: not so (see headrace try --help)\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(capsys, error, code, line):
    assert run(parser(), [], fail_with(error)) == code
    assert capsys.readouterr().err == line


def test_a_reader_that_has_enough_is_no_failure(capsys):
    assert run(parser(), [], fail_with(BrokenPipeError())) == 0
    assert capsys.readouterr().err == ""


def test_done_is_0_and_a_command_may_say_otherwise(capsys):
    assert run(parser(), [], lambda options, out: None) == 0
    assert run(parser(), [], lambda options, out: 1) == 1


#: The tools of chapter 31 of the book on Kafka that Headrace follows, by the names of Kafka's scripts.
NAMES_OF_SCRIPTS = (
    "kafka-console-producer",
    "kafka-console-consumer",
    "kafka-producer-perf-test",
    "kafka-consumer-perf-test",
    "kafka-consumer-groups",
    "kafka-delegation-tokens",
    "kafka-delete-records",
    "kafka-dump-log",
    "kafka-log-dirs",
    "kafka-mirror-maker",
    "kafka-preferred-replica-election",
    "kafka-reassign-partitions",
    "kafka-topics",
    "kafka-topics.sh",
)


@pytest.mark.parametrize("name", NAMES_OF_SCRIPTS)
def test_commands_answer_to_the_names_of_kafkas_scripts(monkeypatch, capsys, name):
    monkeypatch.setattr(main.sys, "argv", ["headrace", name, "--version"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("headrace ")


@pytest.mark.parametrize("command", main.COMMANDS)
def test_every_command_has_a_version(monkeypatch, capsys, command):
    monkeypatch.setattr(main.sys, "argv", ["headrace", command, "--version"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert (end.value.code, capsys.readouterr().out) == (0, f"headrace {__version__}\n")


def test_the_version_of_a_shell_may_stand_behind_its_server(capsys):
    assert zookeeper_shell.main(["127.0.0.1:1", "--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


def test_what_argparse_refuses_is_2_and_help_is_0(capsys):
    assert run(parser(), ["--twice"], fail_with(AssertionError())) == 2
    assert run(parser(), ["--help"], fail_with(AssertionError())) == 0
    captured = capsys.readouterr()
    assert "unrecognized arguments: --twice" in captured.err
    assert "examples:\n  headrace try --once\n" in captured.out


@pytest.mark.parametrize(
    "line",
    [
        f"topics --create --topic t --partitions {2**31}",
        f"topics --alter --topic t --partitions {2**31}",
        f"topics --create --topic t --replica-assignment {2**31}",
        f"get-offsets --topic t --time {2**63}",
        f"get-offsets --topic t --partitions {2**31}",
        f"console-consumer --topic t --partition 0 --offset {2**63}",
        f"console-consumer --topic t --partition {2**31}",
        f"leader-election --election-type preferred --topic t --partition {2**31}",
        f"transactions list --duration-filter {2**63}",
        f"transactions describe-producers --topic t --partition 0 --broker-id {2**31}",
        f"transactions abort --topic t --partition 0 --start-offset {2**63}",
        f"transactions abort --topic t --partition 0 --producer-id {2**63} --producer-epoch 0 --coordinator-epoch 0",
        f"transactions abort --topic t --partition 0 --producer-id 0 --producer-epoch {2**15} --coordinator-epoch 0",
        f"transactions abort --topic t --partition 0 --producer-id 0 --producer-epoch 0 --coordinator-epoch {2**31}",
        f"consumer-groups --delete-offsets --group g --topic t:{2**31}",
        f"consumer-groups --reset-offsets --group g --topic t --to-offset {2**63} --dry-run",
        f"consumer-groups --reset-offsets --group g --topic t --shift-by {-(2**63) - 1} --dry-run",
    ],
)
def test_a_number_that_no_request_has_room_for_is_wrong_use(tool, admin, line):
    admin.create_topics([NewTopic("t", 1)])
    command, *arguments = line.split()
    done = tool(command, *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1].startswith(f"headrace {command}: ")


def test_numbers_have_room_up_to_their_bits():
    assert (int16("-32768"), int32("2147483647"), int64("-9223372036854775808")) == (-(2**15), 2**31 - 1, -(2**63))
    for kind, text in ((int16, "32768"), (int32, "-2147483649"), (int64, "9223372036854775808")):
        with pytest.raises(ArgumentTypeError, match=f"{text} does not fit into"):
            kind(text)


def test_exactly_one_action_is_wanted():
    names = ["once", "delete-all"]
    assert chosen_action(parser().parse_args(["--delete-all"]), names) == "delete-all"
    for arguments in ([], ["--once", "--delete-all"]):
        with pytest.raises(UsageError, match="exactly one action: --once, --delete-all"):
            chosen_action(parser().parse_args(arguments), names)


def test_a_config_file_may_have_names_that_this_client_does_not_know(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nlinger.ms=5\nbootstrap.servers=elsewhere:1\n")
    options = parser().parse_args(["--command-config", str(file), "--timeout", "700"])
    assert client_options(options, AdminConfig) == {
        "client.id": "me",
        "bootstrap.servers": "elsewhere:1",
        "default.api.timeout.ms": 700,
        "request.timeout.ms": 700,
    }


def test_brokers_of_the_command_line_come_before_those_of_a_file(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=elsewhere:1\n")
    for servers in ("here:2", "127.0.0.1:9092"):
        options = parser().parse_args(["--command-config", str(file), "--bootstrap-server", servers])
        assert client_options(options, AdminConfig)["bootstrap.servers"] == servers
    assert client_options(parser().parse_args([]), AdminConfig)["bootstrap.servers"] == "127.0.0.1:9092"


def test_an_older_name_of_the_brokers():
    older = new_parser("try", "Tries.", "headrace try", has_broker_list=True)
    options = older.parse_args(["--broker-list", "here:1"])
    assert client_options(options, AdminConfig)["bootstrap.servers"] == "here:1"
    options = older.parse_args(["--bootstrap-server", "there:2", "--broker-list", "here:1"])
    assert client_options(options, AdminConfig)["bootstrap.servers"] == "there:2"


@pytest.mark.parametrize(
    "line",
    ["get-offsets", "console-producer --topic t", "consumer-perf-test --topic t --messages 1"],
)
def test_commands_that_had_the_older_name(line):
    command, *arguments = line.split()
    assert parser_of(command).parse_args([*arguments, "--broker-list", "a:1"]).old_bootstrap_server == "a:1"


@pytest.mark.parametrize("text", ["security.protocol=TELNET\n", None])
def test_a_config_file_that_cannot_be_used_is_wrong_use(tmp_path, text):
    file = tmp_path / "client.properties"
    if text:
        file.write_text(text)
    with pytest.raises(UsageError, match=r"security.protocol|Cannot read"):
        client_options(parser().parse_args(["--command-config", str(file)]), AdminConfig)


def test_a_broker_that_is_not_there_is_one_line_within_the_timeout(capsys):
    with socket.socket() as listener:  # bound and not listening: refused
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def work(options, out):
            with common.connect(options) as admin:
                admin.describe_cluster()

        began = time.monotonic()
        assert run(parser(), ["--bootstrap-server", address, "--timeout", "300"], work) == 1
        assert time.monotonic() - began < 10
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert address in captured.err


def test_ctrl_c_is_quiet():
    with socket.create_server(("127.0.0.1", 0)) as listener:  # takes the connection and says nothing
        listener.settimeout(30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-c", "from headrace.tools.main import main; main()", "topics", "--list"]
        process = subprocess.Popen(
            [*command, "--bootstrap-server", address, "--timeout", "60000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        with process, listener.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30) == (b"", b"")
            assert process.returncode == 130


def test_ctrl_c_is_quiet_while_a_command_is_loaded(monkeypatch):
    def load(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "import_module", load)
    monkeypatch.setattr(main.sys, "argv", ["headrace", "topics"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 130


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, *, as_json=False):
    out = Output("try", stream, io.StringIO(), as_json=as_json)
    out.show([{"a": 1}], ["A", "1"], Table(["A", "NAME"], [[1, "[x]"]]))
    return stream.getvalue()


def test_a_result_has_three_forms():
    assert shown(io.StringIO()) == "A\n1\n"
    assert json.loads(shown(Terminal(), as_json=True)) == [{"a": 1}]
    drawn = shown(Terminal())
    assert "NAME" in drawn
    assert "[x]" in drawn
    assert "─" in drawn


def test_columns_are_as_wide_as_their_widest_cell():
    assert list(columns(["A", "LONG"], [["word", None]])) == ["A    LONG", "word -   "]


@pytest.mark.parametrize("content", [b"{", b"\xff", None])
def test_a_file_that_is_no_json_is_wrong_use(tmp_path, content):
    path = Path(tmp_path, "file.json")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"file\.json"):
        common.read_json(path)


def test_progress_is_silent_where_nobody_looks(capsys):
    with common.progress("waiting", 3) as move_to:
        move_to(2)
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(common.sys, "stderr", stream)
    with common.progress("waiting", 3, unit="partitions") as move_to:
        move_to(2)
    assert "waiting" in stream.getvalue()
