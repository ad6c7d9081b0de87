"""Opens the Spark session of a project, which all of its views share.

Settings in ``[spark] conf`` of a project override the settings here, except for the time zone: answers are in UTC.

**Other machines.** Tasks need this package and its dependencies. So the Python of the workers
(``spark.pyspark.python``) should have ``headrace[spark]`` installed. If a worker lacks the package or has another
version, this package is sent there. It is not always sent, because compiled kernels are cached only beside an installed
package. The functions of views are sent as text in their definitions.

**The heap.** ``spark.driver.memory`` in ``[spark] conf`` or ``SPARK_DRIVER_MEMORY`` overrides ``[spark] memory``.
Without any of them the heap depends on the memory of this machine (``heap``). With the master ``local[...]`` all tasks
run in that heap; on a cluster only the driver does, and ``spark.executor.memory`` has Spark's default. After an
OutOfMemoryError a Java process cannot be trusted: threads that Spark needs may be gone. So the process ends at once
(``-XX:+ExitOnOutOfMemoryError``; ``spark.driver.extraJavaOptions`` can undo it), and the runner starts another one.

**The log.** The standard error of the JVM and of the workers of this machine goes to a file of the project. It is long
and meant for experts of Spark. The errors in it also arrive as exceptions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headrace.client.errors import HeadraceError
from headrace.pipeline.project.settings import Project
from headrace.pipeline.spark.class_archive import archive_options
from headrace.pipeline.spark.heap import chosen_heap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = getLogger("headrace.views")

STATE_FOLDER = ".headrace"
_LARGE_LOG_BYTES = 10 << 20

#: Settings for a driver that runs for months, with any master.
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark's own expression, and the options of security that have no such word in their names.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl[.]jaas|keystore[.]key",
    "spark.scheduler.mode": "FAIR",  # a replay does not delay the versions that serve
    "spark.sql.streaming.stopTimeout": "20s",
}
#: Java reserves only 48 MB for compiled code with the first compiler alone. A session with many tests of views fills
#: that, and Java then stops compiling. 240 MB is what Java reserves with both compilers.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
_JAVA_OPTIONS, _HEAP = "spark.driver.extraJavaOptions", "spark.driver.memory"
_ALWAYS = {"spark.sql.session.timeZone": "UTC"}
#: The master with which the views of the project run, also in the session of a command that only checks queries.
_VIEWS_MASTER = "spark.headrace.viewsMaster"

#: Text, not a function of this module: Spark sends functions by name, and this package may be missing there.
HAS_PACKAGE = """
def has_package(_):
    try:
        import headrace
        import headrace.pipeline.spark.source.data_source
    except ImportError as error:
        return str(error)
    return headrace.__version__
"""


class SparkMissing(HeadraceError):
    """pyspark or Java is not installed, or Spark does not start."""


def open_session(
    project: Project, master: str | None = None, *, log_name: str = "spark.log", is_short: bool = False
) -> SparkSession:
    """
    :param master: overrides the master of the project.
    :param is_short: the session lives too briefly to benefit from the JVM's optimizer.
    :param log_name: the name of Spark's log file in the project's ``.headrace`` folder.
    :raises SparkMissing: if Spark cannot be started.
    """
    master = master or project.spark_master
    try:
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(f"views need more packages: run pip install 'headrace[spark]' ({error})") from None
    builder = SparkSession.builder.master(master).appName(f"headrace {project.folder.name}")
    for name, value in session_conf(project, master, is_short=is_short).items():
        builder = builder.config(name, value)
    log = project.folder / STATE_FOLDER / log_name
    for name in (
        "SQLQueryContextLogger",
        "DataFrameQueryContextLogger",
    ):  # they log every refused query as a page of JSON
        PySparkLogger.getLogger(name).setLevel(CRITICAL)
    _choose_python(master)
    try:
        with errors_to(log):
            session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise SparkMissing(
            f"Spark does not start (it needs Java 17 or newer): {_first_line(error)}; see {log}"
        ) from None
    _set_up(session, master)
    return session


def _choose_python(master: str) -> None:
    """Makes Spark start the Python that has this package, not the first one in PATH."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


