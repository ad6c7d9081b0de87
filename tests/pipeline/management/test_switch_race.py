"""A switch by a command, while the runner switches other versions of the same views. In SQLite only one can write."""

import pytest

from headrace.pipeline.management.changing import ChangeRefused, planned_rollback, switch_readers
from headrace.pipeline.management.opened import open_folder
from headrace.pipeline.project.applying import apply_changes, plan_changes
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.serving.catalog import Catalog, VersionEvent

ORDERS = 'topics = ["orders"]\n[decode]\nschema = "customer BIGINT, amount BIGINT"\n'
REVENUE = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
BEST = "SELECT max(total) AS total FROM revenue"


@pytest.fixture
def here(tmp_path, postgresql_url):
    for folder in ("views", "sources"):
        (tmp_path / folder).mkdir()
    (tmp_path / "headrace.toml").write_text(f'[log]\nbootstrap = "127.0.0.1:1"\n[serving]\nurl = "{postgresql_url}"\n')
    (tmp_path / "sources" / "orders.toml").write_text(ORDERS)
    with open_folder(tmp_path) as opened:
        yield opened


def apply(here, **queries):
    """Applies these queries; the new versions catch up."""
    for name, query in queries.items():
        (here.project.folder / "views" / f"{name}.sql").write_text(query)
        text = f'architecture = "kappa"\nquery = "{name}.sql"\n'
        (here.project.folder / "views" / f"{name}.toml").write_text(text)
    views = read_project(here.project.folder).project.views
    changes = plan_changes(views, here.catalog.views(), here.catalog.versions())
    apply_changes(here.database, here.catalog, changes)
    for change in changes:
        if change.is_new_version:
            for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
                here.catalog.set_state(change.view, change.version, event)
            with here.database.begin() as connection:
                here.catalog.set_select(connection, change.view, change.version, "SELECT 1 AS n")


def serve(here, **versions):
    with here.database.begin() as connection:
        here.catalog.switch_all(connection, dict.fromkeys(versions.items(), "SELECT 1 AS n"))


def serving(here):
    return {view.name: view.serving_version for view in here.catalog.views()}


def test_a_rollback_never_mixes_the_versions_of_two_sets(here, monkeypatch):
    apply(here, revenue=REVENUE, best=BEST)
    serve(here, revenue=1, best=1)
    apply(here, best=BEST.replace("max", "min"))
    serve(here, best=2)
    apply(here, revenue=REVENUE.replace("sum", "avg"))  # revenue v2 and best v3 belong together
    planned = planned_rollback(here, "best")
    real = Catalog.lock_view

    def after_the_runner(catalog, connection, view):
        monkeypatch.setattr(Catalog, "lock_view", real)
        serve(here, revenue=2, best=3)
        return real(catalog, connection, view)

    monkeypatch.setattr(Catalog, "lock_view", after_the_runner)
    with pytest.raises(ChangeRefused, match="have just been switched to another version: nothing was changed"):
        switch_readers(here, planned)
    assert serving(here) == {"best": 3, "revenue": 2}
    switch_readers(here, planned_rollback(here, "best"))
    assert serving(here) == {"best": 2, "revenue": 1}
