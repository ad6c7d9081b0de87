"""Reads the code blocks of README.md, and runs them as a new user would.

The blocks run in a fresh virtual environment that has only what the blocks install, in one folder, in a network of its
own, so that port 9092 is free.

A block without a language is a dialog: lines that begin with ``$ `` are commands, the lines below a command are its
output. An :class:`Environment` does ``pip install``; a :class:`Shell` runs every other command.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0
_IN_OWN_NETWORK = ("unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
_SCRIPT = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


class Block(NamedTuple):
    heading: str
    language: str
    text: str


class Command(NamedTuple):
    line: str
    output: str


def blocks_of(text: str) -> list[Block]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    sections = [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    return [
        Block(heading, language, body)
        for heading, section in sections
        for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    ]


def commands_of(block: Block) -> list[Command]:
    assert block.text.startswith("$ "), f"a dialog begins with a command:\n{block.text}"
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(*part.split("\n", 1)) for part in parts]


# -- environments


class PipEnvironment:
    """What ``pip install`` gives, with the project as a wheel. Needs a package index."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin = folder / "bin"
        self._wheel = wheel.absolute()
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)

    def install(self, requirements: list[str]) -> None:
        wanted = [self._of_the_wheel(text) for text in requirements]
        command = [self.bin / "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        subprocess.run(
            [*command, "--constraint", ROOT / "constraints.txt"], check=True, timeout=600, env=_environment_variables()
        )

    def _of_the_wheel(self, text: str) -> str:
        return f"{text} @ {self._wheel.as_uri()}" if Requirement(text).name == "headrace" else text


class LinkedEnvironment:
    """The same without an index: links to what these tests run with, but only to what a ``pip install`` would bring.

    So a package that the project imports and does not require is missing here, too.
    """

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
        (self._packages,) = folder.glob("lib/python*/site-packages")
        self._project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        self._done: set[tuple[str, frozenset[str]]] = set()

    def install(self, requirements: list[str]) -> None:
        for text in requirements:
            self._install(Requirement(text))

    def _install(self, wanted: Requirement) -> None:
        key = (wanted.name.lower(), frozenset(wanted.extras))
        if key in self._done:
            return
        self._done.add(key)
        if wanted.name == "headrace":
            requires, extras = self._project["dependencies"], self._project["optional-dependencies"]
            self._link_project()
            needed = [
                Requirement(text) for text in requires + [one for extra in wanted.extras for one in extras[extra]]
            ]
        else:
            found = distribution(wanted.name)
            self._link(found)
            needed = [Requirement(text) for text in found.requires or ()]
        for one in needed:
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                self._install(one)

    def _link_project(self) -> None:
        self._link_path(ROOT / "src" / "headrace", "headrace")
        facts = self._packages / f"headrace-{self._project['version']}.dist-info"
        facts.mkdir(exist_ok=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: headrace\nVersion: {self._project['version']}\n")
        groups = {"console_scripts": self._project["scripts"], **self._project["entry-points"]}
        lines = [
            line for name, group in groups.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in group.items()))
        ]
        (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, target in self._project["scripts"].items():
            self._make_script(name, target)

    def _link(self, found: Distribution) -> None:
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            self._link_path(Path(str(found.locate_file(name))), name)
        for script in found.entry_points.select(group="console_scripts"):
            self._make_script(script.name, script.value)

    def _link_path(self, target: Path, name: str) -> None:
        link = self._packages / name
        if not link.exists():
            link.symlink_to(target)

    def _make_script(self, name: str, target: str) -> None:
        module, _, function = target.partition(":")
        path = self.bin / name
        path.write_text(_SCRIPT.format(python=self.bin / "python", module=module, function=function))
        path.chmod(0o755)


# -- commands


class Shell:
    """A bash that goes from command to command, as a user's does, with servers in its background."""

    def __init__(self, environment: PipEnvironment | LinkedEnvironment, folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._count = 0
        self._servers: list[Path] = []
        self._bash = subprocess.Popen(
            [*_IN_OWN_NETWORK, "bash"],
            stdin=subprocess.PIPE,
            cwd=folder,
            env={**_environment_variables(), "PATH": f"{environment.bin}:{os.environ['PATH']}"},
            text=True,
        )

    def close(self) -> None:
        try:
            self.stop_servers()
        finally:
            self._bash.kill()  # it waits for its next command
            self._bash.communicate()

    def run(self, line: str, *, patience_s: float = _PATIENCE_S) -> tuple[int, str]:
        """The exit code of a command, and what it printed; ``pip install`` is done outside."""
        words = shlex.split(line, comments=True)
        if words[:2] == ["pip", "install"]:
            self._environment.install(words[2:])
            return 0, ""
        out, code = self._files()
        self._type(f"{{ {line}\n}} >{out} 2>&1; echo $? >{code}.new; mv {code}.new {code}")
        _until(code.exists, patience_s, lambda: f"{line} does not end:\n{out.read_text()}")
        return int(code.read_text()), out.read_text()

    def serve(self, line: str, ready: str, *, patience_s: float = _PATIENCE_S) -> None:
        """A command that goes on; returns when it has printed this."""
        out, pid = self._files()
        errors = Path(f"{out}.err")
        for file in (out, errors):
            file.touch()  # the shell may write the pid before the command in its background makes these files
        self._type(f"{line.partition('#')[0]} >{out} 2>{errors} </dev/null & echo $! >{pid}.new; mv {pid}.new {pid}")
        _until(pid.exists, patience_s, lambda: f"{line} does not start")
        self._servers.append(pid)

        def said() -> str:
            return f"{line} printed\n{out.read_text()}, and to standard error\n{errors.read_text()}"

        _until(lambda: ready in out.read_text() or not _is_alive(pid), patience_s, said)
        assert ready in out.read_text(), said()

    def stop_servers(self) -> None:
        """By SIGTERM: bash lets what is in its background ignore Ctrl-C."""
        while self._servers:
            pid = self._servers.pop()
            _signal(pid, signal.SIGTERM)
            try:
                _until(lambda pid=pid: not _is_alive(pid), _PATIENCE_S, lambda: "a server does not stop")
            finally:
                _signal(pid, signal.SIGKILL)

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def _files(self) -> tuple[Path, Path]:
        self._count += 1
        return self._folder / f".out-{self._count}", self._folder / f".end-{self._count}"

    def _type(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()


def _environment_variables() -> dict[str, str]:
    """Without those by which the tests' own Python would be found."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL"))}


def can_have_own_network() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*_IN_OWN_NETWORK, "true"], capture_output=True, timeout=30).returncode == 0


def _is_alive(pid: Path) -> bool:
    return _signal(pid, 0)


def _signal(pid: Path, number: int) -> bool:
    """Whether there was somebody to send it to."""
    try:
        os.kill(int(pid.read_text()), number)
    except ProcessLookupError:
        return False
    return True


def _until(condition, patience_s, complaint) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.05)
