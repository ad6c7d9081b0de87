"""headrace.pipeline.Project without Spark: queries, status, problems, and processes that fail."""

import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.pipeline import Project
from headrace.pipeline.management.project import RunFailed
from headrace.pipeline.project.toml_files import ProjectError
from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import UnknownView
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.views import QueryError

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64())])
#: Nobody listens there.
NO_LOG = '[log]\nbootstrap = "127.0.0.1:1"\n[serving]\nurl = "sqlite:///views.db"\n'
VIEW = """topics = ["clicks"]
architecture = "kappa"
query = "pages.sql"
[decode]
format = "json"
schema = "page STRING"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "headrace.toml").write_text(NO_LOG)
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "pages.toml").write_text(VIEW)
    (tmp_path / "views" / "pages.sql").write_text("SELECT page, count(*) AS clicks FROM clicks GROUP BY page")
    return tmp_path


@pytest.fixture
def served(folder):
    """A project whose view has rows."""
    from headrace.pipeline.project.loading import read_project

    draft = read_project(folder)
    assert not draft.problems
    definition = draft.project.views["pages"]
    database = Database(f"sqlite:///{folder / 'views.db'}")
    catalog = Catalog(database)
    catalog.create_view("pages", "kappa", definition.definition_hash)
    catalog.add_version("pages", definition.as_dict() | {"way": "merging"}, definition.definition_hash)
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("pages", 1, event)
    table = data_table("pages__v1", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, pa.table([["<home>", "cart"], [1, 2]], schema=SCHEMA), batch_id=1)
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 3}}, events=3))
        catalog.switch(connection, "pages", 1, select_all(table))
    database.close()
    return Project(folder)


def test_a_query_is_answered_from_the_database(served):
    answer = served.query("SELECT * FROM pages ORDER BY clicks")
    assert answer.to_pandas().to_dict("list") == {"page": ["<home>", "cart"], "clicks": [1, 2]}
    assert [(each.view, each.offsets) for each in answer.as_of] == [("pages", {"clicks": {0: 3}})]
    assert "<td>&lt;home&gt;</td><td>1</td>" in answer._repr_html_()
    assert list(served.query("SELECT clicks FROM pages ORDER BY 1", limit=1)) == [(1,)]
    with pytest.raises(QueryError, match="did you mean pages"):
        served.query("SELECT * FROM pagez")


def test_the_status_is_a_table(served):
    status = served.status("pages")
    assert not status.is_running
    (row,) = status.value()["versions"]
    assert (row["view"], row["state"], row["events"], row["records_behind"]) == ("pages", "serving", 3, None)
    shown = status._repr_html_()
    assert shown.startswith("<table><thead><tr><th>view</th><th>version</th><th>state</th><th>kept by</th>")
    assert "<td>pages</td><td>v1</td><td>serving</td>" in shown
    assert "<p>&#x27;headrace views run&#x27; is not running</p>" in shown
    assert "pages v1 serving" in repr(status)
    with pytest.raises(UnknownView):
        served.status("nowhere")


def test_problems_of_files_are_one_error_with_their_places(folder):
    (folder / "views" / "pages.sql").write_text("SELECT page FROM clickz")
    with pytest.raises(ProjectError) as error:
        Project(folder, progress=lambda _: None).apply()
    (problem,) = error.value.problems
    assert problem.file == folder / "views" / "pages.sql"
    assert "there is no table clickz" in str(error.value)
    assert Project(folder).status().versions == [], "nothing was changed"
    with pytest.raises(UnknownView, match=r"no view 'page' in .*did you mean pages"):
        Project(folder).explain("page")


def test_a_folder_without_a_project_is_refused(tmp_path):
    with pytest.raises(ProjectError, match=r"there is no headrace\.toml here"):
        Project(tmp_path)


def test_a_process_that_fails_tells_its_last_lines(folder):
    told = []
    project = Project(folder, progress=told.append)
    (folder / "headrace.toml").write_text("[spark]\nmemory = 7\n")
    for run in (project.run_once, project.run):
        with pytest.raises(RunFailed, match=r"has ended with an error:\n.*memory"):
            run()
    assert any("memory" in line for line in told)


def test_the_name_is_imported_when_it_is_used():
    program = (
        "import sys, headrace.pipeline as p; assert 'headrace.pipeline.management' not in sys.modules; "
        "p.Project; assert 'pyspark' not in sys.modules; print(hasattr(p, 'Nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
