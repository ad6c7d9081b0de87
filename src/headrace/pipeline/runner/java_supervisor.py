"""Starts another Java process when Spark's Java process has died, and records which versions were working.

The first start follows half a second after the death. While the processes live for less than five seconds, each further
start waits longer, up to 30 s. A process that does not start at all is tried five times.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.pipeline.runner.quarantine import Quarantine
from headrace.pipeline.runner.retries import Retries
from headrace.pipeline.serving.catalog import VersionKey
from headrace.pipeline.spark.java_process import JavaControl, JavaGone
from headrace.pipeline.spark.session import SparkMissing
from headrace.pipeline.version.failures import FailureKind
from headrace.pipeline.version.work_in_flight import Work
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")
_MAX_STARTS = 5
_KEY: VersionKey = ("java", 0)


class JavaSupervisor:
    def __init__(self, java: JavaControl, quarantine: Quarantine, clock: Clock) -> None:
        self._java, self._quarantine, self._clock = java, quarantine, clock
        self._waits = Retries(clock)
        self._began_ms = clock.monotonic_ms()
        self._failures = 0
        #: Whether a process has died, and no other one was started yet.
        self.is_missing = False

    def check(self, error: BaseException) -> None:
        """
        :raises JavaGone: if the Java process is gone; that is then the cause of the error.
        """
        if self._java.is_gone():
            raise JavaGone("Spark's Java process has exited; the runner starts another one") from error

    def has_ended(self) -> bool:
        return not self.is_missing and self._java.has_ended()

    def died(self, unfinished: Mapping[VersionKey, frozenset[Work]]) -> None:
        """
        :param unfinished: the work of each version when the process died.
        """
        reason = self._java.exit_reason()
        busy = [f"{key[0]} v{key[1]} ({', '.join(sorted(works))})" for key, works in unfinished.items() if works]
        logger.error("Spark's Java process has died: %s; versions at work: %s", reason, ", ".join(busy) or "none")
        self._quarantine.record_crash(unfinished, reason)
        self._waits.failed(_KEY, FailureKind.TRANSIENT, self._clock.monotonic_ms() - self._began_ms)
        self.is_missing = True

    def restart_if_due(self) -> SparkSession | None:
        """As ``restart``; None if the wait is not over."""
        return self.restart() if self._waits.is_due(_KEY) else None

    def restart(self) -> SparkSession | None:
        """Starts another Java process and returns its session; None if the start failed and is to be repeated.

        :raises SparkMissing: if the start has failed several times in a row.
        """
        try:
            session = self._java.restart()
        except SparkMissing as error:
            self._failures += 1
            if self._failures >= _MAX_STARTS:
                raise
            wait_ms = self._waits.failed(_KEY, FailureKind.TRANSIENT)
            logger.warning("trying again in %.1f s: %s", (wait_ms or 0) / 1000, error)
            return None
        self._failures, self._began_ms, self.is_missing = 0, self._clock.monotonic_ms(), False
        self._quarantine.start_trials()
        return session
