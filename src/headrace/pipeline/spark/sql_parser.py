"""Asks Spark's own parser whether a text is SQL, without starting Spark.

A Java process with Spark's classes and py4j's gateway is up within a second or two; a Spark session takes many times
as long. The process accepts connections from this host only, with a secret that it prints to the pipe that started it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

from headrace.pipeline.spark.errors import SyntaxProblem, syntax_problem

logger = getLogger(__name__)

_JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_END_WAIT_S = 5.0


def syntax_problems(texts: Mapping[str, str]) -> dict[str, SyntaxProblem | None] | None:
    """For each text, what Spark's parser rejects; None if it accepts the text.

    :return: None if the parser cannot be started. Spark then has to decide.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    found: dict[str, SyntaxProblem | None] = {}
    try:
        with _parser() as parser:
            for name, text in texts.items():
                try:
                    parser.parsePlan(text)
                    found[name] = None
                except Py4JJavaError as error:
                    found[name] = syntax_problem(str(error.java_exception.getMessage()))
    except (OSError, ValueError, Py4JError) as error:
        logger.debug("Spark's parser does not start: %s", error)
        return None
    return found


@contextmanager
def _parser() -> Iterator[Any]:
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]

    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars", "*")
    command = [java, *_JAVA_OPTIONS, "-cp", str(jars), "py4j.GatewayServer"]
    # The process ends when its standard input is closed, so also if this process is killed.
    process = subprocess.Popen(
        [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    gateway = None
    try:
        assert process.stdout is not None
        port, secret = int(process.stdout.readline()), process.stdout.readline().strip()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
        package = gateway.jvm.org.apache.spark.sql.catalyst.parser
        yield getattr(getattr(package, "CatalystSqlParser$"), "MODULE$")
    finally:
        if gateway is not None:
            gateway.close()
        process.kill()
        process.communicate(timeout=_END_WAIT_S)
