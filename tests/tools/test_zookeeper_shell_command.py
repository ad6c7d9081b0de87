"""``headrace zookeeper-shell``: its commands, its three ways to be given them, and how it fails."""

import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from headrace.coordination.tree.caller import digest_of
from headrace.testing.broker_process import BrokerProcess
from headrace.tools.shared.commands import Output
from headrace.tools.zookeeper_shell import command as zookeeper_shell
from headrace.tools.zookeeper_shell.command import show_event
from headrace.tools.zookeeper_shell.znode_commands import COMMANDS, split_line

HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
PATIENCE_S = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("tree"), command="zookeeper") as process:
        yield process


@pytest.fixture
def shell(server, capsys):
    """Runs a command; (exit code, standard output, standard error). Each test begins with an empty tree."""

    def shell(*words):
        code = zookeeper_shell.main([server.address, *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    for name in json.loads(shell("--json", "ls", "/")[1]):
        shell("rmr", f"/{name}")
    return shell


@pytest.fixture
def lines(server, capsys, monkeypatch):
    """Gives it lines on standard input."""

    def lines(*texts):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{text}\n" for text in texts)))
        code = zookeeper_shell.main([server.address])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err.splitlines()

    return lines


STAT = """\
cZxid = 0x[0-9a-f]+
ctime = \\w{3} \\w{3} \\d\\d \\d\\d:\\d\\d:\\d\\d \\S+ \\d{4}
mZxid = 0x[0-9a-f]+
mtime = \\w{3} \\w{3} \\d\\d \\d\\d:\\d\\d:\\d\\d \\S+ \\d{4}
pZxid = 0x[0-9a-f]+
cversion = 0
dataVersion = %d
aclVersion = 0
ephemeralOwner = 0x0
dataLength = %d
numChildren = 0
"""


# Commands


def test_create_get_set_stat(shell):
    assert shell("create", "/a", "hello") == (0, "Created /a\n", "")
    assert shell("get", "/a") == (0, "hello\n", "")
    code, out, _ = shell("get", "-s", "/a")
    assert (code, bool(re.fullmatch("hello\n" + STAT % (0, 5), out))) == (0, True)
    assert shell("set", "/a", "bye") == (0, "", "")
    code, out, _ = shell("set", "-s", "-v", "1", "/a", "two words")
    assert (code, bool(re.fullmatch(STAT % (2, 9), out))) == (0, True)
    code, out, _ = shell("stat", "/a")
    assert (code, bool(re.fullmatch(STAT % (2, 9), out))) == (0, True)
    assert shell("get", "-b", "/a") == (0, "dHdvIHdvcmRz\n", "")
    assert shell("set", "-b", "/a", "/w==") == (0, "", "")
    assert shell("--json", "get", "/a") == (0, '{"data_base64": "/w=="}\n', "")
    assert shell("set", "/a", "-5") == (0, "", "")
    assert shell("set", "/a", "--", "-s") == (0, "", "")
    assert shell("get", "/a") == (0, "-s\n", "")


def test_create_in_order(shell):
    shell("create", "/a")
    assert shell("create", "-s", "/a/n-", "x")[1] == "Created /a/n-0000000000\n"
    assert shell("create", "-s", "-e", "/a/n-")[1] == "Created /a/n-0000000001\n"
    assert shell("ls", "/a") == (0, "[n-0000000000]\n", "")  # the other went with its session


def test_ls(shell):
    assert shell("ls", "/") == (0, "[]\n", "")
    for path in ("/b", "/a", "/a/x", "/a/x/y", "/a-b", "/a/w"):
        shell("create", path)
    assert shell("ls", "/") == (0, "[a, a-b, b]\n", "")
    assert shell("ls", "-R", "/")[1].split() == ["/", "/a", "/a/w", "/a/x", "/a/x/y", "/a-b", "/b"]
    assert shell("ls", "-R", "/a")[1].split() == ["/a", "/a/w", "/a/x", "/a/x/y"]
    assert shell("ls", "-s", "/")[1].startswith("[a, a-b, b]\ncZxid = 0x0\n")


def test_delete(shell):
    for path in ("/a", "/a/b", "/a/b/c", "/z"):
        shell("create", path)
    assert shell("delete", "/z") == (0, "", "")
    assert shell("delete", "/a") == (1, "", "Node not empty: /a\n")
    assert shell("deleteall", "/a/b") == (0, "", "")
    assert shell("rmr", "/a") == (0, "", "")
    assert shell("ls", "/") == (0, "[]\n", "")
    assert shell("rmr", "/")[0] == 2


def test_a_tree_of_a_thousand_is_listed_and_deleted_in_no_time(server, shell):
    client = KazooClient(server.address)
    client.start(PATIENCE_S)
    client.create("/many")
    for answer in [client.create_async(f"/many/{number:04d}") for number in range(1_200)]:
        answer.get(timeout=PATIENCE_S)
    client.stop()
    client.close()
    started = time.monotonic()
    code, out, _ = shell("ls", "-R", "/many")
    assert (code, len(out.splitlines())) == (0, 1_201)
    assert shell("--json", "rmr", "/many")[1] == '{"deleted": "/many", "count": 1201}\n'
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("get", "/nope"), "Node does not exist: /nope"),
        (("stat", "/nope"), "Node does not exist: /nope"),
        (("ls", "/nope"), "Node does not exist: /nope"),
        (("rmr", "/nope"), "Node does not exist: /nope"),
        (("create", "/nope/a"), "Node does not exist: /nope/a"),
        (("create", "/a"), "Node already exists: /a"),
        (("set", "-v", "9", "/a", "x"), "version No is not valid : /a"),
        (("delete", "-v", "9", "/a"), "version No is not valid : /a"),
    ],
)
def test_what_a_zookeeper_refuses_is_said_in_its_words(shell, words, said):
    shell("create", "/a")
    assert shell(*words) == (1, "", f"{said}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("ls",),
        ("ls", "-x", "/"),
        ("ls", "/", "/"),
        ("set", "/a"),
        ("set", "-v"),
        ("set", "-v", "one", "/a", "x"),
        ("set", "-b", "/a", "!"),
        ("create", "/a", "x", "digest:me"),
    ],
)
def test_wrong_use_is_one_line_and_2(shell, words):
    code, out, err = shell(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("headrace zookeeper-shell: ")


def test_access_control_lists(shell, lines):
    assert shell("getAcl", "/") == (0, "'world,'anyone\n: cdrwa\n", "")
    code, said, refused = lines(
        "addauth digest alice:wonderland",
        "create /secret x auth::cdrwa",
        "create /shared x auth::cdrwa,world:anyone:r",
        "create /shared/below",
        "getAcl -s /secret",
        "setAcl -v 7 /secret world:anyone:r",
        "setAcl -s -v 0 /secret auth::rwa",
    )
    assert (code, refused) == (1, ["version No is not valid : /secret"])
    assert said[3:5] == [f"'digest,'{digest_of('alice:wonderland')}", ": cdrwa"]
    assert "aclVersion = 1" in said
    assert shell("get", "/secret") == (1, "", "Insufficient permission : /secret\n")
    assert shell("create", "/shared/b") == (1, "", "Insufficient permission : /shared/b\n")
    assert shell("getAcl", "/shared") == (0, "'digest,'alice:x\n: cdrwa\n'world,'anyone\n: r\n", "")
    code, said, _ = lines("addauth digest alice:wonderland", "setAcl -R /shared world:anyone:cdrwa", "getAcl /shared")
    assert (code, said) == (0, ["'world,'anyone", ": cdrwa"])
    lines("addauth digest alice:wonderland", "setAcl /secret world:anyone:cdrwa")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("world:anyone", "world:anyone does not have the form scheme:id:perm"),
        ("world:anyone:rx", "Unknown perm type: x in world:anyone:rx; the permissions are cdrwa"),
        ("world:anyone:", "Unknown perm type: none in world:anyone:; the permissions are cdrwa"),
        ("world:anyone:r,", " does not have the form scheme:id:perm"),
    ],
)
def test_a_malformed_list_is_not_sent(shell, text, said):
    for words in (("create", "/x", "data", text), ("setAcl", "/", text)):
        code, _, complaint = shell(*words)
        assert code == 2
        assert f"{said} (see" in complaint
    assert shell("setAcl", "/", "world:nobody:r") == (1, "", "Acl is not valid : /\n")


