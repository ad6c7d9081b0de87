"""Chooses the Python that Spark starts on this machine: the one that runs this program, with the installed pyspark.

Spark starts ``PYTHON -m MODULE`` for its tasks, and once more for each stream that reads a Python source. It puts the
``pyspark.zip`` of its own folder first on ``PYTHONPATH``. Modules from a zip file are compiled again in every process:
a process then needs 1.2 s of CPU to start. With the installed package, which has the same files and keeps them
compiled, it needs 0.5 s. A stream waits for that before its first record.

``spark.pyspark.python`` may be any program. So Spark gets ``spark-python``, a script beside this file that removes the
zip files from the path and then executes the same Python. If the zip files do not belong to the package that this
program has imported (``SPARK_HOME`` is another installation), or if the script cannot be executed, Spark gets the
Python itself.

Settings of Spark that do not help: ``spark.python.use.daemon``, ``spark.python.daemon.module`` and
``spark.python.worker.module`` (the process of a stream does not come from the daemon, and its module is fixed), and
``spark.executorEnv.PYTHONPATH`` (it comes after the zip files). A ``SPARK_HOME`` without zip files would need links to
the whole installation before Spark starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headrace.pipeline.spark.catalyst import JavaObject

PROGRAM = Path(__file__).with_name("spark-python")


def choose_python(context: SparkContext) -> None:
    """With a local master, makes tasks use the Python that runs this program, unless another one was configured.

    This holds for all functions and sources that are given to the context from now on.
    """
    is_chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if not (context.master or "").startswith("local") or (is_chosen and context.pythonExec != sys.executable):
        return
    zips = _zips_of_package(context)
    if zips and os.name == "posix" and os.access(PROGRAM, os.X_OK):
        context.environment |= {"HEADRACE_SPARK_PYTHON": sys.executable, "HEADRACE_SPARK_ZIPS": ":".join(zips)}
        context.pythonExec = str(PROGRAM)
    else:
        context.pythonExec = sys.executable


def _zips_of_package(context: SparkContext) -> list[str]:
    """The zip files that Spark puts first on the path; empty if they are not those of the imported package."""
    import pyspark

    jvm: JavaObject = context._jvm
    home = jvm.System.getenv("SPARK_HOME")
    if not home or Path(home).resolve() != Path(pyspark.__file__).resolve().parent:
        return []
    folder = Path(home, "python", "lib")
    return [str(folder / "pyspark.zip"), *map(str, folder.glob("py4j-*-src.zip"))]
