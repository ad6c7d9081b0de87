"""Runs the guide to views with Spark, line by line, as a user types it: Lambda, Kappa, switch, rollback, drop."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Broker
from headrace.pipeline.project import definition

GUIDE = Path(__file__).parents[2] / "docs" / "views.md"
ADDRESS = "127.0.0.1:9092"
_BLOCK = re.compile(r"^```(sh|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADRACE = [sys.executable, "-c", "from headrace.tools.main import main; main()"]
#: Long, because on a busy machine Spark takes minutes for what otherwise takes seconds.
_TIMEOUT_S = 500
_CONF = '[spark]\nmaster = "local[2]"\nconf = {"spark.sql.shuffle.partitions" = 2}\n'


class Shell:
    """Runs lines of the guide: what ends in & stays, the rest is waited for and must do well."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.address = folder, broker.bootstrap_servers
        self.runner: subprocess.Popen[str] | None = None
        self.said: dict[str, str] = {}

    def line(self, line: str) -> None:
        words = shlex.split(line)
        if words[0] == "cd":
            self.folder /= words[1]
        elif line == "headrace start &":
            return  # the test has one
        elif line == "headrace views run &":
            self._run_in_background(words[1:-1])
        else:
            self.said[line] = self._run(words)

    def _run(self, words: list[str]) -> str:
        command = [*_HEADRACE, *words[1:]] if words[0] == "headrace" else [sys.executable, *words[1:]]
        if words[:3] == ["headrace", "views", "init"]:
            command += ["--bootstrap-server", self.address]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=_TIMEOUT_S)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}{self.log()}"
        if words[:3] == ["headrace", "views", "init"]:
            settings = self.folder / words[3] / "headrace.toml"
            settings.write_text(settings.read_text().partition("[spark]")[0] + _CONF)
        return done.stdout

    def _run_in_background(self, words: list[str]) -> None:
        with (self.folder / "run.log").open("w") as log:
            self.runner = subprocess.Popen(
                [*_HEADRACE, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.runner.stdout is not None
        assert self.runner.stdout.readline() == "ready\n", self.log()

    def log(self) -> str:
        path = self.folder / "run.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        if self.runner is not None:
            self.runner.kill()
            self.runner.communicate()


@pytest.mark.xdist_group("views-0")
@pytest.mark.timeout(1500)
def test_the_guide_runs(tmp_path: Path) -> None:
    with Broker() as broker:
        shell = Shell(tmp_path, broker)
        try:
            for block in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
                if block[1] == "sql":
                    name = block[2].partition("\n")[0].removeprefix("-- ")
                    (shell.folder / name).write_text(block[2])
                    continue
                for line in block[2].splitlines():
                    shell.line(line)
            check_answers(shell)
            check_batch_and_clean_end(shell)
        finally:
            shell.close()


def check_answers(shell: Shell) -> None:
    clicks = json.loads(shell._run(shlex.split('headrace query "SELECT sum(clicks) FROM pages" --json')))
    assert clicks["rows"] == [[20_000]]
    users = json.loads(shell._run(shlex.split('headrace query "SELECT sum(clicks), count(*) FROM users" --json')))
    assert users["rows"] == [[20_000, 100]]
    assert shell.said["headrace views rollback users"] == "users v1 serves from now on, v2 before\n"
    assert shell.said["headrace views switch users"] == "users v2 serves from now on, v1 before\n"
    assert shell.said["headrace views drop users 1"] == "users v1 is dropped\n"
    explained = shell.said["headrace views explain pages"]
    assert f"headrace views explain pages\n```\n\n```text\n{explained}```" in GUIDE.read_text(encoding="utf-8")
    assert "slowest_page" in shell.said['headrace query "SELECT * FROM users ORDER BY slowest_ms DESC LIMIT 3"']
    status = json.loads(shell._run(["headrace", "views", "status", "--json"]))
    assert status["running"]
    assert [(one["view"], one["version"], one["state"], one["records_behind"]) for one in status["versions"]] == [
        ("pages", 1, "serving", 0), ("users", 2, "serving", 0),
    ]  # fmt: skip


def check_batch_and_clean_end(shell: Shell) -> None:
    assert shell._run(["headrace", "views", "batch", "pages", "--full"]).startswith("a full batch of pages is done")
    assert shell.runner is not None
    shell.runner.send_signal(signal.SIGINT)
    assert shell.runner.wait(60) == 0, shell.log()
    assert shell.log().endswith("INFO stopped\n")
    assert "Traceback" not in shell.log()
    status = json.loads(shell._run(["headrace", "views", "status", "--json"]))
    assert {one["state"] for one in status["versions"]} == {"stopped"}


@pytest.mark.parametrize("name", ["topics", "pattern", "architecture", "query", "key", "dead_letters"])
def test_every_field_of_a_view_is_in_the_guide(name: str) -> None:
    assert f"`{name}`" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ("decode", definition.Decode), ("watermark", definition.Watermark), ("kappa", definition.KappaSettings),
        ("lambda", definition.LambdaSettings),
    ],
)  # fmt: skip
def test_every_setting_of_a_view_is_in_the_guide(section: str, kind: type) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name in kind.__dataclass_fields__:
        assert f"`{name.removesuffix('_ms') if name == 'batch_every_ms' else name}`" in text or (
            f"`[{section}] {name.removesuffix('_ms') if name == 'batch_every_ms' else name}`" in text
        )
