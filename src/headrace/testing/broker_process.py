"""Runs a broker in a process of its own, for tests that kill it, measure it, or read its log.

::

    with BrokerProcess(folder) as broker:           # the broker serves when this line is reached
        ...  # clients at broker.address
        broker.kill()                               # SIGKILL: data that was not on disk is lost
    with BrokerProcess(folder) as broker: ...       # recovers from the data
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryFile
from typing import Self

_COMMAND = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_PATIENCE_S = 30.0


class StartFailed(Exception):
    """The process ended before it was ready. The message is what the process wrote to standard error."""


class BrokerProcess:
    """One process of ``headrace start``, or of another command that serves."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: str = "start",
        listen: str | None = "127.0.0.1:0",
        runner: Sequence[str] = (),
    ) -> None:
        """Starts ``headrace start`` on a free port, and returns when the broker serves.

        :param arguments: further arguments of the command, such as ``"-o", "num.partitions=3"``.
        :param listen: None leaves the listeners to a configuration file among the arguments.
        :param command: another command that serves, such as ``zookeeper``.
        :param runner: a command that runs the command that follows it, such as ``ip netns exec NAME``.
        :raises StartFailed: if the process ends instead.
        """
        self._stderr = TemporaryFile()  # noqa: SIM115  lives as long as this object
        address = () if listen is None else ("--listen", listen)
        self._process = subprocess.Popen(
            [*runner, *_COMMAND, command, "--data", str(folder), *address, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        try:
            self.address = self._ready_line().removeprefix("ready ").strip()
        except BaseException:
            self.close()
            raise

    def _ready_line(self) -> str:
        assert self._process.stdout is not None
        with DefaultSelector() as selector:
            selector.register(self._process.stdout, EVENT_READ)
            if not selector.select(_PATIENCE_S):
                raise TimeoutError(f"the process is not ready after {_PATIENCE_S} s; its log:\n{self.log}")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise StartFailed(self.log)
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> str:
        """Returns the text that the process has written to standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def resident_bytes(self) -> int:
        """The resident memory of the process now (Linux)."""
        return self._status_bytes("VmRSS")

    @property
    def peak_resident_bytes(self) -> int:
        """The largest resident memory that the process has had (Linux)."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name: str) -> int:
        with open(f"/proc/{self._process.pid}/status") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
        raise KeyError(name)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self) -> None:
        """Suspends the process with SIGSTOP, until :meth:`resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a paused process. Does nothing if the process was not paused, or has ended."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Stops the process by SIGTERM, a controlled shutdown; returns the exit code when it has ended."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once, as ``kill -9`` does."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        return self._process.wait(_PATIENCE_S)

    def close(self) -> None:
        """Kills the process if it runs, and closes its files."""
        if self.is_running:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()
