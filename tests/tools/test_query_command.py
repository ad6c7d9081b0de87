"""headrace query: rows to standard output, what they are as of to standard error, in three forms."""

import io
import json
import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.tools.query.command import main
from headrace.views.answers import AsOf, as_of_text
from served_view import serve_view

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64()), ("hot", pa.bool_())])


@pytest.fixture
def project(tmp_path):
    """A project's folder with a database that has one view of two rows."""
    (tmp_path / "headrace.toml").write_text('[serving]\nurl = "sqlite:///views.db"\n')
    database = Database(f"sqlite:///{tmp_path}/views.db")
    catalog = Catalog(database)
    catalog.create_view("pages", "kappa", "h")
    catalog.add_version("pages", {}, "h")
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("pages", 1, event)
    table = data_table("pages__v1", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, table)
        rows = pa.table([["home", "a,b"], [12, 3], [True, None]], schema=SCHEMA)
        database.upsert(connection, table, rows, batch_id=1)
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 9, 1: 6}}))
        catalog.switch(connection, "pages", 1, select_all(table))
    database.close()
    return tmp_path


@pytest.fixture
def query(capsys, project):
    def run(*arguments):
        code = main([*map(str, arguments), *([] if "--database" in arguments else ["--project", str(project)])])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


ALL = "SELECT * FROM pages ORDER BY clicks DESC"


def test_rows_are_a_table_and_what_they_are_as_of_goes_to_standard_error(query):
    code, out, err = query(ALL)
    assert (code, out) == (0, "page  clicks  hot\nhome  12      true\na,b   3       -\n")
    assert err.startswith("pages v1 as of clicks 0:9 1:6, ")
    assert err.endswith(" s ago\n")
    assert err.count("\n") == 1


def test_json_has_everything(query):
    code, out, err = query(ALL, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["rows"] == [["home", 12, True], ["a,b", 3, None]]
    assert answer["as_of"][0]["offsets"] == {"clicks": {"0": 9, "1": 6}}
    assert not answer["truncated"]


def test_csv_is_csv(query):
    code, out, err = query(ALL, "--csv")
    assert (code, out) == (0, 'page,clicks,hot\nhome,12,true\n"a,b",3,\n')
    assert "as of" in err


def test_what_is_left_out_is_told(query):
    code, out, err = query(ALL, "--limit", 1)
    assert (code, out.count("\n")) == (0, 2)
    assert err.startswith("only the first 1 rows are shown: there are more (--limit)\n")


def users_at(project, offset):
    """A second view of the same topic, up to this offset of partition 1."""
    database = Database(f"sqlite:///{project}/views.db")
    serve_view(database, "users", "SELECT 1 AS n", {"clicks": {0: 9, 1: offset}, "orders": {0: 2}})
    database.close()


def test_a_reader_may_ask_for_the_same_offsets(query, project):
    both = "SELECT count(*) AS n FROM pages CROSS JOIN users"
    users_at(project, 5)
    assert query(both)[:2] == (0, "n\n2\n")
    code, out, err = query(both, "--same-offsets")
    assert (code, out) == (1, "")
    assert "pages v1 counts clicks 1 up to 6, and users v1 up to 5" in err
    assert query("SELECT n FROM users", "--same-offsets")[:2] == (0, "n\n1\n")
    assert query(both, "--same-offsets", "--watch")[0] == 2


def test_the_same_offsets_are_answered(query, project):
    users_at(project, 6)
    assert query("SELECT count(*) AS n FROM pages CROSS JOIN users", "--same-offsets")[:2] == (0, "n\n2\n")


def test_a_database_may_be_named(query, project):
    assert query("SELECT 1 AS one", "--database", f"sqlite:///{project}/views.db") == (0, "one\n1\n", "")


def test_the_statement_may_come_from_standard_input(query, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS one\n"))
    assert query("-") == (0, "one\n1\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["SELECT * FROM pagez"], 1, "did you mean pages?"),
        (["DROP VIEW pages"], 1, "queries can only read"),
        (["SELECT 1; SELECT 2"], 1, "only one statement is allowed"),
        (["SELECT 1", "--json", "--csv"], 2, "not both"),
        (["SELECT 1", "--limit", "0"], 2, "not a number above 0"),
        (["SELECT 1", "--database", "oracle://x"], 1, "is not supported as a serving database"),
        (["SELECT 1", "--database", "sqlite:////nowhere/x.db"], 1, "there is no serving database at /nowhere/x.db"),
        (["WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT count(*) FROM n", "--timeout", "20"], 1,
         "more than 20 ms"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_told_in_a_line(query, arguments, code, words):
    found, out, err = query(*arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.splitlines()[-1].startswith("headrace query: ")


def test_a_folder_that_is_no_project_is_told(capsys, tmp_path):
    assert main(["SELECT 1", "--project", str(tmp_path)]) == 1
    assert "there is no headrace.toml in" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[serving", "[serving]\nurl = 7", "serving = 1", '[serving]\nurl = "nonsense"'])
def test_a_project_file_that_is_wrong_is_told(capsys, tmp_path, text):
    (tmp_path / "headrace.toml").write_text(text)
    assert main(["SELECT 1", "--project", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("age_ms", "words"), [(0, "0.0 s"), (1_540, "1.5 s"), (119_000, "119.0 s"), (300_000, "5 min"), (10**8, "27 h"),
                          (10**9, "11 d")],
)  # fmt: skip
def test_ages_are_readable(age_ms, words):
    assert (
        as_of_text(AsOf("pages", 2, {"a": {0: 1}, "b": {3: 4}}, 0, age_ms))
        == f"pages v2 as of a 0:1, b 3:4, {words} ago"
    )


def test_it_starts_without_spark_and_without_arrow(project):
    code = (
        "import sys; from headrace.tools.query.command import main; main(sys.argv[1:]);"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'starlette') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "SELECT 1 AS one", "--project", str(project)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "one\n1\n[]\n"
