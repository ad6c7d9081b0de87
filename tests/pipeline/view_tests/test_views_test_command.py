"""headrace views test: mistakes are told at once, and tests run with the Spark of a runner."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from shop_project import make_shop

from headrace.pipeline.shared_spark.requests import AnsweringSpark, answer_request
from headrace.pipeline.shared_spark.server import SharedSparkServer
from headrace.tools.views.command import main

#: Seconds of processor time. Spark's start alone takes more than this.
MAX_CPU_S = 3
WRONG = """
[[test]]
records.orders = [{ amout = 1 }]
rows = [{ totl = 1 }]
"""
SPENDING = """
# of each customer
[[test]]
name = "orders add up"
architectures = ["kappa"]
records.orders = [{ customer_id = 1, amount = 30 }]
rows = [{ customer_id = 1, total = 31 }] # wrong
"""


def run_command(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """The command as a user runs it, and the processor time that it took."""
    command = [Path(sys.executable).parent / "headrace", "views", "test", *arguments, "--project", str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_mistakes_are_told_without_spark(tmp_path):
    make_shop(tmp_path, revenue=WRONG)
    (tmp_path / "views/revenue.sql").write_text("SELECT country, sum(amount AS total FROM orders, customers")
    ended, cpu_s = run_command(tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert [line.removeprefix(f"headrace views: {tmp_path}/") for line in ended.stderr.splitlines()] == [
        "views/revenue.sql:1:20: there is no ')' for this '('",
        "tests/revenue.toml:3: orders has no column amout: did you mean amount?",
    ]
    assert cpu_s < MAX_CPU_S


def test_an_unknown_column_of_the_answer_is_told_without_spark(tmp_path, capsys):
    make_shop(tmp_path, revenue=WRONG.replace("amout", "amount"))
    assert main(["test", "--project", str(tmp_path), "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["line"], problem["message"]) == (4, "the view revenue has no column totl: did you mean total?")


def test_mistakes_of_other_views_do_not_matter(tmp_path, capsys):
    make_shop(tmp_path, revenue=WRONG, spending=SPENDING)
    (tmp_path / "views/revenue.sql").write_text("SELEC")
    assert main(["test", "spending", "-k", "no such test", "--project", str(tmp_path)]) == 0
    assert "there are no tests that fit" in capsys.readouterr().out
    assert main(["test", "spendin", "--project", str(tmp_path)]) == 2
    assert "there is no view 'spendin'" in capsys.readouterr().err


def test_a_project_without_tests(tmp_path, capsys):
    assert main(["test", "--project", str(make_shop(tmp_path)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tests": [], "passed": 0, "failed": 0}


@pytest.fixture
def shop(tmp_path, spark) -> Iterator[Path]:
    """A project whose runner answers with the Spark of this process."""
    make_shop(tmp_path, spending=SPENDING)
    with SharedSparkServer(tmp_path, lambda request: answer_request(AnsweringSpark(spark, {}), request)):
        yield tmp_path


def test_the_command_uses_the_spark_of_the_runner(shop, capsys):
    report = shop / "report.xml"
    assert main(["test", "--project", str(shop), "--junit", str(report)]) == 1
    ended = capsys.readouterr()
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0].startswith("FAILED  spending: orders add up  (kappa by combine; ")
    assert lines[1:] == [
        "        lambda is skipped: the test does not ask for it",
        f"    {shop}/tests/spending.toml:3: kappa by combine: 1 row changed",
        "           customer_id  total     last",
        "        ~  1            31 -> 30  NULL",
        lines[-1],
    ]
    assert lines[-1].startswith("1 failed in ")
    (suite,) = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")


def test_update_writes_the_rows_and_then_the_test_passes(shop, capsys):
    assert main(["test", "--update", "--project", str(shop)]) == 0
    assert "updated" in capsys.readouterr().err
    after = SPENDING.replace("total = 31", "total = 30")
    assert (shop / "tests/spending.toml").read_text() == after
    assert main(["test", "--json", "--project", str(shop)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["passed"], shown["failed"]) == (1, 0)
    assert shown["tests"][0]["ways"] == {"kappa": "combine"}


def test_mistakes_that_only_spark_finds_have_their_line(shop, capsys):
    (shop / "tests/spending.toml").write_text(SPENDING.replace("total = 31", 'total = "31"'))
    assert main(["test", "--project", str(shop)]) == 2
    assert "tests/spending.toml:7: total is int64: write a whole number" in capsys.readouterr().err
    (shop / "views/spending.sql").write_text("SELECT customer_id, nosuch(amount) AS total FROM orders GROUP BY 1")
    assert main(["test", "--project", str(shop)]) == 2
    assert "views/spending.sql:1" in capsys.readouterr().err
