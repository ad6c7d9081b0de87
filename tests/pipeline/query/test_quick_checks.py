"""The SQL of views is checked without Spark. Only what Spark certainly rejects is a problem."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.quick_checks import check_sql
from headrace.pipeline.spark.sql_parser import syntax_problems

ACCEPTED = [
    "SELECT page, count(*) AS n FROM events GROUP BY page",
    "-- a comment (\n(SELECT 1 AS one FROM clicks)",
    "FROM events SELECT page",
    "WITH a AS (SELECT * FROM events), b AS (SELECT * FROM a) SELECT * FROM b JOIN a ON a.page = b.page",
    "SELECT ')' AS closing, r'\\' AS raw, \"(\" AS opening FROM events",
    "SELECT * FROM range(10)",
    "SELECT * FROM parquet.`/a/file`",
    "SELECT end, from FROM events group",
    "VALUES (1), (2)",
    "TABLE events",
    "FROM events |> WHERE page = 'a' |> AGGREGATE count(*) AS n GROUP BY page",
    "SELECT page FROM EVENTS WHERE EXISTS (SELECT 1 FROM `clicks`)",
    "SELECT 'now' AS word, DATE '2026-11-19' AS day, TIMESTAMP 'epoch' AS begin FROM events -- DATE 'today'",
    "SELECT t.x FROM events LATERAL VIEW explode(array(1, 2)) t AS x",
    "SELECT * FROM events PIVOT (count(*) FOR page IN ('a', 'b'))",
]


def view(text: str) -> ViewDefinition:
    return ViewDefinition(
        name="pages",
        topics=("clicks",),
        pattern="",
        architecture="lambda",
        query=FileText("views/pages.sql", text),
        decode=Decode(schema="page STRING"),
        file=Path("views/pages.toml"),
    )


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_spark_accepts_is_no_problem(text):
    assert check_sql(view(text)).problem is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1:1: the file has no query"),
        ("-- nothing\n", "1:1: the file has no query"),
        (
            "\n  SELEC page FROM events",
            "2:3: a view needs a query: one SELECT or WITH, which cannot begin with 'SELEC'",
        ),
        ("DROP TABLE events", "1:1: a view needs a query"),
        ("SELECT count(page FROM events", "1:13: there is no ')' for this '('"),
        ("SELECT page)\nFROM events", "1:12: there is no '(' for this ')'"),
        ("SELECT page\nFROM evnts", "2:6: there is no table evnts: did you mean events?"),
        ("SELECT 1 FROM events WHERE page IN (SELECT page FROM users)", "1:54: there is no table users"),
        ("WITH a AS (SELECT 1) SELECT * FROM a, b", "1:39: there is no table b"),
        (
            "SELECT * FROM events\nWHERE at > TIMESTAMP'now'",
            "2:12: a view needs one answer for the same records, but as a time, 'now' has another value each time",
        ),
        ("SELECT date ' Today ' AS day FROM events", "1:8: a view needs one answer for the same records"),
    ],
)
def test_certain_problems_have_their_place(text, problem):
    found = check_sql(view(text)).problem
    assert str(found).startswith(f"views/pages.sql:{problem}")


def test_time_windows_are_no_doubt():
    query = "SELECT window(e.at, '1 hour') AS w, count(*) AS n FROM events e GROUP BY window(e.at, '1 hour'), page"
    assert check_sql(view(query)) == (None, None)


def test_what_only_sqlglot_rejects_is_a_doubt_at_the_word_that_it_rejects():
    found = check_sql(view("SELECT page, count(*) AS n\nFORM events GROUP BY page"))
    assert found.problem is None
    assert str(found.doubt).startswith("views/pages.sql:2:1: sqlglot rejects 'FORM'")


def test_a_query_of_very_many_terms_is_for_spark_to_judge():
    terms = "(" * sys.getrecursionlimit() + "1" + ")" * sys.getrecursionlimit()
    assert check_sql(view(f"SELECT {terms} AS x FROM events")) == (None, None)


def test_sparks_own_parser_decides_without_a_session():
    wrong = "SELECT page, count(*) AS n\nFORM events GROUP BY page"
    found = syntax_problems({"wrong": wrong, **{str(number): text for number, text in enumerate(ACCEPTED)}})
    assert found is not None
    problem = found.pop("wrong")
    assert problem is not None
    assert problem.message == "Syntax error at or near 'FORM'."
    assert problem.place == (2, 1)
    assert set(found.values()) == {None}


def test_the_names_of_sources_are_tables():
    orders, customers = (SourceDefinition(name, "events", (name,), "", Decode("raw")) for name in ("orders", "people"))
    query = FileText("views/v.sql", "SELECT * FROM Orders JOIN people JOIN peopel")
    view = ViewDefinition("v", (), "", "kappa", query, Decode(), sources=(orders, customers))
    problem = check_sql(view).problem
    assert problem is not None
    assert (problem.message, problem.column) == ("there is no table peopel: did you mean people?", 39)
    inlined = replace(view, sources=(), source_name="people", topics=("t",), query=FileText("v.sql", "FROM people"))
    assert check_sql(inlined).problem is None