@contextmanager
def errors_to(log: Path) -> Iterator[None]:
    """Programs that are started within this context have this file as their standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LARGE_LOG_BYTES:
        log.replace(log.with_suffix(".old.log"))
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def session_conf(project: Project, master: str, *, is_short: bool = False) -> dict[str, str]:
    conf = dict(_CONF)
    if heap := _heap(project, is_short):
        conf[_HEAP] = heap
    conf["spark.sql.warehouse.dir"] = str(project.folder / STATE_FOLDER / "warehouse")
    if is_local(master):
        # Other machines must not reach the driver. Shuffles need no more tasks than there are cores.
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        conf["spark.sql.shuffle.partitions"] = str(_cores(master))
    # If an option occurs twice, Java takes the last one, so the options of the project win.
    of_project = project.spark_conf.get(_JAVA_OPTIONS, _SHORT_LIVED if is_short else "")
    archive = archive_options() if project.spark_class_archive else []
    options = [_END_WITHOUT_MEMORY, *archive, of_project]
    always = _ALWAYS | {_VIEWS_MASTER: project.spark_master if is_short else master}
    return conf | dict(project.spark_conf) | {_JAVA_OPTIONS: " ".join(options).strip()} | always


def _heap(project: Project, is_short: bool) -> str:
    """The heap; empty for Spark's default, which is enough for the few rows of a short session."""
    if project.spark_memory:
        return project.spark_memory
    return "" if is_short or "SPARK_DRIVER_MEMORY" in os.environ else chosen_heap()


def views_master(spark: SparkSession) -> str:
    """The master with which the views of the project run."""
    return spark.conf.get(_VIEWS_MASTER, None) or spark.sparkContext.master or ""


def is_local(master: str) -> bool:
    """Whether tasks run in the process of the driver."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _cores(master: str) -> int:
    """4 for ``local[4]``, the cores of this machine for ``local[*]``, 1 for ``local``."""
    inside = master.removeprefix("local").strip("[]").partition(",")[0]
    return int(inside) if inside.isdecimal() else (os.cpu_count() or 1) if inside else 1


def _set_up(session: SparkSession, master: str) -> None:
    from headrace.pipeline import register

    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.sparkContext.setLogLevel(session.sparkContext.getConf().get("spark.log.level", "ERROR") or "ERROR")
    _quieten(session)
    if not is_local(master):
        _ship_package(session)
    register(session)


def _quieten(session: SparkSession) -> None:
    """Keeps PySpark's accumulator server from printing a traceback when the Java process dies."""

    def handle_error(*_: object) -> None:
        logger.debug("the accumulator server lost its connection", exc_info=True)

    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = handle_error


# ------------------------------------------------------------------------------------------------------ other machines


def _ship_package(session: SparkSession) -> None:
    context = session.sparkContext
    names: dict[str, object] = {"__name__": "__main__"}
    exec(HAS_PACKAGE, names)
    check = cast(Callable[[int], str], names["has_package"])
    places = max(2, context.defaultParallelism)
    answers = set(context.parallelize(range(places), places).map(check).collect())
    if answers == {version("headrace")}:
        return
    logger.info("the workers do not have headrace %s (%s): sending it", version("headrace"), "; ".join(sorted(answers)))
    with tempfile.TemporaryDirectory() as folder:
        context.addPyFile(package_archive(Path(folder)))


def package_archive(folder: Path) -> str:
    """Creates a zip file of this package."""
    source = Path(__file__).parents[2]
    copy = folder / "copy"
    shutil.copytree(source, copy / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    return shutil.make_archive(str(folder / "headrace"), "zip", copy)


def is_alive(session: SparkSession) -> bool:
    """Whether the JVM of the session answers and has not stopped Spark."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001  py4j raises many kinds of exceptions
        return False


def java_of(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The Java process of a session; None if this program did not start it."""
    return getattr(session.sparkContext._gateway, "proc", None)


def forget_session(session: SparkSession) -> None:
    """Removes what is left of a session whose Java process is gone, so that another session can be opened."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    context, process = session.sparkContext, java_of(session)
    if process is not None:
        process.kill()
        process.wait()
    accumulators = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.shutdown()
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):  # its Java side is gone; this only closes our own sockets
            gateway.shutdown()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = SQLContext._instantiatedContext = None


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


__all__ = [
    "STATE_FOLDER",
    "SparkMissing",
    "forget_session",
    "is_alive",
    "is_local",
    "java_of",
    "open_session",
    "package_archive",
    "session_conf",
    "views_master",
]
