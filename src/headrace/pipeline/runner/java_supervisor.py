"""Starts another Java process when one has died, and keeps account of who was at work.

The first start follows half a second after a death, the next ones later, up to 30 s, as long as the processes do not
live for five seconds. A process that does not even start is tried five times.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.runner.quarantine import Suspects
from headrace.pipeline.runner.retries import Key, Retries
from headrace.pipeline.spark.java_process import Java, JavaGone
from headrace.pipeline.spark.session import SparkMissing
from headrace.pipeline.version.failures import Verdict
from headrace.pipeline.version.work_in_flight import Work
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")
_MOST_STARTS = 5
_KEY: Key = ("java", 0)


class JavaKeeper:
    def __init__(self, java: Java, suspects: Suspects, clock: Clock) -> None:
        self._java, self._suspects, self._clock = java, suspects, clock
        self._waits = Retries(clock)
        self._began_ms = clock.monotonic_ms()
        self._failures = 0
        #: Whether a process has died, and no other one was started yet.
        self.is_missing = False

    def check(self, error: BaseException) -> None:
        """
        :raises JavaGone: if the process is, which then is the reason for the error.
        """
        if self._java.is_gone():
            raise JavaGone("Spark's Java process is gone") from error

    def has_ended(self) -> bool:
        return not self.is_missing and self._java.has_ended()

    def died(self, in_flight: Mapping[Key, frozenset[Work]]) -> None:
        """
        :param in_flight: what each version was at work on.
        """
        said = self._java.last_words()
        busy = [f"{key[0]} v{key[1]} ({', '.join(sorted(works))})" for key, works in in_flight.items() if works]
        logger.error("Spark's Java process has died: %s; at work: %s", said, ", ".join(busy) or "no version")
        self._suspects.blame(in_flight, said)
        self._waits.failed(_KEY, Verdict.TRANSIENT, self._clock.monotonic_ms() - self._began_ms)
        self.is_missing = True

    def started_if_due(self) -> SparkSession | None:
        """As ``started``; None if it is not yet time."""
        return self.started() if self._waits.is_due(_KEY) else None

    def started(self) -> SparkSession | None:
        """The session of another process; None if it does not start, and is to be tried again.

        :raises SparkMissing: if it has not started several times in a row.
        """
        try:
            session = self._java.restart()
        except SparkMissing as error:
            self._failures += 1
            if self._failures >= _MOST_STARTS:
                raise
            wait_ms = self._waits.failed(_KEY, Verdict.TRANSIENT)
            logger.warning("trying again in %.1f s: %s", (wait_ms or 0) / 1000, error)
            return None
        self._failures, self._began_ms, self.is_missing = 0, self._clock.monotonic_ms(), False
        self._suspects.begin_trials()
        return session
