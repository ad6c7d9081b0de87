"""Runs a PostgreSQL server in a process of its own, in a temporary folder, for tests.

The module runs the installed server (Debian's packages, or ``initdb`` on the path). PostgreSQL refuses to run as
root, so root starts it as the user ``postgres``, or else as ``nobody``. The server does not flush to disk: data
survives a kill of the server, but not a crash of the machine.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from headrace.testing.ports import free_port

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


class PostgresqlMissing(Exception):
    """PostgreSQL is not installed, or does not start; the message says what to do."""


class PostgresqlProcess:
    """A server that ``start`` starts and ``close`` ends. In between, tests may kill it and start it again."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._owner = _owner()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-postgresql-"))
        if self._owner is not None:
            os.chown(self._folder, self._owner.pw_uid, self._owner.pw_gid)
        self.port = free_port()
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
            raise PostgresqlMissing(f"PostgreSQL does not start; the end of its log:\n{lines}")

    def kill(self) -> None:
        """Ends the server at once, as a crash does, and waits until its child processes have ended."""
        children = [] if self._process is None else _children(self._process.pid)
        self._end(signal.SIGKILL)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops the server by a fast shutdown."""
        self._end(signal.SIGINT)

    def close(self) -> None:
        """Stops the server, and deletes its data."""
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
        self._is_ready.set()  # the process has ended: start() must not wait any longer

    def _run(self, program: str, *arguments: str) -> None:
        process = self._popen([self._programs / program, *arguments])
        _, errors = process.communicate(timeout=_START_TIMEOUT_S)
        if process.returncode:
            self.close()
            raise PostgresqlMissing(f"{program} failed: {errors.strip()}")

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
            start_new_session=True,  # Ctrl-C goes to the tests, which then stop the server
        )


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _programs() -> Path:
    """The folder of PostgreSQL's programs: Debian's newest, or the one on the path."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "postgres").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    if found is None:
        raise PostgresqlMissing("PostgreSQL is not installed; run script/install-package postgresql")
    return Path(found).resolve().parent


def _owner() -> pwd.struct_passwd | None:
    """The user that runs the server; None: the current user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresqlMissing(
        "PostgreSQL does not run as root, and there is no user postgres or nobody; create one of them"
    )
