"""``headrace views run``: the long-running process of a project, a Spark driver for all views; and ``views serve``.

Standard output has a line per listener (``serving HOST:PORT``, ``metrics HOST:PORT``), then ``ready``. The log goes to
standard error. SIGTERM and Ctrl-C end the process after the current transactions; a second signal ends it at once. That
has the effect of ``kill -9``, which loses nothing.

If the Java process dies, the runner starts another one in the same command (``pipeline.runner.java_supervisor``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.http_endpoints.protection import Protection, numerical_address
from headrace.pipeline.runner.lock import RunnerLock, runner_lock
from headrace.pipeline.spark.java_process import JavaProcess
from headrace.properties import ConfigError
from headrace.runtime.clock import SystemClock
from headrace.tools.shared.commands import DONE, FAILED, Output, UsageError
from headrace.tools.shared.http_options import protection_of
from headrace.tools.shared.stderr_log import log_to_stderr
from headrace.tools.views.command import address, open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.management.opened import OpenProject
    from headrace.pipeline.project.settings import Project
    from headrace.pipeline.shared_spark.protocol import Message
    from headrace.pipeline.version.metrics import PipelineMetrics

logger = logging.getLogger("headrace.views")

_CHECK_EVERY_S = 5.0
_RECORD_CLASSES_AFTER_S = 60.0


class Endpoints(NamedTuple):
    """The HTTP endpoints of a runner: addresses by the name of their option. All have the same protection."""

    listen: dict[str, tuple[str, int]]
    protection: Protection


def run_views(options: Namespace, _out: Output) -> int:
    _log_to_stderr("DEBUG" if options.debug else options.log_level.upper())
    listen = {name: address(text) for name in ("serve", "metrics_listen") if (text := getattr(options, name))}
    protection = _protection(options, listen.values())
    stop = threading.Event()
    with ExitStack() as stack:
        here = stack.enter_context(open_project(options))
        lock = stack.enter_context(runner_lock(here.project.serving_url))
        stack.enter_context(_signals(stop))
        threading.Thread(target=_import_views, name="imports", daemon=True).start()
        java = JavaProcess(lambda: _session(here, options.master, stop))
        stack.callback(java.close)
        return _run(stack, here, java, lock, stop, Endpoints(listen, protection), is_once=options.once)


def _import_views() -> None:
    """Imports what versions need while the Java process starts. Most of that time this process only waits."""
    import headrace.pipeline.kappa.view
    import headrace.pipeline.lambda_.view
    import headrace.pipeline.runner.runner
    import headrace.pipeline.spark.source.range_reader  # noqa: F401


def _log_to_stderr(level: str) -> None:
    log_to_stderr(level)
    if level == "DEBUG":
        logging.getLogger("py4j").setLevel(logging.INFO)  # it would log every call into Java
        return
    # The runner reports an exception of a batch, or the death of the Java process, in one line. py4j logs pages of text
    # through its own loggers and through the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _session(here: OpenProject, master: str | None, stop: threading.Event) -> SparkSession:
    from headrace.pipeline.spark.session import open_session

    logger.info("starting Spark at %s", master or here.project.spark_master)
    began = time.monotonic()
    spark = open_session(here.project, master)
    for number in (signal.SIGTERM, signal.SIGINT):  # Spark has replaced our signal handlers by its own.
        signal.signal(number, lambda *_: _ask_to_stop(stop))
    heap = spark.sparkContext.getConf().get("spark.driver.memory") or "Spark's own choice"
    logger.info("Spark %s started in %.1f s; its Java heap: %s", spark.version, time.monotonic() - began, heap)
    return spark


def _run(
    stack: ExitStack,
    here: OpenProject,
    java: JavaProcess,
    lock: RunnerLock,
    stop: threading.Event,
    endpoints: Endpoints,
    *,
    is_once: bool,
) -> int:
    from headrace.pipeline.changes.follower import ChangeFollower
    from headrace.pipeline.export.export_thread import ExportThread
    from headrace.pipeline.runner.runner import Runner
    from headrace.pipeline.source_watch.watch import SourceWatch
    from headrace.pipeline.version.context import RunContext
    from headrace.pipeline.version.metrics import PipelineMetrics

    metrics = PipelineMetrics()
    project = here.project
    context = RunContext(
        spark=java.spark,
        project=project,
        database=here.database,
        catalog=here.catalog,
        clock=SystemClock(),
        checkpoints=project.checkpoints,
        metrics=metrics,
    )
    runner = Runner(context, java=java)
    watch = SourceWatch(context)
    follower = ChangeFollower(
        here.database, here.catalog, context.clock, context.client_options, project.serving_url, metrics.commits
    )
    exports = ExportThread(here.database, here.catalog, context.clock, project.folder)
    if is_once:
        failed = runner.run_once(stop)
        failed += follower.run_once()
        failed += exports.run_once()
        watch.try_to_look()
        watch.close()
        return FAILED if failed else DONE
    if "serve" in endpoints.listen:
        _serve_beside(stack, project.serving_url, endpoints)
    if "metrics_listen" in endpoints.listen:
        _serve_metrics(stack, metrics, endpoints)
    _share_spark(stack, project, java)
    for name, run, wait_s in (
        ("source-watch", watch.run, 10),
        ("changes", follower.run, 20),
        ("export", exports.run, 10),
    ):
        thread = threading.Thread(target=run, args=(stop,), name=name, daemon=True)
        thread.start()
        stack.callback(thread.join, wait_s)
    if project.spark_class_archive:
        _record_classes(stack)
    _tell("ready")
    runner.run(stop, _checks(lock))
    logger.info("stopped")
    return DONE


def _record_classes(stack: ExitStack) -> None:
    """Lets the next Java processes start faster. Waits for a while, so that this start is not delayed."""
    from headrace.pipeline.spark.class_archive import record_in_background

    timer = threading.Timer(_RECORD_CLASSES_AFTER_S, record_in_background)
    timer.daemon = True
    timer.start()
    stack.callback(timer.cancel)


def _checks(lock: RunnerLock) -> Callable[[], None]:
    """The checks that a runner repeats: whether it still may run."""
    last = time.monotonic()

    def check() -> None:
        nonlocal last
        if time.monotonic() - last >= _CHECK_EVERY_S:
            last = time.monotonic()
            lock.keep()

    return check


# ---------------------------------------------------------------------------------------------------------- serving


def _protection(options: Namespace, addresses: Iterable[tuple[str, int]]) -> Protection:
    """Reads the secrets and the certificate, and checks that they are enough for the addresses."""
    from headrace.http_endpoints.asgi_protection import HINTS

    try:
        protection = protection_of(options, os.environ)
        protection.tls_context()
        for host, port in addresses:
            protection.check_address(numerical_address(host, port), HINTS)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return protection


def _serve_beside(stack: ExitStack, url: str, endpoints: Endpoints) -> None:
    from headrace.pipeline.changes.http import FeedServer

    host, port = endpoints.listen["serve"]
    server = FeedServer(url, host, port, endpoints.protection)
    thread = threading.Thread(target=server.run, name="http", daemon=True)
    thread.start()

    def end() -> None:
        server.stop()
        thread.join(10)

    stack.callback(end)
    _tell(f"serving {_shown(host, server.port)}")


def _share_spark(stack: ExitStack, project: Project, java: JavaProcess) -> None:
    """Lets ``apply`` and ``explain`` use the Spark of this process, so that they do not start their own."""
    from headrace.pipeline.shared_spark.protocol import ProtocolError
    from headrace.pipeline.shared_spark.requests import AnsweringSpark, answer_request
    from headrace.pipeline.shared_spark.server import SharedSparkServer
    from headrace.pipeline.version.context import log_options

    def answer(request: Message) -> Message:
        spark = java.spark  # another one after the Java process has died
        return answer_request(AnsweringSpark(spark, log_options(project, spark)), request)

    try:
        stack.enter_context(SharedSparkServer(project.folder, answer))
    except (OSError, ProtocolError) as error:
        logger.warning("commands cannot use this Spark, and will start their own: %s", error)


def _serve_metrics(stack: ExitStack, metrics: PipelineMetrics, endpoints: Endpoints) -> None:
    from headrace.pipeline.runner.metrics_server import MetricsServer

    host, port = endpoints.listen["metrics_listen"]
    server = MetricsServer(metrics, host, port, endpoints.protection)
    stack.callback(server.close)
    _tell(f"metrics {_shown(host, server.port)}")


def serve(options: Namespace, _out: Output) -> None:
    from headrace.pipeline.changes.http import serve as serve_http

    host, port = address(options.listen)
    serve_http(options.project, host, port, _protection(options, [(host, port)]))


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# ---------------------------------------------------------------------------------------------------------- signals


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: _ask_to_stop(stop))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask_to_stop(stop: threading.Event) -> None:
    """A signal handler: it may interrupt any line of the program, so it logs nothing."""
    if stop.is_set():
        os._exit(1)
    stop.set()
