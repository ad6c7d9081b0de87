"""Starts threads that use Spark. Each has a thread of its own in the Java process, which ends with it.

PySpark's own ``InheritableThread`` asks the Java process for properties before it calls its target. If the process has
died, the target is never called, and a stack trace on the console is all that remains. Here the owner of the thread
gets every exception.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_spark_thread(
    run: Callable[[], None], failed: Callable[[BaseException], None], name: str | None = None
) -> threading.Thread:
    """
    :param run: inherits Spark's local properties from the caller's thread.
    :param failed: gets the exception that ended ``run``, or because of which ``run`` was not called. Called by the new
        thread.
    :raises Exception: of py4j, if the Java process is gone already.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    properties = None if context is None else context._jsc.sc().getLocalProperties().clone()

    def guarded() -> None:
        try:
            if context is not None:
                context._jsc.sc().setLocalProperties(properties)
            run()
        except BaseException as error:  # noqa: BLE001  the owner of the thread decides
            failed(error)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread
