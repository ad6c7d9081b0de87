"""Runs the commands and the code of docs/limits.md against one broker, and compares what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from headrace import Broker
from headrace.tools.configs import command

GUIDE = Path(__file__).parents[2] / "docs" / "limits.md"
ADDRESS = "127.0.0.1:9092"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(block: str) -> list[tuple[list[str], str]]:
    """The commands of a block, each with the lines that it prints."""
    found: list[tuple[list[str], str]] = []
    for part in block.removeprefix("$ ").split("\n$ "):
        line, _, output = part.replace("\\\n", "").partition("\n")
        found.append((shlex.split(line), output))
    return found


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [(block[1], block[2]) for block in _BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
    kinds = [kind for kind, _ in blocks]
    assert kinds.count("console") >= 1
    assert kinds.count("python") >= 1
    with Broker() as broker:
        for kind, text in blocks:
            if kind == "python":
                exec(text.replace(ADDRESS, broker.bootstrap_servers), {"__name__": "__main__"})
                continue
            for (program, name, *arguments), output in steps(text):
                assert (program, name) == ("headrace", "configs")
                capsys.readouterr()
                assert command.main(["--bootstrap-server", broker.bootstrap_servers, *arguments]) == 0
                assert capsys.readouterr().out.splitlines() == output.splitlines()
    assert "'consumer_byte_rate': 2000000.0}" in capsys.readouterr().out
