"""A PostgreSQL server in a process of its own, in a temporary folder, for tests.

It is the one that is installed (Debian's packages, or ``initdb`` on the path). PostgreSQL refuses to run as root, so
root starts it as the user ``postgres``, or else ``nobody``. It does not flush to disk: what a test writes may be lost
when the machine stops, not when the server is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


class PostgresqlMissing(Exception):
    """There is none on this machine; the message says how to get it."""


class PostgresqlProcess:
    """Started by ``start``, ended by ``close``; in between it can be killed and started again on the same data."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._owner = _owner()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
        if self._owner is not None:
            os.chown(self._folder, self._owner.pw_uid, self._owner.pw_gid)
        self.port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._is_ready = threading.Event()

    @property
    def url(self) -> str:
        return f"postgresql://headrace@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        if not (self._folder / "data").exists():
            self._run("initdb", "-D", "data", "-A", "trust", "-U", "headrace", "-E", "UTF8", "--no-locale", "--no-sync")
        self._is_ready.clear()
        arguments: list[str | Path] = [self._programs / "postgres", "-D", "data", "-p", str(self.port)]
        for setting in ("listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}", "fsync=off",
                        "max_connections=200", "log_min_messages=warning"):  # fmt: skip
            arguments += ["-c", setting]
        self._process = self._popen(arguments)
        threading.Thread(target=self._read_log, args=(self._process,), daemon=True).start()
        if not self._is_ready.wait(_START_TIMEOUT_S) or self._process.poll() is not None:
            lines = "\n".join(self._last_lines)
            self.close()
            raise PostgresqlMissing(f"PostgreSQL does not start:\n{lines}")

    def kill(self) -> None:
        """As a crash would: nothing is written any more. Its children notice, and end; so long this waits."""
        children = [] if self._process is None else _children(self._process.pid)
        self._end(signal.SIGKILL)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._last_lines.append(line.rstrip())
                if "ready to accept connections" in line:
                    self._is_ready.set()
        self._is_ready.set()  # it has ended: nobody needs to wait

    def _run(self, program: str, *arguments: str) -> None:
        process = self._popen([self._programs / program, *arguments])
        _, complaints = process.communicate(timeout=_START_TIMEOUT_S)
        if process.returncode:
            self.close()
            raise PostgresqlMissing(f"{program} failed: {complaints.strip()}")

    def _popen(self, arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
        owner = self._owner
        return subprocess.Popen(
            arguments,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LC_ALL": "C", "PGTZ": "UTC"},
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
            start_new_session=True,  # Ctrl-C is for the tests, which then end it
        )


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _programs() -> Path:
    """The newest that Debian has, or what is on the path."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    if found is None:
        raise PostgresqlMissing("PostgreSQL is not installed (script/install-package postgresql)")
    return Path(found).resolve().parent


def _owner() -> pwd.struct_passwd | None:
    """As whom it runs, if not as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresqlMissing("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
