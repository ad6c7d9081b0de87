"""Runs ``headrace registry`` as a process of its own, for tests that kill it or use it by HTTP."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

_READY_S = 30.0


class RegistryProcess:
    """A schema registry at a free port of 127.0.0.1."""

    def __init__(self, bootstrap_servers: str, folder: Path, *options: str, name: str = "registry") -> None:
        """
        :param folder: gets the log of the process, ``NAME.log``.
        :param options: further options of the command.
        """
        self._arguments = ["registry", "--bootstrap-server", bootstrap_servers, *options]
        if "--listen" not in options:
            self._arguments += ["--listen", "127.0.0.1:0"]
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Returns when the registry serves.

        :raises RuntimeError: if it ends before.
        """
        program = "from headrace.tools.main import main; main()"
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *self._arguments], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            code = self._process.wait(_READY_S)
            raise RuntimeError(f"the registry ended with exit code {code}: {self.log.read_text()[-2000:]}")
        self.address = line.split()[1]
        return self

    def kill(self) -> None:
        """Ends the process as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def stop(self) -> int:
        """Ends the process by SIGTERM. Returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(_READY_S)
        self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._wait()
