"""Runs the blocks of docs/testing.md: each block of Python is a test file, and pytest has the settings of the page."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
_BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_guide_runs(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    tests = 0
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        line = text.count("\n", 0, block.start(2))
        if language == "toml":
            (tmp_path / "pyproject.toml").write_text(code)
        else:
            # As many empty lines before the code make a traceback name the line of the page.
            (tmp_path / f"test_line_{line}.py").write_text("\n" * line + code)
            tests += code.count("\ndef test_")
    assert tests >= 8
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "--durations", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
