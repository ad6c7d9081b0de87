"""``script/bootstrap`` prints its steps to standard error, and prints nothing if there is nothing to do.

The Python of these tests is a stand-in: it makes a folder instead of an environment, and its pip waits for the test.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYTHON = """#!/bin/sh
case "$*" in
    "--version") echo "Python 3.99.0" ;;
    "-m venv .venv") mkdir -p .venv/bin .venv/lib/python3/site-packages && cp "$0" .venv/bin/python ;;
    "-m pip install"*)
        echo "Collecting one"; echo "Collecting two"
        read go_on <released
        if [ "$go_on" = fail ]; then echo "ERROR: no such package"; exit 3; fi
        touch .venv/bin/headrace && chmod +x .venv/bin/headrace ;;
    "-c"*) ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "script").mkdir()
    shutil.copy(ROOT / "script" / "bootstrap", tmp_path / "script" / "bootstrap")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "constraints.txt").write_text("one==1\ntwo==2\nthree==3\n")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    subprocess.run(["mkfifo", tmp_path / "released"], check=True)
    return tmp_path


def start(checkout):
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(checkout / "python"), "BOOTSTRAP_TICK_S": "0"}
    return subprocess.Popen(
        [checkout / "script" / "bootstrap"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd="/",
    )  # fmt: skip


def end(checkout, process, word):
    """Reads up to the first line of progress, lets pip go on, and gives what else is said."""
    begun = [process.stderr.readline() for _ in range(2)]
    while "2 of 3 packages found" not in (line := process.stderr.readline()):
        assert line, "it ended without a word of progress"
    (checkout / "released").write_text(f"{word}\n")
    stdout, stderr = process.communicate(timeout=30)
    assert stdout == ""
    return begun, stderr.splitlines()


def test_it_says_what_it_does_how_far_it_is_and_how_long_it_took(checkout):
    process = start(checkout)
    begun, rest = end(checkout, process, "succeed")
    assert process.returncode == 0
    assert begun[0] == "bootstrap: making .venv with Python 3.99.0\n"
    assert begun[1].startswith("bootstrap: installing the project and 3 packages")
    assert rest[-1].startswith("bootstrap: done in ")

    again = start(checkout)
    assert again.communicate(timeout=30) == ("", "")
    assert again.returncode == 0


def test_a_failure_is_shown_and_tried_again_next_time(checkout):
    process = start(checkout)
    _, rest = end(checkout, process, "fail")
    assert process.returncode == 3
    assert "ERROR: no such package" in rest
    assert rest[-1] == f"bootstrap: pip failed with exit code 3; its output is in {checkout}/.venv/bootstrap.log"

    process = start(checkout)
    end(checkout, process, "succeed")
    assert process.returncode == 0
