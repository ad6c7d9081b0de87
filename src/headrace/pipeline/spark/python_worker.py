"""The Python that Spark starts on this machine: ours, with pyspark as it is installed.

Spark starts ``PYTHON -m MODULE`` for its tasks, and once more for each stream that reads a Python source. It puts the
``pyspark.zip`` of its own folder first on ``PYTHONPATH``, and what is imported from a zip file is compiled anew every
time: such a process needs 1.2 s of CPU to start, where the package around that folder, which has the same files and
keeps them compiled, takes 0.5. A stream waits for that before its first record.

``spark.pyspark.python`` may be any program. So Spark is given ``spark-python``, a script beside this file that takes
the zip files from the path and becomes the same Python. If they are not those of the package that this program has
imported (``SPARK_HOME`` is another installation), or the script cannot be run, Spark gets the Python itself.

Of no use, as Spark's classes read: ``spark.python.use.daemon``, ``spark.python.daemon.module`` and
``spark.python.worker.module`` (a stream's process is not asked of the daemon, and its module is fixed),
``spark.executorEnv.PYTHONPATH`` (comes after the zip files). A ``SPARK_HOME`` without zip files would be links to all
of the installation, to be made before Spark starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headrace.pipeline.spark.catalyst import Java

PROGRAM = Path(__file__).with_name("spark-python")


def choose_python(context: SparkContext) -> None:
    """On this machine alone, the one that runs this program, unless something else was chosen.

    It counts for all functions and sources that the context is handed from now on.
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
    """What Spark puts first on the path, if that is in the package that was imported here."""
    import pyspark

    jvm: Java = context._jvm
    home = jvm.System.getenv("SPARK_HOME")
    if not home or Path(home).resolve() != Path(pyspark.__file__).resolve().parent:
        return []
    folder = Path(home, "python", "lib")
    return [str(folder / "pyspark.zip"), *map(str, folder.glob("py4j-*-src.zip"))]
