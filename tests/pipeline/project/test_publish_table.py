"""The tables [publish] and [changes] of a view's file: what they mean, and mistakes in them."""

import json

import pytest

from headrace.pipeline.project.applying import ChangeKind, plan_changes
from headrace.pipeline.project.definition import ChangeSettings, Publish, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.query.publish_checks import publish_problems
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database

VIEW = """\
topics = ["clicks"]
architecture = "kappa"
query = "pages.sql"
dead_letters = "bad-clicks"

[decode]
schema = "page STRING"
"""
AVRO = '[publish]\ntopic = "out"\nformat = "avro"\nregistry = "https://r:8081"\n'


@pytest.fixture
def read(tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "headrace.toml").write_text("")
    (tmp_path / "views" / "pages.sql").write_text("SELECT page, count(*) AS n FROM events GROUP BY page")

    def read(more, name="pages"):
        (tmp_path / "views" / f"{name}.toml").write_text(f"{VIEW}\n{more}")
        return read_project(tmp_path)

    return read


def test_a_view_is_published_and_its_changes_are_kept_as_the_file_says(read):
    more = 'topic = "out"\n[changes]\nalways = true\nkeep_changes = 7\nkeep = "2 minutes"\n'
    (view,) = read(f"[publish]\n{more}").project.views.values()
    assert view.publish == Publish("out", "json")
    assert view.changes == ChangeSettings(always=True, keep_changes=7, keep_ms=120_000)
    assert ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict()))).publish == view.publish
    (plain,) = read("").project.views.values()
    assert (plain.publish, plain.changes) == (None, ChangeSettings())
    assert plain.definition_hash == view.definition_hash, "its answer is the same, so it needs no new version"
    stored = {name: value for name, value in plain.as_dict().items() if name not in ("publish", "changes")}
    assert ViewDefinition.from_dict(stored).changes == ChangeSettings(), "a definition of an earlier release"


def test_the_registry_has_options_and_the_catalog_no_secret(read, tmp_path, monkeypatch):
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    options = '{"basic.auth.user.info" = "${env:REGISTRY_LOGIN}", "ssl.ca.location" = "ca.pem"}'
    draft = read(f"{AVRO}registry_options = {options}\n")
    assert draft.problems == []
    (view,) = draft.project.views.values()
    assert view.publish.registry_options == {
        "basic.auth.user.info": "${env:REGISTRY_LOGIN}",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict()))).publish == view.publish
    stored = view.as_dict() | {"publish": {"topic": "out", "format": "avro", "registry": "http://r"}}
    assert ViewDefinition.from_dict(stored).publish.registry_options == {}, "a definition of an earlier release"


def test_a_changed_topic_is_a_change_of_settings(read, tmp_path):
    (view,) = read('[publish]\ntopic = "out"\n').project.views.values()
    catalog = Catalog(Database(f"sqlite:///{tmp_path}/views.db"))
    catalog.create_view("pages", "kappa", view.definition_hash)
    catalog.add_version("pages", view.as_dict(), view.definition_hash)
    (other,) = read('[publish]\ntopic = "elsewhere"\n').project.views.values()
    (change,) = plan_changes({"pages": other}, catalog.views(), catalog.versions())
    assert change.kind is ChangeKind.SETTINGS


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("[publish]\n", "topic is missing"),
        ('[publish]\ntopic = "no way"\n', "'no way' is not the name of a topic"),
        ('[publish]\ntopic = "out"\nformat = "xml"\n', "publish.format cannot be 'xml': known names are avro, json"),
        ('[publish]\ntopic = "out"\nformat = "avro"\n', "avro needs a schema registry"),
        ('[publish]\ntopic = "out"\nregistry = "http://r"\n', "registry has no effect with the format json"),
        (f'{AVRO}registry_options = {{a = "b"}}\n', "publish.registry_options has no option 'a': known names are"),
        (f'{AVRO}registry_options = {{"basic.auth.user.info" = "a:b"}}\n', "must be a reference to a secret"),
        ('[publish]\ntopic = "out"\nregistry_options = {"ssl.ca.location" = "ca"}\n', "no effect without a registry"),
        ('[publish]\ntopic = "clicks"\n', "the view reads 'clicks', and cannot publish its changes there"),
        ('[publish]\ntopic = "bad-clicks"\n', "'bad-clicks' gets the dead letters of the view"),
        ('[publish]\ntopics = "out"\n', "there is no field 'topics' in [publish]: did you mean topic?"),
        ("[changes]\nkeep_changes = 0\n", "changes.keep_changes must be a whole number of at least 1"),
        ('[changes]\nkeep = "5 ms"\n', "changes.keep must be at least 1 second"),
        ('[changes]\nkeep = "long"\n', "'long' is not a duration"),
    ],
)
def test_mistakes_are_reported_with_their_line(read, more, problem):
    found = [str(each) for each in read(more).problems]
    assert any(problem in each and "pages.toml:" in each for each in found), found


def test_topics_that_are_not_compacted_or_used_twice_are_problems(read):
    read('[publish]\ntopic = "out"\n')
    views = read('[publish]\ntopic = "out"\n', "again").project.views.values()
    (twice,) = publish_problems(views, {"out": "compact"})
    assert str(twice).endswith("again is published to out too: use a topic per view")
    policy, _ = publish_problems(views, {"out": "compact,delete"})
    assert "the topic out has cleanup.policy=compact,delete, and a view can be published to a compacted" in str(policy)
