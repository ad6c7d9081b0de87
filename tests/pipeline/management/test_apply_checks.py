"""``apply`` refuses mistakes before anything changes: settings of existing views, taken names, another ``apply``.

A runner that answers is pretended, so no Spark is needed.
"""

import json
from contextlib import contextmanager

import pytest

from headrace import Admin, Broker
from headrace.pipeline.management import applying
from headrace.pipeline.management.applying import apply_project
from headrace.pipeline.project.applying import ChangeKind
from headrace.pipeline.project.toml_files import ProjectError
from headrace.pipeline.serving.catalog import Catalog, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.shared_spark.server import SharedSparkServer

VIEW = 'topics = ["clicks"]\narchitecture = "kappa"\nquery = "{name}.sql"\n[decode]\nschema = "page STRING"\n'
NO_KEY = {"file": "views/pages.toml", "line": None, "column": None, "message": "needs a key"}


@pytest.fixture(scope="module")
def address():
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for topic, configs in {"clicks": {}, "plain": {}, "free": {"cleanup.policy": "compact"}}.items():
                admin.create_topic(topic, configs=configs)
        yield broker.bootstrap_servers


class ProjectHarness:
    """A project of two views.

    :ivar asked: the names of the views that each check by Spark was asked about.
    :ivar problems: what the next checks find.
    """

    def __init__(self, folder, address, url):
        self.folder, self.asked, self.problems = folder, [], []
        (folder / "views").mkdir(parents=True)
        (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "{url}"\n')
        self.database = Database(url)
        for name in ("pages", "users"):
            self.write(name)

    def write(self, name, more=""):
        (self.folder / "views" / f"{name}.toml").write_text(f"{VIEW.format(name=name)}{more}")
        query = "SELECT page, count(*) AS n FROM events GROUP BY page"
        (self.folder / "views" / f"{name}.sql").write_text(query)

    def apply(self):
        with self._runner():
            return [change.kind for change in apply_project(self.folder, lambda _: None).changes]

    @contextmanager
    def _runner(self):
        def answer(request):
            names = [each["definition"]["name"] for each in request["views"]]
            self.asked += [names] if names else []
            return {"answer": {"problems": self.problems if names else [], "ways": dict.fromkeys(names, "touched")}}

        with SharedSparkServer(self.folder, answer):
            yield

    def refusal(self):
        """The only problem of an ``apply``, which changes nothing."""
        before = self.stored()
        with pytest.raises(ProjectError) as error:
            self.apply()
        assert self.stored() == before
        (problem,) = error.value.problems
        return f"{problem.file.relative_to(self.folder)}: {problem.message}"

    def stored(self):
        catalog = Catalog(self.database)
        return [(each.label, json.dumps(each.definition), each.state) for each in catalog.versions()]

    def sql(self, *statements):
        with self.database.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def ask(self, statement):
        with self.database.read() as connection:
            return connection.exec_driver_sql(statement).scalar()

    def serve(self, view):
        catalog = Catalog(self.database)
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            catalog.set_state(view, 1, event)
        with self.database.begin() as connection:
            catalog.switch(connection, view, 1, "SELECT 1 AS one")


@pytest.fixture
def project(tmp_path, address, sqlite_url):
    made = ProjectHarness(tmp_path / "shop", address, sqlite_url)
    yield made
    made.database.close()


@pytest.fixture
def anywhere(tmp_path, address, database_url):
    made = ProjectHarness(tmp_path / "shop", address, database_url)
    yield made
    made.database.close()


# ---------------------------------------------------------------------------------------- [publish] and [export] later


def test_a_view_that_exists_is_not_published_to_a_topic_that_is_not_compacted(project):
    project.apply()
    project.write("pages", '[publish]\ntopic = "plain"\n')
    assert "views/pages.toml: the topic plain has cleanup.policy=delete" in project.refusal()


def test_a_view_that_exists_is_not_published_to_the_topic_of_another_one(project):
    project.write("pages", '[publish]\ntopic = "free"\n')
    project.apply()
    project.write("users", '[publish]\ntopic = "free"\n')
    assert project.refusal() == "views/users.toml: pages is published to free too: use a topic per view"


def test_a_view_that_exists_is_not_exported_to_a_folder_with_something_else(project):
    project.apply()
    (project.folder / "out").mkdir()
    (project.folder / "out" / "foreign.txt").write_text("mine")
    project.write("pages", '[export]\npath = "out"\n')
    assert "out" in project.refusal()
    assert [path.name for path in (project.folder / "out").iterdir()] == ["foreign.txt"]


def test_a_view_that_exists_is_not_published_without_a_key(project):
    project.apply()
    project.problems = [NO_KEY]
    project.write("pages", '[publish]\ntopic = "free"\n')
    assert project.refusal() == "views/pages.toml: needs a key"
    assert project.asked == [["pages", "users"], ["pages"]]


def test_a_version_that_is_published_later_keeps_its_way_and_is_checked_once(project):
    project.apply()
    stored = Catalog(project.database).version("pages", 1).definition["way"]
    project.write("pages", '[publish]\ntopic = "free"\n')
    assert project.apply() == [ChangeKind.SETTINGS, ChangeKind.UNCHANGED]
    project.write("pages", '[publish]\ntopic = "free"\n[changes]\nalways = true\n')
    assert project.apply() == [ChangeKind.SETTINGS, ChangeKind.UNCHANGED]
    assert project.asked == [["pages", "users"], ["pages"]]
    assert Catalog(project.database).version("pages", 1).definition["way"] == stored


# ------------------------------------------------------------------------------------------------------- taken names


@pytest.mark.parametrize("kind", ["table", "view", "materialized view"])
def test_a_name_that_is_taken_is_refused_before_anything_changes(anywhere, kind):
    if anywhere.database.is_sqlite and kind == "materialized view":
        kind = "view"
    anywhere.sql(f"CREATE {kind.upper()} pages AS SELECT 42 AS mine")
    refusal = anywhere.refusal()
    assert refusal.startswith(f"views/pages.toml: the database has a {kind} 'pages' that does not belong to Headrace")
    assert anywhere.asked == [], "before Spark is asked"
    assert anywhere.ask("SELECT mine FROM pages") == 42


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_what_a_user_makes_while_a_view_replays_is_neither_replaced_nor_dropped(anywhere, kind):
    anywhere.apply()
    anywhere.sql(f"CREATE {kind} pages AS SELECT 42 AS mine")
    with pytest.raises(UnsuitableSchema, match=f"a {kind.lower()} 'pages' that does not belong to Headrace"):
        anywhere.serve("pages")
    catalog = Catalog(anywhere.database)
    with anywhere.database.begin() as connection:
        catalog.retire_view(connection, "pages")
    assert anywhere.ask("SELECT mine FROM pages") == 42


def test_a_view_that_serves_is_changed_and_dropped_as_before(anywhere):
    anywhere.apply()
    anywhere.serve("pages")
    anywhere.write("pages", '[kappa]\nstart = "2026-11-16T08:00:00Z"\n')
    assert anywhere.apply()[0] == ChangeKind.CHANGED
    assert anywhere.ask("SELECT one FROM pages") == 1
    catalog = Catalog(anywhere.database)
    with anywhere.database.begin() as connection:
        catalog.retire_view(connection, "pages")
    with anywhere.database.begin() as connection:
        assert not connection.dialect.has_table(connection, "pages")


# ---------------------------------------------------------------------------------------------------- two at once


@pytest.mark.parametrize("is_new", [True, False])
def test_of_two_applies_at_once_one_says_that_the_other_was_faster(project, monkeypatch, is_new):
    if not is_new:
        project.apply()
        project.write("pages", '[kappa]\nstart = "2026-11-16T08:00:00Z"\n')
    through = applying.apply_changes

    def second(database, catalog, changes):
        monkeypatch.setattr(applying, "apply_changes", through)
        through(database, catalog, changes)  # another process is faster
        through(database, catalog, changes)

    monkeypatch.setattr(applying, "apply_changes", second)
    with pytest.raises(ProjectError, match="another 'headrace views apply' has changed the view") as error:
        project.apply()
    (problem,) = error.value.problems
    assert problem.file == project.folder / "views" / "pages.toml"
    assert len(Catalog(project.database).versions("pages")) == (1 if is_new else 2)
