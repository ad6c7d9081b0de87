"""Keeps Spark's session in a Java process, which is started again when it has died.

PySpark starts one Java process and keeps what belongs to it in variables of its classes: it does not expect the process
to end. ``restart`` clears them (``session.forget_session``), and opens a session in a new process. Objects of the old
one are of no use any more.

Whether the process is there is decided here and nowhere else. What py4j raises without it is of many kinds
(Py4JNetworkError, Py4JError, ConnectionRefusedError of the operating system, an empty answer), and some of them are
raised for other reasons too. So no exception is looked at: the process is.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headrace.client.errors import HeadraceError
from headrace.pipeline.spark.session import forget_session, is_alive, java_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a process that does not answer any more may take to end by itself.
_END_WAIT_S = 5.0
#: Java's own with -XX:+ExitOnOutOfMemoryError, and Spark's for an executor.
_OUT_OF_MEMORY = (3, 52)


class JavaGone(HeadraceError):
    """The Java process is not there any more: whatever was under way in it has to be done again."""


class Java(Protocol):
    """What the runner wants to know of the Java process."""

    def has_ended(self) -> bool:
        """Whether the process is over; cheap, and asked often."""

    def is_gone(self) -> bool:
        """The same, or it does not answer; asked when something has failed."""

    def last_words(self) -> str:
        """How it ended, for a person."""

    def restart(self) -> SparkSession:
        """
        :raises SparkMissing: if no process can be started.
        """


class JavaProcess:
    """:param open_session: opens a session, and starts a Java process for that if there is none."""

    def __init__(self, open_session: Callable[[], SparkSession]) -> None:
        self._open = open_session
        self.spark = open_session()

    def has_ended(self) -> bool:
        process = java_of(self.spark)
        return process is not None and process.poll() is not None

    def is_gone(self) -> bool:
        return self.has_ended() or not is_alive(self.spark)

    def last_words(self) -> str:
        process = java_of(self.spark)
        if process is None:
            return "it does not answer"
        try:
            code = process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return in_words(code)

    def restart(self) -> SparkSession:
        forget_session(self.spark)
        self.spark = self._open()
        return self.spark

    def close(self) -> None:
        if is_alive(self.spark):
            self.spark.stop()


class LastingJava:
    """A Java process that somebody else takes care of."""

    def has_ended(self) -> bool:
        return False

    def is_gone(self) -> bool:
        return False

    def last_words(self) -> str:
        return ""

    def restart(self) -> SparkSession:
        raise JavaGone("this Java process is not started again from here")


def in_words(code: int) -> str:
    """What an exit code says."""
    if code in _OUT_OF_MEMORY:
        return f"out of heap memory, exit code {code}"
    if code == -signal.SIGKILL:
        return "killed with SIGKILL, by somebody or by the system for want of memory"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"
