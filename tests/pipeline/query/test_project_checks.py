"""The problems of a project, from its files, the broker and Spark, are returned in one list."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace import Admin
from headrace.pipeline.maintenance.checks import check_views
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query.project_checks import check_by_spark, check_quickly, in_order
from headrace.testing.ports import free_port

VIEW = """\
topics = ["clicks"]
architecture = "lambda"
query = "pages.sql"
[decode]
schema = "page STRING"
"""
SQL = "SELECT page, count(*) AS n FROM events GROUP BY page\n"


class Files:
    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        (folder / "views").mkdir()
        self.settings(f'[log]\nbootstrap = "{bootstrap}"\noptions = {{"isolation.level" = "read_committed"}}\n')
        (folder / "views" / "pages.sql").write_text(SQL)
        self.view("pages", VIEW)

    def settings(self, text: str) -> None:
        (self.folder / "headrace.toml").write_text(text)

    def view(self, name: str, text: str) -> None:
        (self.folder / "views" / f"{name}.toml").write_text(text)

    def quick(self, **how) -> list[str]:
        return self._shown(check_quickly(read_project(self.folder), **how).problems)

    def problems(self, spark, **how) -> list[str]:
        """As with a Spark that is already there: all problems."""
        draft = read_project(self.folder)
        quick = check_quickly(draft, **how)
        more = check_by_spark(
            draft,
            quick,
            draft.project.views,
            lambda views: check_views(spark, views),
        )
        return self._shown(in_order(draft, quick.problems + more.problems))

    def _shown(self, found) -> list[str]:
        return [str(problem).replace(f"{self.folder}/", "").replace("`", "") for problem in found]


@pytest.fixture(scope="module")
def bootstrap(kafka) -> str:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic("clicks")
    return kafka.bootstrap_servers


@pytest.fixture
def files(tmp_path, bootstrap) -> Files:
    return Files(tmp_path, bootstrap)


def test_a_project_without_problems(spark, files):
    assert files.problems(spark) == []


def test_a_publish_topic_that_is_not_compacted_is_a_problem(files, bootstrap):
    files.view("pages", f'{VIEW}[publish]\ntopic = "made-later"\n')
    assert files.quick() == []
    files.view("pages", f'{VIEW}[publish]\ntopic = "kept-for-a-week"\n')
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("kept-for-a-week")
    (problem,) = files.quick()
    assert problem.startswith("views/pages.toml:7: the topic kept-for-a-week has cleanup.policy=delete")


def test_files_topics_schemas_and_queries_are_told_together(spark, files):
    files.view("a", VIEW.replace("lambda", "lamda"))
    files.view("b", VIEW.replace('"clicks"', '"clikcs"'))
    files.view("c", VIEW.replace("page STRING", "page TEXTT"))
    files.view("d", VIEW.replace("pages.sql", "d.sql"))
    (files.folder / "views" / "d.sql").write_text("SELECT count(*) AS n\nFROM events GROUP BY pge\n")
    files.view("e", "topics = [")
    problems = files.problems(spark)
    assert [problem.split(":")[0] for problem in problems] == [
        "views/a.toml", "views/b.toml", "views/c.toml", "views/d.sql", "views/e.toml",
    ]  # fmt: skip
    assert "architecture cannot be 'lamda'" in problems[0]
    assert "there is no topic 'clikcs': did you mean clicks?" in problems[1]
    assert "TEXTT" in problems[2]
    assert "there is no column pge" in problems[3]
    assert "the file is not valid TOML" in problems[4]


def test_a_view_with_a_mistake_is_checked_as_far_as_the_rest_of_its_file_goes(spark, files):
    text = (
        VIEW.replace("lambda", "lamda").replace('"clicks"', '"no name", "clikcs"').replace("page STRING", "page TEXTT")
    )
    files.view("pages", f"frequency = 7\n{text}")
    problems = files.problems(spark)
    for words in ("no field 'frequency'", "'no name' is not the name", "no topic 'clikcs'", "'lamda'", "TEXTT"):
        assert sum(words in problem for problem in problems) == 1, (words, problems)
    assert len(problems) == 5


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('architecture = "lambda"', ""), "architecture is missing"),
        (('query = "pages.sql"', 'query = "gone.sql"'), "cannot read"),
        (('topics = ["clicks"]', 'pattern = "("'), "not a regular expression"),
        (('schema = "page STRING"', ""), "decode.schema is missing"),
        (('schema = "page STRING"', 'schema = 7'), "must be a text"),
        (("[decode]", 'key = 7\n[decode]'), "key must be a list"),
        (("[decode]", '[watermark]\ncolumn = "page"\n[decode]'), "delay is missing"),
    ],
)  # fmt: skip
def test_nothing_is_told_that_only_follows_from_another_problem(spark, files, change, problem):
    files.view("pages", VIEW.replace(*change))
    problems = files.problems(spark)
    assert [each for each in problems if problem not in each] == []
    assert problems


def test_a_query_is_checked_though_another_field_is_wrong(spark, files):
    (files.folder / "views" / "pages.sql").write_text("SELECT pge FROM events\n")
    files.view("pages", VIEW.replace('"lambda"', '"lamda"'))
    problems = files.problems(spark)
    assert len(problems) == 2
    assert "there is no column pge" in problems[0]
    assert "lamda" in problems[1]


def test_settings_that_are_no_toml_do_not_hide_problems_of_views(spark, files):
    files.settings("[log\n")
    files.view("pages", VIEW.replace("page STRING", "page TEXTT"))
    problems = files.problems(spark)
    assert [problem.split(":")[0] for problem in problems] == ["headrace.toml", "views/pages.toml"]


def test_a_broker_that_is_away_is_a_problem_of_its_own(files):
    port = free_port()
    files.settings(f'[log]\nbootstrap = "127.0.0.1:{port}"\n')
    (problem,) = files.quick(broker_timeout_ms=300)
    assert problem.startswith(f"headrace.toml:2: cannot list the topics at 127.0.0.1:{port}: ")
    assert "Connection refused" in problem
    assert "within 300 ms" in problem


def test_other_problems_do_not_wait_for_a_broker_that_is_away(files):
    files.settings(f'[log]\nbootstrap = "127.0.0.1:{free_port()}"\n')
    files.view("users", "architecture = 7\n")
    started_s = time.monotonic()
    problems = files.quick(broker_timeout_ms=60_000)
    assert time.monotonic() - started_s < 30
    assert any("architecture must be a text" in problem for problem in problems)
    assert not any("cannot list" in problem for problem in problems)


def test_without_spark_files_topics_tables_and_sql_are_told(files):
    for name, text in {"b": "SELECT 1 AS x FROM evnts\n", "c": "SELEC 1\n", "d": "SELECT pge FORM events\n"}.items():
        files.view(name, VIEW.replace("pages.sql", f"{name}.sql"))
        (files.folder / "views" / f"{name}.sql").write_text(text)
    files.view("a", VIEW.replace('"clicks"', '"clikcs"'))
    files.view("e", VIEW.replace("pages.sql", "gone.sql"))
    problems = files.quick()
    assert [problem.split(":")[0] for problem in problems] == [
        "views/a.toml", "views/b.sql", "views/c.sql", "views/e.toml",
    ]  # fmt: skip
    quick = check_quickly(read_project(files.folder))
    assert list(quick.doubts) == ["d"]


def test_spark_is_not_asked_again_about_sql_that_is_certainly_wrong(spark, files):
    (files.folder / "views" / "pages.sql").write_text("SELECT page FROM evnts\n")
    assert files.problems(spark) == ["views/pages.sql:1:18: there is no table evnts: did you mean events?"]
