"""Queries and functions that fail are told in a line each. Stack traces come only with --debug."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clicks_truth import Clicks, make_topic
from lasting_server import Server
from views_process import PATIENCE_S, TOPIC, ViewsProject

from headrace.pipeline.shared_spark.client import has_runner

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("views-0")]
_VIEW = f"""\
topics = ["{TOPIC}"]
architecture = "{{architecture}}"
query = "{{query}}"

[decode]
schema = "visitor STRING, page STRING, ms BIGINT"
"""
_FUNCTIONS = """\
from pyspark.sql import functions as F

@F.udf("BIGINT")
def fails(ms):
    raise ValueError("the function does not like this record")

def pages(events):
    return events.groupBy("page").agg(F.max(fails("ms")).alias("n"))

def breaks(events):
    raise KeyError("breaks while it is built")
"""
_DIVIDES = "SELECT page, sum(1 div (ms - ms)) AS n FROM events GROUP BY page"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[ViewsProject]:
    server = Server(tmp_path / "broker")
    make_topic(server.address)
    clicks = Clicks(server.address, random.Random(5))
    clicks.write(200)
    made = ViewsProject(tmp_path / "project", server.address)
    views = made.folder / "views"
    (views / "functions.py").write_text(_FUNCTIONS)
    (views / "divides.sql").write_text(_DIVIDES)
    add(made, "divides", "lambda", "divides.sql")
    add(made, "fails", "kappa", "functions.py:pages")
    yield made
    made.close()
    clicks.close()
    server.close()


def add(project: ViewsProject, name: str, architecture: str, query: str) -> None:
    (project.folder / "views" / f"{name}.toml").write_text(_VIEW.format(architecture=architecture, query=query))


def headrace(project: ViewsProject, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-c", "from headrace.tools.main import main; main()", "views", *words]
    command += ["--project", str(project.folder)]
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False
    )
    return ended.returncode, ended.stdout


def check_has_no_traces(said: str) -> None:
    for trace in ("Traceback", "\tat ", "Py4J", "org.apache.spark"):
        assert trace not in said, said


def check_is_told(said: str, *reasons: str) -> None:
    check_has_no_traces(said)
    for reason in reasons:
        assert any(reason in line for line in said.splitlines()), said


def test_failures_are_lines_and_debug_shows_more(project):
    """There are two Java processes: that of ``views run``, which the other commands use, and that of ``--debug``."""
    project.start()
    project.waits_until(lambda: has_runner(project.folder), "commands cannot use its Spark")

    add(project, "breaks", "lambda", "functions.py:breaks")
    for command in (["apply"], ["explain", "breaks"]):
        code, said = headrace(project, *command)
        assert code == 1
        check_is_told(said, "functions.py:11: KeyError: 'breaks while it is built'")
    (project.folder / "views" / "breaks.toml").unlink()

    code, said = headrace(project, "apply")
    assert code == 0, said
    check_has_no_traces(said)
    project.waits_until(lambda: project.log().count(" failed: ") >= 2, "the two views do not fail")
    assert project.terminate() == 0, project.log()
    check_is_told(
        project.log(),
        "divides v1: failed: Division by zero",
        "fails v1: failed: ValueError: the function does not like",
    )

    code, said = headrace(project, "status")
    assert code == 0
    check_has_no_traces(said)

    code, said = headrace(project, "run", "--once", "--debug")
    assert code == 1
    assert "Traceback" in said
    assert "Command to send" not in said
