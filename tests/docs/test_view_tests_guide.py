"""Runs the blocks of docs/view-tests.md that name their file: a project with its tests, and tests for pytest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

GUIDE = Path(__file__).parents[2] / "docs" / "view-tests.md"
_BLOCK = re.compile(r"^```(?:toml|sql|yaml|python)\n(?:#|--) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(500)
@pytest.mark.xdist_group("spark-0")
def test_the_guide_runs(tmp_path: Path) -> None:
    files = dict(_BLOCK.findall(GUIDE.read_text(encoding="utf-8")))
    assert len(files) == 8
    for name, text in {**files, "shop/headrace.toml": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
