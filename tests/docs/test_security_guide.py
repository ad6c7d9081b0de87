"""Runs the commands of docs/security.md: a secured cluster of three from nothing, then what its clients may do."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import parse_properties
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.ports import free_port
from headrace.tools.shared.parser_facts import parser_of

GUIDE = Path(__file__).parents[2] / "docs" / "security.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PORTS = ("2181", "9092", "9093", "9094")
_PATIENCE_S = 40.0
#: What the examples of settings leave to others.
_OTHERS = {
    "listeners": "SASL_SSL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CLIENTS:SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
#: The commands run at the first broker, where the guide relies on the default.
_HEADRACE = f"""#!/bin/sh
command=$1
shift
case "$command $*" in
    *--zookeeper*) ;;
    *) set -- --bootstrap-server "$BROKER" "$@" ;;
esac
exec {shlex.quote(sys.executable)} -c 'from headrace.tools.main import main; main()' "$command" "$@"
"""


def blocks(kind: str) -> list[str]:
    return [block[2] for block in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8")) if block[1] == kind]


class Shell:
    """Runs the lines of the guide. A line that ends in & starts a server, which runs until the end of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in _PORTS}
        self._servers: list[BrokerProcess] = []
        (folder / "bin").mkdir()
        (folder / "bin" / "headrace").write_text(_HEADRACE)
        (folder / "bin" / "headrace").chmod(0o755)

    def write(self, name: str, text: str) -> None:
        for file in ("server.pem", "ca.pem"):
            text = text.replace(f"location={file}", f"location={self._folder / file}")
        (self._folder / name).write_text(self._at_free_ports(text))

    def _at_free_ports(self, text: str) -> str:
        return re.sub(rf"127\.0\.0\.1:({'|'.join(_PORTS)})", lambda found: f"127.0.0.1:{self._ports[found[1]]}", text)

    def line(self, line: str) -> str:
        line = self._at_free_ports(line)
        if line.endswith(" &"):
            self._serve(shlex.split(line)[1:-1])
            return ""
        environment = {**os.environ, "BROKER": f"127.0.0.1:{self._ports['9092']}"}
        environment["PATH"] = f"{self._folder / 'bin'}:{environment['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S
        )
        logs = "\n".join(server.log[-2000:] for server in self._servers)
        assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}\n{logs}"
        return done.stdout + done.stderr

    def _serve(self, words: list[str]) -> None:
        command, *options = words
        given = dict(zip(options[::2], options[1::2], strict=True))
        folder, listen = self._folder / given.pop("--data"), given.pop("--listen", None)
        if "--config" in given:
            given["--config"] = str(self._folder / given["--config"])
        rest = [word for pair in given.items() for word in pair]
        self._servers.append(BrokerProcess(folder, *rest, command=command, listen=listen))

    def close(self) -> None:
        for server in reversed(self._servers):
            server.close()


@pytest.fixture
def shell(tmp_path):
    made = Shell(tmp_path)
    yield made
    made.close()


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(180)
def test_the_guide_runs(shell):
    server, admin = blocks("properties")[:2]
    shell.write("server.properties", server)
    shell.write("admin.properties", admin)
    shell.write("alice.properties", admin.replace("admin", "alice"))
    commands, use, refused = blocks("sh")
    assert len(commands.splitlines()) == 10
    for line in commands.splitlines():
        shell.line(line)
    said = [until_it_works(shell, line) for line in use.splitlines()]
    assert sorted(map(int, re.findall(r"^\d+$", said[-1], re.MULTILINE))) == list(range(1, 101))
    said = [shell.line(line) for line in refused.splitlines()]
    assert "principal=User:alice" in said[-1]
    assert "secret" not in "".join(said)


def until_it_works(shell: Shell, line: str) -> str:
    """An ACL is in force on all brokers within a second, not at once."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return shell.line(line)
        except AssertionError:
            if time.monotonic() > deadline:
                raise


def test_the_settings_of_brokers_are_known():
    of_brokers = [
        found for block in blocks("properties") if "security.protocol" not in (found := parse_properties(block))
    ]
    assert len(of_brokers) >= 3
    for settings in of_brokers:
        between = (
            {}
            if any(".inter.broker." in f".{name}" for name in settings)
            else {"inter.broker.listener.name": "CLIENTS"}
        )
        config = BrokerConfig.load({**_OTHERS, **between, **settings})
        assert (list(config.unknown), dict(config.ignored)) == ([], {})


def test_the_other_commands_are_accepted():
    lines = [line for block in blocks("") for line in block.splitlines()]
    assert len(lines) >= 10
    for line in lines:
        program, command, *arguments = shlex.split(line)
        assert program == "headrace"
        parser_of(command).parse_args(arguments)


def test_the_options_of_the_client_are_known():
    (example,) = blocks("python")
    options = re.findall(r"^ {4}(\w+)=", example, re.MULTILINE)
    page = (GUIDE.parent / "client-options.md").read_text(encoding="utf-8")
    assert len(options) == 7
    assert [option for option in options if f"`{option}`" not in page] == []
