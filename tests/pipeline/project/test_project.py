"""The files of a project: how they are read, and how mistakes in them are reported."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from headrace.pipeline.project.definition import ViewDefinition, Watermark, duration_ms
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.toml_files import ProjectError, lines_of

VIEW = """\
topics = ["clicks"]
architecture = "lambda"
query = "pages.sql"

[decode]
format = "json"
schema = "page STRING, ms BIGINT"
"""
SQL = "SELECT page, count(*) AS n FROM events GROUP BY page\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "views").mkdir()
    (tmp_path / "headrace.toml").write_text('[log]\nbootstrap = "broker:9092"\n')
    (tmp_path / "views" / "pages.sql").write_text(SQL)
    (tmp_path / "views" / "pages.toml").write_text(VIEW)
    return tmp_path


def _problems(folder: Path) -> list[str]:
    try:
        problems = read_project(folder).problems
    except ProjectError as error:
        problems = error.problems
    return [str(problem).replace(f"{folder}/", "") for problem in problems]


def _project(folder: Path) -> Project:
    draft = read_project(folder)
    assert draft.problems == []
    return draft.project


def _with_view(folder: Path, text: str, name: str = "pages") -> Path:
    (folder / "views" / f"{name}.toml").write_text(text)
    return folder


def test_a_project_with_its_defaults(folder):
    project = _project(folder)
    assert project.bootstrap == "broker:9092"
    assert project.serving_url == f"sqlite:///{folder}/headrace-views.db"
    assert project.archive_path == str(folder / "archive")
    assert project.spark_master == "local[*]"
    view = project.views["pages"]
    assert view.topics == ("clicks",)
    assert (view.query.text, view.query.is_python) == (SQL, False)
    assert (view.lambda_.batch_every_ms, view.lambda_.trigger_ms) == (3_600_000, 200)
    assert view.line("decode", "schema") == 7


def test_settings(folder):
    (folder / "headrace.toml").write_text(
        '[log]\noptions = {"request.timeout.ms" = 5000}\n[serving]\nurl = "postgresql://ann:secret@db/views"\n'
        '[archive]\npath = "s3a://bucket/archive"\n[spark]\nmaster = "spark://m:7077"\nconf = {"spark.x" = true}\n'
        'memory = "4g"\n'
    )
    project = _project(folder)
    assert project.spark_memory == "4g"
    assert project.log_options == {"request.timeout.ms": "5000"}
    assert project.serving_url == "postgresql+psycopg://ann:secret@db/views"
    assert project.archive_path == "s3a://bucket/archive"
    assert (project.spark_master, project.spark_conf) == ("spark://m:7077", {"spark.x": "true"})


def test_how_workers_log_in(folder):
    (folder / "headrace.toml").write_text('[log]\nworker_login = "token"\n')
    assert _project(folder).worker_login == "token"
    (folder / "headrace.toml").write_text('[log]\nworker_login = "yes"\n')
    (problem,) = _problems(folder)
    assert "log.worker_login must be one of token, any, password" in problem


def test_the_options_of_the_log_are_not_shown(folder):
    (folder / "headrace.toml").write_text('[log]\noptions = {"client.id" = "hidden"}\n')
    assert "hidden" not in repr(_project(folder))


@pytest.mark.parametrize("memory", ["4", "much", "4 g", "0g", "-1g"])
def test_a_heap_that_java_does_not_understand(folder, memory):
    (folder / "headrace.toml").write_text(f'[spark]\nmemory = "{memory}"\n')
    expected = f'headrace.toml:2: spark.memory must be a size such as "4g" or "1500m", not {memory!r}'
    assert _problems(folder) == [expected]


def test_views_compute_in_utc(folder):
    (folder / "headrace.toml").write_text('[spark.conf]\n"spark.sql.session.timeZone" = "UTC"\n')
    assert _project(folder).spark_conf == {"spark.sql.session.timeZone": "UTC"}
    (folder / "headrace.toml").write_text('[spark.conf]\n"spark.sql.session.timeZone" = "Europe/Berlin"\n')
    (problem,) = _problems(folder)
    assert "spark.sql.session.timeZone cannot be 'Europe/Berlin'" in problem
    assert "from_utc_timestamp(at, 'Europe/Berlin')" in problem


def test_a_class_archive_is_wanted_or_not(folder):
    assert _project(folder).spark_class_archive
    (folder / "headrace.toml").write_text("[spark]\nclass_archive = false\n")
    assert not _project(folder).spark_class_archive
    (folder / "headrace.toml").write_text('[spark]\nclass_archive = "no"\n')
    assert _problems(folder) == ["headrace.toml:2: spark.class_archive must be true or false"]


def test_a_kappa_view_with_everything(folder):
    (folder / "views" / "queries.py").write_text("def sessions(events):\n    return events\n")
    text = """\
