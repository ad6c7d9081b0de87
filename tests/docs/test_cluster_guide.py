"""Runs the commands of docs/cluster.md: starts three brokers, kills one, starts it again, moves partitions."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import read_properties_file
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.cluster_process import LocalClusterProcess
from headrace.testing.ports import free_port

GUIDE = Path(__file__).parents[2] / "docs" / "cluster.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATIENCE_S = 40.0
#: The guide's commands, at the brokers of the test.
_HEADRACE = f"""#!/bin/sh
command=$1
shift
case $command in
    zookeeper-shell) ;;
    *) set -- --bootstrap-server "$BROKERS" "$@" ;;
esac
exec {shlex.quote(sys.executable)} -c 'from headrace.tools.main import main; main()' "$command" "$@"
"""


def blocks(kind: str) -> list[str]:
    return [block[2] for block in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8")) if block[1] == kind]


class Shell:
    """Runs lines of the guide: what ends in & stays, the rest is waited for and must do well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, str] = {}
        self.cluster: LocalClusterProcess | None = None
        self.restarted: BrokerProcess | None = None
        self._meant: dict[str, str] = {}
        (folder / "bin").mkdir()
        (folder / "bin" / "headrace").write_text(_HEADRACE)
        (folder / "bin" / "headrace").chmod(0o755)

    def line(self, line: str) -> None:
        for written, meant in self._meant.items():
            line = line.replace(written, meant)
        if line.startswith("headrace start --brokers"):
            self._start_all(shlex.split(line)[2:-1])
        elif line.endswith(" &"):
            self._start_one(shlex.split(line)[2:-1])
        else:
            self.said[line] = self.run(line)

    def _start_all(self, options: list[str]) -> None:
        metrics = f"127.0.0.1:{free_ports(3)}"
        options = [metrics if option == "127.0.0.1:9404" else option for option in options[2:]]
        self.cluster = LocalClusterProcess(self.folder / "headrace-data", *options)
        first, second, _ = self.cluster.address.split(",")
        tree = self.cluster.log.split("the znode tree is at ")[1].split()[0]
        self._meant = {
            "127.0.0.1:9092": first, "127.0.0.1:9093": second, "127.0.0.1:9404": metrics, "127.0.0.1:36999": tree,
            "kill -9 4712": f"kill -9 {self.cluster.pid_of(2)}",
            "headrace-data/zookeeper/brokers.login": str(self.folder / "headrace-data/zookeeper/brokers.login"),
        }  # fmt: skip

    def _start_one(self, options: list[str]) -> None:
        given = dict(zip(options[::2], options[1::2], strict=True))
        assert self.cluster is not None
        until(lambda: "To start it again: headrace start" in self.log, "the parent has noticed")
        folder, listen = self.folder / given.pop("--data"), given.pop("--listen")
        self.restarted = BrokerProcess(folder, *(word for pair in given.items() for word in pair), listen=listen)
        until(lambda: not self.run("headrace topics --describe --under-replicated-partitions"), "all are in sync")

    def run(self, line: str) -> str:
        assert self.cluster is not None
        environment = {**os.environ, "BROKERS": self.cluster.address.split(",")[0]}
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S
        )
        assert done.returncode == 0, f"{line}: {done.stderr}{self.log}"
        return done.stdout

    @property
    def log(self) -> str:
        return self.cluster.log if self.cluster is not None else ""

    def close(self) -> None:
        for process in (self.restarted, self.cluster):
            if process is not None:
                process.close()


def free_ports(count: int) -> int:
    """Returns the first of ``count`` free ports in a row."""
    while True:
        first = free_port()
        try:
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except (OSError, OverflowError):
            continue
        return first


def until(condition, what):
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(300)
def test_the_guide_runs(shell):
    (shell.folder / "plan.json").write_text(blocks("json")[0])
    for block in blocks("sh"):
        for line in block.splitlines():
            shell.line(line)
            if line.startswith("kill -9"):
                until(lambda: shell.run("headrace topics --describe --under-replicated-partitions"), "one is missing")
    (read,) = (said for line, said in shell.said.items() if line.startswith("headrace console-consumer"))
    assert sorted(map(int, read.splitlines())) == list(range(1, 2001))
    until(lambda: "is still in progress" not in shell.run(VERIFY), "all has moved")
    described = shell.run("headrace topics --describe --topic orders")
    assert re.search(r"Partition: 0\tLeader: [31]\tReplicas: 3,1\t", described)
    assert re.search(r"Partition: 1\tLeader: [123]\tReplicas: 2,1,3\t", described)
    check_what_was_shown(shell)


VERIFY = "headrace reassign-partitions --verify --reassignment-json-file plan.json"


def check_what_was_shown(shell):
    shown = {line.split("127.0.0.1")[0]: said for line, said in shell.said.items()}
    assert (
        "orders-0"
        in shown["headrace reassign-partitions --execute --reassignment-json-file plan.json --throttle 10000000"]
    )
    assert "Partition: 2" in shown["headrace topics --describe --under-replicated-partitions"]
    assert re.search(r"billing +orders +0 +\d+ +\d+ +0 ", shown["headrace consumer-groups --describe --group billing"])
    dirs = json.loads(shown["headrace log-dirs --describe --topic-list orders"].splitlines()[-1])
    assert sorted(broker["broker"] for broker in dirs["brokers"]) == [1, 2, 3]
    assert "\nkafka_server_replicamanager_underreplicatedpartitions 0" in shown["curl -s http://"]
    (controller, state) = (said for line, said in shell.said.items() if line.startswith("headrace zookeeper-shell"))
    assert json.loads(controller)["brokerid"] in (1, 2, 3)
    assert set(json.loads(state)["isr"]) <= {1, 2, 3}


def test_the_settings_of_a_host_are_known(tmp_path):
    (tmp_path / "server.properties").write_text(blocks("properties")[0])
    config = BrokerConfig.load(read_properties_file(tmp_path / "server.properties"))
    assert (list(config.unknown), dict(config.ignored)) == ([], {})


def test_metrics_of_the_guide_are_those_that_are_served():
    metrics = (GUIDE.parent / "metrics.md").read_text(encoding="utf-8")
    named = re.findall(r"`(kafka_\w+|\.\.\._\w+)`", GUIDE.read_text(encoding="utf-8"))
    assert len(named) >= 5
    for name in named:
        assert name.removeprefix("...") in metrics
