"""Holds the parts that both halves of ``script/demo`` share: a broker as a process, and steps that check claims."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEADRACE = ROOT / ".venv" / "bin" / "headrace"
WAIT_SECONDS = 30.0


class Unexpected(Exception):
    """The demonstration did not show what it should."""


class RunningBroker:
    """``headrace start`` as a process. Started again, it has the same address and folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = "127.0.0.1:0"
        self.start()

    def start(self, *options: str) -> None:
        command = [str(HEADRACE), "start", "--data", str(self._folder / "data"), "--listen", self.address]
        command += ["-o", "log.cleaner.backoff.ms=200", *options]
        self._log = open(self._folder / "broker.log", "a+")  # noqa: SIM115  closed with the process
        began = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            self.kill()
            raise Unexpected(f"the broker did not start: {self.log()}")
        took = time.perf_counter() - began
        self.address = ready[1]
        done(f"`headrace start` answers at {self.address} after {took * 1000:.0f} ms")

    @property
    def metrics_url(self) -> str:
        return self.log().rpartition("serving metrics at ")[2].split()[0]

    def log(self) -> str:
        return (self._folder / "broker.log").read_text().strip()

    def kill(self) -> None:
        """As a crash does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._let_go()

    def stop(self) -> None:
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(WAIT_SECONDS)
        expect(code == 0, f"the broker ended with exit code {code}: {self.log()}")
        done(f"stopped cleanly in {(time.perf_counter() - began) * 1000:.0f} ms")

    def _let_go(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def client_settings(broker: RunningBroker) -> dict[str, str | int | float | bool]:
    # librdkafka would tell of each connection that the kill cuts; that is not news here.
    return {"bootstrap.servers": broker.address, "log_level": 0}


def expect(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise Unexpected(otherwise)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def done(text: str) -> None:
    print(f"  ok  {text}", flush=True)
