"""Controls Spark's Java process: opens the session in it, checks that it lives, and starts another one after its death.

PySpark starts one Java process and stores its state in variables of its classes: it does not expect the process to end.
``restart`` clears these variables (``session.forget_session``) and opens a session in a new process. Objects of the old
session cannot be used any more.

Only this module decides whether the process lives. Without the process py4j raises many kinds of exceptions
(Py4JNetworkError, Py4JError, ConnectionRefusedError, or returns an empty answer), and some of them have other causes
too. So the process itself is checked, not the exception.
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

#: How long to wait for a process that no longer answers to end.
_END_WAIT_S = 5.0
#: The exit codes of Java with -XX:+ExitOnOutOfMemoryError, and of Spark's executors.
_OUT_OF_MEMORY_CODES = (3, 52)


class JavaGone(HeadraceError):
    """The Java process is gone. The work that was in progress has to be repeated."""


class JavaControl(Protocol):
    """How the runner controls the Java process."""

    def has_ended(self) -> bool:
        """Whether the process has ended. Cheap; called often."""

    def is_gone(self) -> bool:
        """Whether the process has ended or does not answer. Called when something has failed."""

    def exit_reason(self) -> str:
        """Why the process ended, as text."""

    def restart(self) -> SparkSession:
        """
        :raises SparkMissing: if Spark cannot be started.
        """


class JavaProcess:
    """:param open_session: opens a session, and starts a Java process if there is none."""

    def __init__(self, open_session: Callable[[], SparkSession]) -> None:
        self._open = open_session
        self.spark = open_session()

    def has_ended(self) -> bool:
        process = java_of(self.spark)
        return process is not None and process.poll() is not None

    def is_gone(self) -> bool:
        return self.has_ended() or not is_alive(self.spark)

    def exit_reason(self) -> str:
        process = java_of(self.spark)
        if process is None:
            return "it does not answer"
        try:
            code = process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return exit_code_text(code)

    def restart(self) -> SparkSession:
        forget_session(self.spark)
        self.spark = self._open()
        return self.spark

    def close(self) -> None:
        if is_alive(self.spark):
            self.spark.stop()


class ExternalJava:
    """A Java process that the caller of the runner controls. The runner never restarts it."""

    def has_ended(self) -> bool:
        return False

    def is_gone(self) -> bool:
        return False

    def exit_reason(self) -> str:
        return ""

    def restart(self) -> SparkSession:
        raise JavaGone("the runner does not control this Java process, so it cannot restart it")


def exit_code_text(code: int) -> str:
    """The meaning of an exit code."""
    if code in _OUT_OF_MEMORY_CODES:
        return f"out of heap memory, exit code {code}"
    if code == -signal.SIGKILL:
        return "killed with SIGKILL, by a user or by the operating system for lack of memory"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"exit code {code}"
