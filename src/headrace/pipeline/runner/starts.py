"""Starts versions side by side, each on a thread of its own.

Most of a start is waiting for the Java process. A start also runs the Python files of its view, and such a file may
hang. So the runner waits for starts only for a while, and looks at unfinished starts in its next rounds: the other
versions go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from logging import getLogger
from typing import NamedTuple

from headrace.pipeline.serving.catalog import VersionKey
from headrace.pipeline.spark.spark_threads import start_spark_thread
from headrace.pipeline.version.running_version import RunningVersion
from headrace.pipeline.version.work_in_flight import Work

logger = getLogger("headrace.views")


class Started(NamedTuple):
    """A start that has ended.

    :ivar error: what it raised.
    """

    running: RunningVersion
    error: BaseException | None


class Starts:
    """Used by the runner's thread only.

    :param stop: stops a version whose start has ended after it was abandoned. Called by the thread of the start.
    """

    def __init__(self, stop: Callable[[RunningVersion], None]) -> None:
        self._stop = stop
        self._in_progress: dict[VersionKey, _Start] = {}

    def __contains__(self, key: VersionKey) -> bool:
        return key in self._in_progress

    def begin(self, running: RunningVersion) -> None:
        self._in_progress[running.version.key] = _Start(running, self._stop)

    def ended(self) -> list[Started]:
        """The starts that have ended, each once."""
        ended = [key for key, start in self._in_progress.items() if start.has_ended]
        return [self._in_progress.pop(key).result for key in ended]

    def wait(self, keys: Iterable[VersionKey], timeout_s: float) -> None:
        """Waits until these starts have ended, at most for this time. Tells of those that have not."""
        until_s = time.monotonic() + timeout_s
        for key in keys:
            start = self._in_progress[key]
            start.wait(max(0.0, until_s - time.monotonic()))
            if not start.has_ended:
                label = start.result.running.label
                logger.warning("%s: has not started within %g s; the other views go on", label, timeout_s)

    def abandon(self, key: VersionKey) -> None:
        """Forgets a start, if it is in progress. Its version is stopped when the start ends."""
        start = self._in_progress.pop(key, None)
        if start is not None:
            start.abandon()


class _Start:
    def __init__(self, running: RunningVersion, stop: Callable[[RunningVersion], None]) -> None:
        self._running, self._stop = running, stop
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._ended = threading.Event()
        try:
            start_spark_thread(self._run, self._end)
        except Exception as error:  # noqa: BLE001  the Java process is gone: the runner finds that out by any error
            self._end(error)

    def _run(self) -> None:
        with self._running.work.of(Work.START):
            self._running.start()
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            self._error = error
            self._ended.set()
            must_stop = self._is_abandoned
        if must_stop:
            self._stop(self._running)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def result(self) -> Started:
        return Started(self._running, self._error)

    def wait(self, timeout_s: float) -> None:
        self._ended.wait(timeout_s)

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
