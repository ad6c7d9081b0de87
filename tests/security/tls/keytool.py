"""Stores as Java writes them, by keytool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no keytool (Java)")


def keytool(*arguments: str | Path) -> str:
    run = subprocess.run(
        ["keytool", "-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
