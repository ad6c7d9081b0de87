"""Applying a project: the changes that follow from its files and the catalog."""

from dataclasses import replace

import pytest

from headrace.pipeline.project.applying import ChangeKind, apply_changes, plan_changes, with_switch
from headrace.pipeline.project.definition import Decode, FileText, KappaSettings, ViewDefinition
from headrace.pipeline.serving.catalog import Catalog, DesiredState, VersionEvent
from headrace.pipeline.serving.database import Database

DEFINITION = ViewDefinition(
    name="pages", topics=("clicks",), pattern="", architecture="kappa",
    query=FileText("pages.sql", "SELECT page, count(*) AS n FROM events GROUP BY page"),
    decode=Decode(schema="page STRING"),
)  # fmt: skip
CHANGED = replace(DEFINITION, query=FileText("pages.sql", "SELECT page, max(ms) AS n FROM events GROUP BY page"))


class ApplyingHarness:
    def __init__(self, url):
        self.database = Database(url)
        self.catalog = Catalog(self.database)

    def plan(self, *definitions):
        named = {definition.name: definition for definition in definitions}
        return plan_changes(named, self.catalog.views(), self.catalog.versions())

    def apply(self, *definitions):
        changes = self.plan(*definitions)
        apply_changes(self.database, self.catalog, changes)
        return [(change.view, change.kind, change.version) for change in changes]

    def serve(self, version):
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            self.catalog.set_state("pages", version, event)
        with self.database.begin() as connection:
            self.catalog.switch(connection, "pages", version, f"SELECT {version} AS version")


@pytest.fixture
def harness(sqlite_url):
    made = ApplyingHarness(sqlite_url)
    yield made
    made.database.close()


def test_a_new_view_gets_its_first_version_and_then_nothing_changes(harness):
    assert harness.apply(DEFINITION) == [("pages", ChangeKind.NEW, 1)]
    assert harness.apply(DEFINITION) == [("pages", ChangeKind.UNCHANGED, 1)]
    assert ViewDefinition.from_dict(harness.catalog.version("pages", 1).definition) == DEFINITION


def test_another_query_is_the_next_version(harness):
    harness.apply(DEFINITION)
    harness.serve(1)
    (change,) = harness.plan(CHANGED)
    assert change.description == ("v2 replays the log while v1 serves; readers see it as soon as it has caught up")
    assert harness.apply(CHANGED) == [("pages", ChangeKind.CHANGED, 2)]
    assert [version.version for version in harness.catalog.versions("pages")] == [1, 2]


def test_switching_by_hand_is_told(harness):
    harness.apply(DEFINITION)
    harness.serve(1)
    (change,) = harness.plan(with_switch({"pages": CHANGED}, "manual")["pages"])
    assert change.description.endswith("; 'headrace views switch pages' makes readers see it")


def test_going_back_to_an_older_query_names_the_version_that_has_it(harness):
    harness.apply(DEFINITION)
    harness.apply(CHANGED)
    (change,) = harness.plan(DEFINITION)
    assert (change.kind, change.version, change.twin) == (ChangeKind.CHANGED, 3, 1)
    assert "v1 has the same definition" in change.description


def test_blank_lines_are_no_change(harness):
    harness.apply(DEFINITION)
    loose = replace(DEFINITION, query=replace(DEFINITION.query, text=f"\n{DEFINITION.query.text}  \n\n"))
    assert harness.apply(loose) == [("pages", ChangeKind.UNCHANGED, 1)]


def test_settings_are_given_to_the_version_that_is_there(harness):
    harness.apply(DEFINITION)
    changed = replace(DEFINITION, dead_letters="pages.dead", kappa=KappaSettings(caught_up_within=5))
    assert harness.apply(changed) == [("pages", ChangeKind.SETTINGS, 1)]
    assert ViewDefinition.from_dict(harness.catalog.version("pages", 1).definition) == changed
    assert harness.apply(changed) == [("pages", ChangeKind.UNCHANGED, 1)]


def test_what_failed_is_tried_again(harness):
    harness.apply(DEFINITION)
    harness.catalog.set_state("pages", 1, VersionEvent.FAILED, error="no")
    assert harness.apply(DEFINITION) == [("pages", ChangeKind.AGAIN, 1)]
    assert [request.kind for request in harness.catalog.open_requests()] == ["restart"]


def test_a_view_without_a_file_goes_on_and_is_told(harness):
    harness.apply(DEFINITION)
    (change,) = harness.plan()
    assert (change.kind, change.description) == (
        ChangeKind.REMOVED, "v1 keeps running although its file is gone; 'headrace views drop pages' removes it",
    )  # fmt: skip
    assert harness.apply() == [("pages", ChangeKind.REMOVED, 1)]
    assert len(harness.catalog.versions()) == 1


def test_a_view_that_is_being_dropped_is_made_anew(harness):
    harness.apply(DEFINITION)
    harness.catalog.set_desired_state("pages", 1, DesiredState.DROP)
    assert harness.plan() == []
    assert harness.apply(DEFINITION) == [("pages", ChangeKind.NEW, 2)]


def test_a_view_may_change_its_architecture(harness):
    harness.apply(DEFINITION)
    assert harness.apply(replace(DEFINITION, architecture="lambda")) == [("pages", ChangeKind.CHANGED, 2)]
    assert harness.catalog.view("pages").architecture == "lambda"
