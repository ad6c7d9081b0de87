"""headrace views apply: mistakes that need no Spark are told at once, and Spark is not started for them."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Producer
from headrace.pipeline.project.definition import start_ms
from headrace.pipeline.shared_spark.server import SharedSparkServer
from headrace.tools.views.command import main

#: Seconds of processor time, which depend less on what else runs than the time of the clock. On a machine at rest the
#: command takes 0.7 s. Spark's start alone takes more than this.
MAX_CPU_S = 3


@pytest.fixture
def folder(tmp_path, broker):
    """The example project, whose topic exists."""
    arguments = ["init", str(tmp_path), "--bootstrap-server", broker.bootstrap_servers, "--create-topics"]
    assert main(arguments) == 0
    return tmp_path


def apply(folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """The command as a user runs it, and the processor time that it took."""
    command = [Path(sys.executable).parent / "headrace", "views", "apply", "--project", str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def told(ended: subprocess.CompletedProcess[str], folder: Path) -> list[str]:
    assert (ended.returncode, ended.stdout) == (1, "")
    return [line.removeprefix(f"headrace views: {folder}/") for line in ended.stderr.splitlines()]


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("views/pages.toml", "topics = [", "views/pages.toml: the file is not valid TOML"),
        ("views/pages.sql", None, "cannot read views/pages.sql"),
        ("views/pages.sql", "SELECT page FROM evnts", "views/pages.sql:1:18: there is no table evnts: did you mean"),
        ("views/pages.sql", "SELEC page FROM events", "views/pages.sql:1:1: a view needs a query"),
        ("views/pages.sql", "SELECT count(page FROM events", "views/pages.sql:1:13: there is no ')' for this '('"),
    ],
)
def test_mistakes_that_need_no_spark(folder, file, text, problem):
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    ended, cpu_s = apply(folder)
    (line,) = told(ended, folder)
    assert problem in line
    assert cpu_s < MAX_CPU_S


def test_the_command_does_not_import_what_it_does_not_need(folder):
    (folder / "views" / "pages.sql").write_text("SELECT page FROM evnts")
    code = (
        "import sys; from headrace.tools.views.command import main; main(sys.argv[1:]);"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'starlette', 'numba') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "apply", "--project", str(folder)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == ["[]"]


def test_a_missing_topic(folder):
    view = folder / "views" / "pages.toml"
    view.write_text(view.read_text().replace('"clicks"', '"clikcs"'))
    ended, cpu_s = apply(folder)
    assert "there is no topic 'clikcs': did you mean clicks?" in told(ended, folder)[0]
    assert cpu_s < MAX_CPU_S


def test_sql_that_sqlglot_rejects_is_judged_by_sparks_parser_without_a_session(folder):
    (folder / "views" / "pages.sql").write_text("SELECT page, count(*) AS n\nFORM events GROUP BY page\n")
    ended, _ = apply(folder)
    doubt, problem = told(ended, folder)
    assert doubt.endswith("views/pages.sql:2:1: sqlglot rejects 'FORM' (Invalid expression / Unexpected token); "
                          "asking Spark's own parser")  # fmt: skip
    assert problem == "views/pages.sql:2:1: Syntax error at or near 'FORM'."
    assert not (folder / ".headrace").exists()


def test_a_line_says_that_spark_starts(folder):
    (folder / "views" / "pages.sql").write_text("SELECT pge FROM events\n")
    ended, _ = apply(folder)
    lines = told(ended, folder)
    assert lines[0].startswith("starting Spark")
    assert lines[1:] == ["views/pages.sql:1:8: there is no column pge: did you mean page?"]


def test_a_running_runner_is_asked_instead(folder, capsys):
    problem = {"file": "views/pages.sql", "line": 1, "column": 8, "message": "there is no column pge"}
    asked = []

    def answer(request):
        asked.append([each["definition"]["name"] for each in request["views"]])
        return {"answer": {"problems": [problem] if request["views"] else [], "ways": {}}}

    with SharedSparkServer(folder, answer):
        assert main(["apply", "--json", "--project", str(folder)]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["problems"] == [
        problem | {"file": str(folder / "views/pages.sql")}
    ]
    assert asked == [[], ["pages", "users"]]


def test_only_changed_views_are_checked_by_spark(folder, capsys):
    asked = []

    def answer(request):
        asked.extend(each["definition"]["name"] for each in request["views"])
        ways = {each["definition"]["name"]: "combine" for each in request["views"]}
        return {"answer": {"problems": [], "ways": ways}}

    with SharedSparkServer(folder, answer):
        assert main(["apply", "--project", str(folder)]) == 0
        assert main(["apply", "--project", str(folder)]) == 0
        (folder / "views" / "users.sql").write_text("SELECT user, count(*) AS n FROM events GROUP BY user\n")
        assert main(["apply", "--project", str(folder)]) == 0
    assert asked == ["pages", "users", "users"]
    assert "v2 replays the log" in capsys.readouterr().out


def test_the_plan_has_the_records_that_each_new_version_reads(folder, broker, capsys):
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for hour in (7, 8, 9):
            at_ms = start_ms(f"2026-11-16T0{hour}:00:00Z")
            producer.send("clicks", b"{}", timestamp_ms=at_ms).result()
    users = folder / "views" / "users.toml"
    users.write_text(users.read_text().replace("[kappa]", '[kappa]\nstart = "2026-11-16T08:00:00Z"'))
    with SharedSparkServer(folder, lambda request: {"answer": {"problems": [], "ways": {}}}):
        assert main(["apply", "--dry-run", "--json", "--project", str(folder)]) == 0
        changes = json.loads(capsys.readouterr().out)["changes"]
        assert main(["apply", "--project", str(folder)]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert main(["apply", "--json", "--project", str(folder)]) == 0
        later = json.loads(capsys.readouterr().out)["changes"]
    assert {each["view"]: each["records"] for each in changes} == {"pages": 3, "users": 2}
    assert [line.split()[:4] for line in shown] == [
        ["VIEW", "CHANGE", "REPLAYS", "WHAT"], ["pages", "new", "3", "records"], ["users", "new", "2", "records"],
    ]  # fmt: skip
    assert [(each["change"], each["what"], each["records"]) for each in later] == [("unchanged", "v1 stays", 0)] * 2


def test_apply_says_that_a_view_is_computed_from_the_start_and_why(folder, capsys):
    def answer(request):
        names = [each["definition"]["name"] for each in request["views"]]
        notes = {"users": "the answer is computed from the start (not touched: it uses applyInPandas)"}
        return {"answer": {"problems": [], "ways": dict.fromkeys(names, "whole"), "notes": notes}}

    with SharedSparkServer(folder, answer):
        assert main(["apply", "--dry-run", "--project", str(folder)]) == 0
        told = capsys.readouterr().err
        assert main(["apply", "--json", "--project", str(folder)]) == 0
    assert "users is kept up to date by whole: the answer is computed from the start (not touched: it uses" in told
    assert "pages is kept" not in told
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [(each["view"], each["way"], bool(each["note"])) for each in changes] == [
        ("pages", "whole", False),
        ("users", "whole", True),
    ]


# ------------------------------------------------------------------------------------------------------------- explain

EXPLANATION = {
    "view": "pages", "architecture": "lambda", "way": "combine", "reason": "it groups", "refused": [],
    "cost": {
        "records_read_per_event": 3, "reads": "by all", "spark_jobs_per_micro_batch": 0, "work": "w", "state": "s",
    },
    "warnings": [{"text": "large", "rows": 7}],
}  # fmt: skip


def test_explain_asks_the_runner_about_one_view(folder, capsys):
    (folder / "views" / "users.toml").write_text("topics = [")
    capsys.readouterr()
    with SharedSparkServer(folder, lambda _: {"answer": {"problems": [], "ways": {}, "explanation": EXPLANATION}}):
        assert main(["explain", "pages", "--project", str(folder)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert main(["explain", "pages", "--json", "--project", str(folder)]) == 0
        assert json.loads(capsys.readouterr().out) == EXPLANATION | {"own_offsets": None}
    assert lines[0].startswith("pages (lambda) is kept up to date by combine: ")
    assert lines[-1] == "warning: large"


def test_explain_tells_mistakes_of_the_view_and_not_of_others(folder, capsys):
    (folder / "views" / "users.toml").write_text("topics = [")
    (folder / "views" / "pages.sql").write_text("SELECT page FROM evnts")
    capsys.readouterr()
    assert main(["explain", "pages", "--project", str(folder)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no table evnts" in line
    assert main(["explain", "users", "--project", str(folder)]) == 1
    assert "users.toml: the file is not valid TOML" in capsys.readouterr().err
    assert main(["explain", "page", "--project", str(folder)]) == 1
    assert "there is no view 'page'" in capsys.readouterr().err