def test_lists_for_machines(shell):
    assert json.loads(shell("--json", "getAcl", "-s", "/")[1])["acl"] == [
        {"scheme": "world", "id": "anyone", "perms": "cdrwa"}
    ]


def test_an_unknown_scheme_is_refused(lines):
    code, _, complaints = lines("addauth kerberos me")
    assert (code, complaints) == (1, ["Authentication failed: kerberos"])


def test_files_that_cannot_be_used(shell, tmp_path):
    (tmp_path / "login").write_text("nobody")
    (tmp_path / "tls").write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.truststore.location=none.pem\n")
    for option, name in (("--login-file", "login"), ("--login-file", "none"), ("-zk-tls-config-file", "tls")):
        code, _, complaint = shell(option, str(tmp_path / name), "ls", "/")
        assert code == 2
        assert len(complaint.splitlines()) <= 2


def test_json(shell):
    assert json.loads(shell("--json", "create", "/a", "x")[1]) == {"path": "/a"}
    assert json.loads(shell("--json", "ls", "/")[1]) == ["a"]
    assert json.loads(shell("--json", "get", "/a")[1]) == {"data": "x"}
    stat = json.loads(shell("--json", "stat", "/a")[1])
    assert (stat["version"], stat["data_length"]) == (0, 1)
    assert json.loads(shell("--json", "get", "-s", "/a")[1]) == {"data": "x", "stat": stat}
    assert json.loads(shell("--json", "ls", "-s", "/a")[1]) == {"children": [], "stat": stat}
    assert json.loads(shell("--json", "ls", "-R", "/")[1]) == ["/", "/a"]
    assert json.loads(shell("--json", "set", "/a", "yz")[1])["stat"]["version"] == 1
    assert json.loads(shell("--json", "delete", "/a")[1]) == {"deleted": "/a"}
    assert json.loads(shell("--json", "sync", "/")[1]) == {"synced": "/"}