pattern = "clicks-.*"
architecture = "kappa"
query = "queries.py:sessions"
key = ["user"]
dead_letters = "clicks.dead"
[decode]
format = "csv"
schema = "user STRING, at TIMESTAMP"
options = {sep = ";"}
[watermark]
column = "at"
delay = "10 minutes"
[kappa]
start = "2026-11-16T08:00:00Z"
switch = "manual"
caught_up_within = 5
batch_every = "2 minutes"
"""
    view = _project(_with_view(folder, text, "sessions")).views["sessions"]
    assert view.query.function == "sessions"
    assert view.decode.options == {"sep": ";"}
    assert view.watermark == Watermark("at", "10 minutes")
    assert (view.kappa.switch, view.kappa.caught_up_within) == ("manual", 5)
    assert (view.batch_every_ms, view.trigger_ms) == (120_000, 500)


def test_a_definition_survives_json(folder):
    view = _project(folder).views["pages"]
    back = ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict())))
    assert back == view
    assert back.definition_hash == view.definition_hash


def test_the_hash_changes_with_the_answer_only(folder):
    before = _project(folder).views["pages"].definition_hash
    _with_view(folder, 'dead_letters = "dead"\n' + VIEW + '[lambda]\nbatch_every = "5 minutes"\n')
    (folder / "views" / "pages.sql").write_text("\n" + SQL.replace("\n", "  \n\n"))
    assert _project(folder).views["pages"].definition_hash == before
    (folder / "views" / "pages.sql").write_text(SQL.replace("count(*)", "sum(ms)"))
    assert _project(folder).views["pages"].definition_hash != before


def test_no_project_here(tmp_path):
    (problem,) = _problems(tmp_path)
    assert problem == f"{tmp_path}: there is no headrace.toml here: 'headrace views init' creates an example project"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[decode]", "[decod]"), "views/pages.toml:5: there is no field 'decod': did you mean decode?"),
        (("format =", "fromat ="), "views/pages.toml:6: there is no field 'fromat' in [decode]: did you mean format?"),
        (('"lambda"', '"lamda"'), "views/pages.toml:2: architecture cannot be 'lamda': did you mean lambda?"),
        (('["clicks"]', "7"), 'views/pages.toml:1: topics must be a list of texts, such as ["a", "b"]'),
        (('"pages.sql"', '"page.sql"'), "views/pages.toml:3: query: cannot read views/page.sql: No such file"),
        (('"pages.sql"', '"pages"'), "views/pages.toml:3: query must be 'FILE.sql' or 'FILE.py:FUNCTION', not 'pages'"),
        (('architecture = "lambda"', ""), "views/pages.toml: architecture is missing: lambda or kappa"),
        (('"json"', '"jsn"'), "views/pages.toml:6: decode.format cannot be 'jsn': did you mean json?"),
        (('"json"', '"raw"'), "views/pages.toml:7: format raw has no schema: its only column is value BINARY"),
        (('"json"', '"python"'), "views/pages.toml:5: format = \"python\" and function"),
        (('"json"', '"avro"'), "views/pages.toml:7: schema: cannot read views/page STRING, ms BIGINT"),
        (("[decode]", "x = = 1"), "views/pages.toml:5: the file is not valid TOML: Invalid value"),
        (
            ("[decode]", '[watermark]\ncolumn = "at"\ndelay = "10 parsecs"\n[decode]'),
            "views/pages.toml:7: delay: '10 parsecs'",
        ),
        (("[decode]", "[kappa]\n[decode]"), "views/pages.toml:5: [kappa] has no effect in a lambda view: remove it"),
        (
            ('"lambda"\n', '"kappa"\nkappa.batch_every = "often"\n'),
            "views/pages.toml:3: batch_every: 'often' is not a duration",
        ),
        (("[decode]", "[lambda]\ntrigger_ms = 0\n[decode]"), "views/pages.toml:6: lambda.trigger_ms must be a whole"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(folder, change, complaint):
    problems = _problems(_with_view(folder, VIEW.replace(*change)))
    assert any(problem.startswith(complaint) for problem in problems), problems


def test_all_mistakes_at_once(folder):
    (folder / "headrace.toml").write_text('[serving]\nurl = "oracle://x"\n[sprak]\n')
    _with_view(folder, VIEW, "Pages-2")
    problems = _problems(folder)
    places = [problem.split(": ")[0] for problem in problems]
    assert places == ["headrace.toml:2", "headrace.toml:3", "views/Pages-2.toml"]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ('"isolation.leve" = "x"', "has no option isolation.leve; did you mean isolation.level"),
        ('"security.protocol" = "TELNET"', "security.protocol = 'TELNET': must be one of PLAINTEXT"),
        ('"ssl.truststore.location" = "/a"', "ssl.truststore.location: set security.protocol too"),
    ],
)
def test_options_that_no_client_takes(folder, option, complaint):
    (folder / "headrace.toml").write_text(f"[log]\noptions = {{ {option} }}\n")
    (problem,) = _problems(folder)
    assert re.match(f"headrace.toml:2: log.options: .*({complaint})", problem), problem


def test_what_the_example_offers_can_be_had(tmp_path):
    """Its lines that are commented out, too."""
    example = (files("headrace.tools.views") / "example_project" / "headrace.toml").read_text()
    offered = re.sub(r"^# (\w+ =)", r"\1", example, flags=re.MULTILINE)
    assert offered != example
    (tmp_path / "headrace.toml").write_text(offered)
    assert _project(tmp_path).log_options


def test_a_function_that_is_not_there(folder):
    (folder / "views" / "q.py").write_text("def pages(events):\n    return events\n")
    problems = _problems(_with_view(folder, VIEW.replace("pages.sql", "q.py:page")))
    assert problems == ["views/pages.toml:3: views/q.py has no function 'page': did you mean pages?"]
    (folder / "views" / "q.py").write_text("x = 1\ndef pages(events:\n")
    (problem,) = _problems(_with_view(folder, VIEW.replace("pages.sql", "q.py:pages")))
    assert problem.startswith("views/q.py:2: not Python")


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("10 minutes", 600_000), ("1 hour 30 min", 5_400_000), ("500ms", 500), ("2 days", 172_800_000)],
)
def test_durations(text, expected_ms):
    assert duration_ms(text) == expected_ms


def test_lines_inside_of_texts_are_not_keys():
    text = 'a = """\nb = 1\n[c]\n"""\n[d]\n"e.f" = 2\ng.h = 3\n'
    assert lines_of(text) == {("a",): 1, ("d",): 5, ("d", "e", "f"): 6, ("d", "g", "h"): 7}
