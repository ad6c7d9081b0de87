"""Knows what a version has Spark do at this moment, so that the death of the Java process can be blamed on somebody.

A version marks its work with ``of``. When the Java process dies, work that is under way ends with an exception, often
before the runner looks. So work that ended with an exception counts as under way until the same kind of work succeeds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class Work(StrEnum):
    #: Planning the query, making tables.
    START = "start"
    #: Of a Lambda view: a batch, or bringing the archive up to date.
    BATCH = "batch"
    #: Of a Lambda view: a micro-batch.
    SPEED = "speed"
    #: Of a Kappa view: a micro-batch.
    STREAM = "stream"


class WorkInFlight:
    """Of one version. Any thread may call its methods."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: set[Work] = set()
        self._cut_off: set[Work] = set()
        self._done: set[Work] = set()

    @contextmanager
    def of(self, work: Work) -> Iterator[None]:
        with self._changed:
            self._under_way.add(work)
        try:
            yield
        except BaseException:
            with self._changed:
                self._cut_off.add(work)
            raise
        else:
            with self._changed:
                self._done.add(work)
                self._cut_off.discard(work)
        finally:
            with self._changed:
                self._under_way.discard(work)
                self._changed.notify_all()

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not self._under_way

    def suspects(self) -> frozenset[Work]:
        """What was under way, or was cut off and has not succeeded since."""
        with self._changed:
            return frozenset(self._under_way | self._cut_off)

    def done(self) -> frozenset[Work]:
        """What has succeeded at least once."""
        with self._changed:
            return frozenset(self._done)

    def wait_until_idle(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, timeout_s)