def test_a_chroot(server, shell, capsys):
    shell("create", "/kafka")
    shell("create", "/kafka/brokers")
    assert zookeeper_shell.main([f"{server.address}/kafka", "ls", "/"]) == 0
    assert capsys.readouterr().out == "[brokers]\n"
    assert zookeeper_shell.main([f"{server.address}/nope", "ls", "/"]) == 1
    assert capsys.readouterr().err == "Node does not exist: /\n"


# Lines


def test_words_of_a_line():
    assert split_line("  ls   -s /a ") == ["ls", "-s", "/a"]
    assert split_line("""set /a "two words" """) == ["set", "/a", "two words"]
    assert split_line("set /a 'it is \"so\"'") == ["set", "/a", 'it is "so"']
    assert split_line('set /a {"x":1}') == ["set", "/a", '{"x":1}']
    assert split_line('set /a ""') == ["set", "/a", ""]
    assert split_line(" ") == []


def test_lines_that_fail_do_not_stop_the_others(shell, lines):
    code, out, err = lines("create /a 1", "", "get /nope", "nonsense", "ls", "get /a", "quit", "get /a")
    assert (code, out) == (1, ["Created /a", "1"])
    assert err[0] == "Node does not exist: /nope"
    assert len(err) == 3
    assert lines("ls /", "create -e /e", "get /e")[:2] == (0, ["[a]", "Created /e", "null"])
    assert lines("help")[1] == [f"\t{name} {usage}".rstrip() for name, usage in _usages()]


def _usages():
    return [*sorted((name, command.usage) for name, command in COMMANDS.items()), ("quit", "")]


