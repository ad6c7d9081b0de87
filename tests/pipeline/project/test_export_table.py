"""The table [export] of a view's file: what it means, mistakes in it, and what ``apply`` refuses."""

import json

import pytest

from headrace.pipeline.project.definition import Export, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query import export_checks
from headrace.pipeline.query.export_checks import check_exported_columns, export_problems
from headrace.pipeline.query.view_query import ViewError

VIEW = """\
topics = ["clicks"]
architecture = "kappa"
query = "pages.sql"

[decode]
schema = "page STRING"
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "headrace.toml").write_text("")
    (tmp_path / "views" / "pages.sql").write_text("SELECT page, count(*) AS n FROM events GROUP BY page")

    def read(more, name="pages"):
        (tmp_path / "views" / f"{name}.toml").write_text(f"{VIEW}\n{more}")
        return read_project(tmp_path)

    return read


def test_a_view_is_exported_as_the_file_says(read):
    (view,) = read('[export]\npath = "out"\nevery = "5 seconds"\nkeep = "2 days"\n').project.views.values()
    assert view.export == Export("out", 5_000, 48)
    assert ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict()))).export == view.export
    (plain,) = read("").project.views.values()
    assert plain.export is None
    assert plain.definition_hash == view.definition_hash, "its answer is the same, so it needs no new version"
    stored = {name: value for name, value in plain.as_dict().items() if name != "export"}
    assert ViewDefinition.from_dict(stored).export is None, "a definition of an earlier release"
    (short,) = read('[export]\npath = "out"\n').project.views.values()
    assert short.export == Export("out")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("[export]\n", "path is missing"),
        ('[export]\npath = "s3://bucket/pages"\n', "'s3://bucket/pages' is not a folder of this machine"),
        ('[export]\npath = "out"\nevery = "5 ms"\n', "export.every must be at least 1 second"),
        ('[export]\npath = "out"\nevery = "often"\n', "'often' is not a duration"),
        ('[export]\npath = "out"\nkeep = "90 minutes"\n', "export.keep must be whole hours, and at least 1 hour"),
        ('[export]\npaths = "out"\n', "there is no field 'paths' in [export]: did you mean path?"),
    ],
)
def test_mistakes_are_reported_with_their_line(read, more, problem):
    found = [str(each) for each in read(more).problems]
    assert any(problem in each and "pages.toml:" in each for each in found), found


def problems(read, *views):
    for name, path in views:
        draft = read(f'[export]\npath = "{path}"\n', name)
    return [str(each) for each in export_problems(draft.project.views.values(), draft.project.folder)]


def test_a_folder_belongs_to_one_view_and_to_nothing_else(read, tmp_path):
    assert problems(read, ("pages", "out/pages")) == []
    (twice,) = problems(read, ("pages", "out/pages"), ("again", "out"))
    assert twice.endswith(f"again is exported to {tmp_path / 'out'} already: use a folder per view")
    (tmp_path / "views" / "again.toml").unlink()
    (above,) = problems(read, ("pages", "."))
    assert above.endswith("contains the project: export to a folder of its own")
    (files,) = problems(read, ("pages", "views"))
    assert "has files, and no Delta table" in files


def test_without_the_library_the_line_says_what_to_install(read, monkeypatch):
    monkeypatch.setattr(export_checks, "find_spec", lambda name: None)
    (missing,) = problems(read, ("pages", "out"))
    assert missing.endswith("exporting needs the library deltalake: pip install 'headrace[export]'")
    assert "pages.toml:9" in missing


class Query:
    columns = ("page", "count(1)")


def test_names_that_a_delta_table_cannot_have(read):
    (view,) = read('[export]\npath = "out"\n').project.views.values()
    with pytest.raises(ViewError, match=r"a Delta table cannot have a column 'count\(1\)': rename it with AS"):
        check_exported_columns(view, Query)
    (plain,) = read("").project.views.values()
    check_exported_columns(plain, Query)
