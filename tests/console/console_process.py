"""Runs ``headrace console`` as a process, as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

_PROGRAM = "from headrace.tools.main import main; main()"


class ConsoleProcess:
    """A console on a free port."""

    def __init__(self, bootstrap_servers: str, folder: Path, *options: str) -> None:
        self._command = [sys.executable, "-c", _PROGRAM, "console", "--listen", "127.0.0.1:0"]
        self._command += ["--bootstrap-server", bootstrap_servers, "--data", str(folder), *options]
        self._log = folder / "console.log"
        self.url = ""

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), self._log.read_text()
        self.url = f"http://{line.split()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        code = self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert code == 0, self._log.read_text()
