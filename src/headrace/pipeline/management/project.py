"""A project of views for Python and notebooks: ``headrace.pipeline.Project("shop")``.

The methods do what the commands do, by the same functions. Their results show themselves as tables in a notebook.
``run`` and ``run_once`` start ``headrace views run`` as a process of its own: its Spark is not that of the notebook.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.client.errors import HeadraceError
from headrace.pipeline.management.applying import Plan, apply_project
from headrace.pipeline.management.explaining import Explanation, explain_project_view
from headrace.pipeline.management.status import Status, project_status
from headrace.pipeline.project.settings import read_settings
from headrace.views.answers import Answer

_HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_STOP_S = 60.0
_LAST_LINES = 20


class RunFailed(HeadraceError):
    """``headrace views run`` has ended with an error. The message has its last lines."""


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Project:
    """A folder with ``headrace.toml`` and the files of views.

    :param folder: the folder of the project.
    :param progress: gets a line of text when something takes a while; by default it goes to standard error.
    :raises ProjectError: if the folder has no ``headrace.toml``.
    """

    def __init__(self, folder: str | Path = ".", *, progress: Callable[[str], None] = _to_stderr) -> None:
        self.folder, _, _ = read_settings(folder)
        self._progress = progress

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r})"

    def apply(self, *, switch: str | None = None, dry_run: bool = False, master: str | None = None) -> Plan:
        """Checks the files, and makes new versions of changed views.

        :param switch: ``auto`` or ``manual``: whether readers see a new version as soon as it has caught up.
        :param dry_run: only say what would change.
        :param master: start a Spark of this master for the checks, also if ``headrace views run`` is running.
        :raises ProjectError: if the files have problems. Nothing was changed.
        """
        return apply_project(self.folder, self._progress, switch=switch, is_dry_run=dry_run, master=master)

    def explain(self, view: str, *, master: str | None = None) -> Explanation:
        """Says how a view is kept up to date, why, and what an event costs.

        :raises ProjectError: if the view has problems.
        :raises UnknownView: if there is no such view.
        """
        return explain_project_view(self.folder, view, self._progress, master=master)

    def status(self, view: str | None = None) -> Status:
        """The versions with their progress.

        :raises UnknownView: if there is no such view.
        """
        return project_status(self.folder, view)

    def query(
        self, sql: str, *, limit: int | None = None, timeout_ms: int = 300_000, same_offsets: bool = False
    ) -> Answer:
        """Runs one statement that reads, in the serving database.

        :param limit: at most this many rows; None for all rows.
        :param same_offsets: raise DifferentOffsets if the views of the statement count other records of a common topic.
        :raises QueryError: if the statement is wrong, would change something, or takes too long.
        :raises DatabaseUnreachable: if the database does not answer.
        """
        import pyarrow as pa  # type: ignore[import-untyped]

        from headrace.pipeline.serving.database_url import serving_url
        from headrace.pipeline.serving.queries.large_answers import LargeAnswers
        from headrace.pipeline.serving.queries.query import QueryService

        service = QueryService(serving_url(self.folder))
        try:
            found = LargeAnswers(service).arrow(sql, limit=limit, timeout_ms=timeout_ms, same_offsets=same_offsets)
        finally:
            service.close()
        found.file.seek(0)
        reader = pa.ipc.open_stream(pa.PythonFile(found.file, "r"))
        return Answer(reader, found.as_of, is_truncated=found.is_truncated, close=found.file.close)

    def run_once(self, *, master: str | None = None) -> Status:
        """Brings every view up to the present end of the log, and returns the status.

        :raises RunFailed: if a view is not there.
        """
        with RunningViews(self.folder, ["--once", *_master(master)], self._progress) as running:
            running.wait()
        return self.status()

    def run(self, *, master: str | None = None) -> RunningViews:
        """Starts to run the views, and waits until they run. Use it in a ``with`` statement, or call ``stop``.

        :raises RunFailed: if the process ends before.
        """
        running = RunningViews(self.folder, _master(master), self._progress)
        try:
            running.wait_until_ready()
        except BaseException:
            running.stop()
            raise
        return running


def _master(master: str | None) -> list[str]:
    return [] if master is None else ["--master", master]


class RunningViews:
    """A process of ``headrace views run``. Its log goes to ``progress``, line by line."""

    def __init__(self, folder: Path, options: Sequence[str], progress: Callable[[str], None]) -> None:
        command = [*_HEADRACE, "views", "run", "--project", str(folder), *options]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._progress = progress
        self._ready = threading.Event()
        self._readers = [threading.Thread(target=work, daemon=True) for work in (self._read_log, self._read_lines)]
        for reader in self._readers:
            reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """
        :raises RunFailed: if the process ends before.
        """
        self._ready.wait()
        if not self.is_running:
            self.wait()

    def wait(self) -> None:
        """Waits until the process ends by itself.

        :raises RunFailed: if it ends with an error.
        """
        code = self._process.wait()
        for reader in self._readers:
            reader.join(_STOP_S)
        if code != 0:
            raise RunFailed("\n".join(["'headrace views run' has ended with an error:", *self._last]))

    def stop(self) -> None:
        """Ends the process after its current transactions."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for reader in self._readers:
            reader.join(_STOP_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last.append(line.rstrip())
            self._progress(line.rstrip())

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "ready":
                self._ready.set()
        self._process.wait()
        self._ready.set()
