"""Runs the two sides of the pipeline's benchmark: each is a Python process with a Spark session for the whole run.

Spark's own connector must have the version of Spark, and Maven has the connector up to 4.0.0. So the peer gets a
virtual environment of its own, ``.cache/spark-4.0.0`` (pip), and the connector's jars, ``.cache/spark-kafka-4.0.0``
(Maven). Both are fetched on first use. Ours runs in the environment of this program.

A side runs :mod:`pipeline_worker`, which gets one line of JSON per task and answers with one line. While one side
works, the other side waits.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Self

from servers import ROOT

SPARK_VERSION = "4.0.0"
PEER_ENVIRONMENT = ROOT / ".cache" / f"spark-{SPARK_VERSION}"
CONNECTOR_JARS = ROOT / ".cache" / f"spark-kafka-{SPARK_VERSION}"
_WORKER = Path(__file__).with_name("pipeline_worker.py")
_POM = f"""<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{SPARK_VERSION}</version></dependency>
</dependencies></project>"""


def fetch_peer() -> None:
    """Spark 4.0.0 and its Kafka connector, unless they are there."""
    if not CONNECTOR_JARS.exists():
        _fetch_connector()
    if not (PEER_ENVIRONMENT / "fetched").exists():
        print(f"fetching PySpark {SPARK_VERSION} by pip ...", flush=True)
        venv.create(PEER_ENVIRONMENT, with_pip=True, clear=True)
        packages = [f"pyspark[sql]=={SPARK_VERSION}", "pandas<3", "pyarrow", "sqlalchemy"]
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run([PEER_ENVIRONMENT / "bin" / "python", *install], check=True, timeout=900)
        (PEER_ENVIRONMENT / "fetched").touch()


def _fetch_connector() -> None:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed: the benchmark runs Spark's Kafka connector, which is fetched by Maven")
    print(f"fetching Spark's Kafka connector {SPARK_VERSION} by Maven ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(_POM)
        jars = Path(folder, "jars")
        command = ["mvn", "-q", "-f", folder, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run([*command, "-DincludeScope=runtime"], check=True, timeout=600)
        CONNECTOR_JARS.parent.mkdir(exist_ok=True)
        shutil.copytree(jars, CONNECTOR_JARS)


def connector_jars() -> str:
    """For Spark's setting ``spark.jars``; what Spark has itself is left out."""
    own = {path.name.rsplit("-", 1)[0] for path in PEER_ENVIRONMENT.glob("lib/python*/site-packages/pyspark/jars/*")}
    return ",".join(str(jar) for jar in sorted(CONNECTOR_JARS.iterdir()) if jar.name.rsplit("-", 1)[0] not in own)


class Side:
    """
    :param name: as the table has it, "apache" or "headrace".
    :param folder: of its own, for checkpoints and databases.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._log = (folder / f"{name}.log").open("w+")
        is_ours = name == "headrace"
        python = sys.executable if is_ours else str(PEER_ENVIRONMENT / "bin" / "python")
        jars = "" if is_ours else connector_jars()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        self._process = subprocess.Popen(
            [python, str(_WORKER), name, str(folder), jars],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def tell(self, load: str, **arguments: object) -> None:
        """Has it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"load": load, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Waits until it is done."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                found: dict[str, Any] = json.loads(line.removeprefix("answer "))
                return found
        self._log.seek(0)
        raise RuntimeError(f"{self.name} ended: {self._log.read()[-3000:]}")

    def ask(self, load: str, **arguments: object) -> dict[str, Any]:
        self.tell(load, **arguments)
        return self.answer()
