"""Tracks what Spark is doing for a version, so that a crash of the Java process can be attributed to a version.

A version marks its work with ``of``. When the Java process dies, work in progress ends with an exception, often before
the runner checks. So work that ended with an exception counts as unfinished until the same kind of work succeeds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class Work(StrEnum):
    #: Planning the query, creating tables.
    START = "start"
    #: Lambda: a batch, or copying records to the archive.
    BATCH = "batch"
    #: Lambda: a micro-batch of the speed layer.
    SPEED = "speed"
    #: Kappa: a micro-batch of the stream.
    STREAM = "stream"


class WorkInFlight:
    """The work of one version. Any thread may call its methods."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_progress: set[Work] = set()
        self._interrupted: set[Work] = set()
        self._done: set[Work] = set()

    @contextmanager
    def of(self, work: Work) -> Iterator[None]:
        with self._changed:
            self._in_progress.add(work)
        try:
            yield
        except BaseException:
            with self._changed:
                self._interrupted.add(work)
            raise
        else:
            with self._changed:
                self._done.add(work)
                self._interrupted.discard(work)
        finally:
            with self._changed:
                self._in_progress.discard(work)
                self._changed.notify_all()

    @contextmanager
    def waiting(self, work: Work) -> Iterator[None]:
        """Within ``of``: a wait in which Spark does nothing for the version."""
        with self._changed:
            self._in_progress.discard(work)
        try:
            yield
        finally:
            with self._changed:
                self._in_progress.add(work)

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not self._in_progress

    def unfinished(self) -> frozenset[Work]:
        """Work that is in progress, or was interrupted and has not succeeded since."""
        with self._changed:
            return frozenset(self._in_progress | self._interrupted)

    def done(self) -> frozenset[Work]:
        """Work that has succeeded at least once."""
        with self._changed:
            return frozenset(self._done)

    def wait_until_idle(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_progress, timeout_s)
