"""Spreads the micro-batches of all versions, so that together they use a bounded part of the machine.

A micro-batch costs about as much for ten records as for a hundred: the log is asked, the database commits. Many
versions that each run five micro-batches per second fill a machine, although few records arrive. This module makes the
time between two micro-batches of a version longer when the micro-batches of all versions together cost too much::

    interval >= the sum of what one micro-batch of each version costs / the CPU time per second that all may use

The interval is a multiple of ``trigger_ms`` of the version, and never longer than a second because of other versions:
so an answer stays about a second old, whatever the number of versions.

The cost of a micro-batch is CPU time of the thread that runs it, in Python and in the JVM. Spark jobs are not counted:
only a micro-batch with many records runs one, and then the version is behind and does not wait at all.
"""

from __future__ import annotations

import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The part of each core that the micro-batches of all versions may use while no version is behind.
_SHARE_OF_CORE = 0.08
#: Python runs one thread at a time, so more cores do not help.
_MOST_CORES = 0.5
#: The longest interval that other versions can cause.
MAX_INTERVAL_MS = 1_000
#: The weight of the newest cost in the mean.
_NEWEST = 0.25


class CpuBudget:
    """Any thread may call its methods.

    :param cores: the CPU time per second that all versions may use.
    """

    def __init__(self, cores: float | None = None) -> None:
        self._cores = min(_MOST_CORES, _SHARE_OF_CORE * (os.cpu_count() or 1)) if cores is None else cores
        self._costs_ms: dict[object, float] = {}
        self._lock = threading.Lock()

    def interval_ms(self, version: object, trigger_ms: int, cost_ms: float) -> int:
        """The time from the start of a micro-batch to the start of the next one: ``trigger_ms``, or a multiple of it.

        :param version: identifies the version.
        :param cost_ms: the CPU time of its last micro-batch, or of its last look for records.
        """
        with self._lock:
            known_ms = self._costs_ms.get(version, cost_ms)
            self._costs_ms[version] = known_ms + _NEWEST * (cost_ms - known_ms)
            wanted_ms = sum(self._costs_ms.values()) / self._cores
        most = max(1, MAX_INTERVAL_MS // trigger_ms)
        return trigger_ms * min(most, max(1, math.ceil(wanted_ms / trigger_ms)))

    def forget(self, version: object) -> None:
        """Forgets a version that has stopped."""
        with self._lock:
            self._costs_ms.pop(version, None)


class ThreadCpu:
    """Measures the CPU time of the current thread, in Python and in the thread of the JVM that works for it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()

    def seconds(self) -> float:
        java_ns = int(self._threads.getCurrentThreadCpuTime())  # -1 if the JVM cannot tell
        return time.thread_time() + max(0, java_ns) / 1e9