def test_a_watch_is_told(shell, lines):
    shell("create", "/a")
    _, out, _ = lines("get -w /a", "set /a x", "stat /a")
    event = "WatchedEvent state:SyncConnected type:NodeDataChanged path:/a"
    assert event in out or len(out) == 12  # it comes from another thread, perhaps after the end


class Event(NamedTuple):
    type: str
    path: str


def test_a_watch_is_told_to_machines_too(capsys):
    for as_json in (True, False):
        show_event(Output("zookeeper-shell", sys.stdout, sys.stderr, as_json=as_json), Event("CHILD", "/a"))
    told, *text = capsys.readouterr().out.splitlines()
    event = {"state": "SyncConnected", "type": "NodeChildrenChanged", "path": "/a"}
    assert json.loads(told) == {"watchedEvent": event}
    assert text == ["", "WATCHER::", "", "WatchedEvent state:SyncConnected type:NodeChildrenChanged path:/a"]


# A terminal


class Terminal:
    def __init__(self, *arguments):
        self._leader, follower = pty.openpty()
        environment = os.environ | {"TERM": "dumb"}
        self._process = subprocess.Popen(
            [*HEADRACE, "zookeeper-shell", *arguments],
            stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(follower)
        self.seen = ""

    def until(self, text, *, interrupting=False):
        """What comes before a text. On the way Ctrl-C, once per second: readline misses one that comes just before it
        waits, and one too many would take what is typed next."""
        next_interrupt = time.monotonic()
        deadline = next_interrupt + PATIENCE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} does not come after {self.seen!r}"
            if interrupting and time.monotonic() >= next_interrupt:
                self._process.send_signal(signal.SIGINT)
                next_interrupt += 1.0
            if select.select([self._leader], [], [], 0.2)[0]:
                self.seen += os.read(self._leader, 4096).decode()
        before, _, self.seen = self.seen.partition(text)
        return before

    def types(self, text):
        os.write(self._leader, text.encode())

    def ends(self):
        code = self._process.wait(PATIENCE_S)
        os.close(self._leader)
        return code

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
            self.ends()


@pytest.fixture
def terminal(server):
    terminal = Terminal(server.address)
    yield terminal
    terminal.kill()


def test_on_a_terminal(server, shell, terminal):
    terminal.until(f"[zk: {server.address}(CONNECTED) 0] ")
    terminal.types("create /abc 1\n")
    assert "Created /abc" in terminal.until("(CONNECTED) 1] ")
    terminal.types("get /a\t\n")
    assert "1" in terminal.until("(CONNECTED) 2] ")
    terminal.types("get /nope\n")
    assert "Node does not exist: /nope" in terminal.until("(CONNECTED) 3] ")
    terminal.types("half a li")
    terminal.until("half a li")
    terminal.until("(CONNECTED) 3] ", interrupting=True)
    terminal.types("quit\n")
    assert terminal.ends() == 0
    assert shell("get", "/abc") == (0, "1\n", "")


def test_the_end_of_input_ends_it(terminal):
    terminal.until("(CONNECTED) 0] ")
    terminal.types("\4")
    assert terminal.ends() == 0


# What is not there


def test_no_server_is_one_line_in_time(capsys):
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        started = time.monotonic()
        assert zookeeper_shell.main([address, "--timeout", "300", "ls", "/"]) == 1
        assert time.monotonic() - started < 5
    said = capsys.readouterr().err
    assert (
        said
        == f"headrace zookeeper-shell: cannot connect to a ZooKeeper at {address} within 300 ms: Connection refused\n"
    )


def test_a_server_that_does_not_answer_is_one_line_in_time(capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert zookeeper_shell.main(["--timeout=300", address, "ls", "/"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_wrong_addresses(capsys):
    assert zookeeper_shell.main([]) == 2
    assert zookeeper_shell.main(["host:nonsense", "ls", "/"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_ctrl_c_while_it_connects(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*HEADRACE, "zookeeper-shell", address, "ls", "/"], stderr=subprocess.PIPE, text=True
        )
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (130, "")
