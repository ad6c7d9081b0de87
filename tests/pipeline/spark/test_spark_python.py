"""Spark's processes import the installed pyspark, and otherwise run the same Python as this program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from headrace.pipeline.spark.python_worker import PROGRAM, choose_python

PACKAGE = Path(pyspark.__file__).parent
CODE = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, *sys.argv[1:], sep='|')"


@pytest.mark.parametrize(
    ("before", "after"),
    [("/s/p.zip:/s/4.zip:/s/core.jar:/mine", "/s/core.jar:/mine"), ("/other/p.zip:/mine", "/other/p.zip:/mine")],
)
def test_only_the_zip_files_of_the_installation_are_left_out(before, after):
    ours = {"HEADRACE_SPARK_PYTHON": sys.executable, "HEADRACE_SPARK_ZIPS": "/s/p.zip:/s/4.zip"}
    done = subprocess.run(
        [PROGRAM, "-c", CODE, "two words", "$x*"],
        env={**os.environ, **ours, "PYTHONPATH": before}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.rstrip("\n") == f"{after}|{sys.executable}|two words|$x*"


def test_the_process_of_a_stream_imports_the_installed_package(spark, tmp_path):
    class Nothing(SimpleDataSourceStreamReader):
        def initialOffset(self):  # noqa: N802  Spark's name, here and below
            return {"at": 0}

        def read(self, start):
            return iter([]), start

        def readBetweenOffsets(self, start, end):  # noqa: N802
            return iter([])

    class Whence(DataSource):
        def schema(self):
            return "n INT"

        def simpleStreamReader(self, schema):  # noqa: N802
            # Several processes ask for a reader; the one of the stream is known by the module that it runs.
            found = Path(self.options["folder"], sys.modules["__main__"].__spec__.name)
            found.write_text(f"{pyspark.__file__}\n{sys.executable}")
            return Nothing()

    spark.dataSource.register(Whence)
    frame = spark.readStream.format("Whence").option("folder", str(tmp_path)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    found = tmp_path / "pyspark.sql.streaming.python_streaming_source_runner"
    assert found.read_text().splitlines() == [str(PACKAGE / "__init__.py"), sys.executable]


def test_a_task_imports_the_installed_package_too(spark):
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: (__import__("pyspark").__file__, sys.executable))
    assert found.collect() == [(str(PACKAGE / "__init__.py"), sys.executable)]


@pytest.fixture
def context(spark, monkeypatch):
    """As Spark made it."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setattr(spark.sparkContext, "environment", {})
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return spark.sparkContext


def test_another_python_that_was_chosen_stays(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setattr(context, "pythonExec", "/opt/python")
    choose_python(context)
    assert (context.pythonExec, context.environment) == ("/opt/python", {})


def test_this_python_may_have_been_chosen_by_name(context, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(context, "pythonExec", sys.executable)
    choose_python(context)
    assert context.pythonExec == str(PROGRAM)


def test_the_zip_files_of_another_installation_stay(context, monkeypatch, tmp_path):
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    choose_python(context)
    assert (context.pythonExec, context.environment) == (sys.executable, {})


def test_a_program_that_cannot_be_run_is_done_without(context, monkeypatch, tmp_path):
    monkeypatch.setattr("headrace.pipeline.spark.python_worker.PROGRAM", tmp_path / "spark-python")
    choose_python(context)
    assert (context.pythonExec, context.environment) == (sys.executable, {})
