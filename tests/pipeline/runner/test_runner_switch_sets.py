"""Views that read each other take over together: none before all have caught up, and all in one transaction."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_runner import DEFINITION, RunnerHarness

from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.project.decode import FileText
from headrace.pipeline.project.definition import KappaSettings, ViewDefinition
from headrace.pipeline.project.views_on_views.upstream_checks import upstream_of
from headrace.pipeline.serving import catalog as catalog_module
from headrace.pipeline.serving.catalog import DesiredState, VersionState

QUERIES = {
    "revenue": "SELECT page, {0} AS n FROM events GROUP BY page",
    "top": "SELECT page, {0} AS n FROM revenue",
    "page": "SELECT max(n) + {0} AS n FROM top",
}


class Crash(BaseException):
    """The process dies here."""


class GraphHarness(RunnerHarness):
    """revenue <- top <- page."""

    def definitions(self, numbers: dict[str, int], **changes: object) -> list[ViewDefinition]:
        """:param numbers: by view, a number in its query; another one gives another answer."""
        made: list[ViewDefinition] = []
        for name, text in QUERIES.items():
            query = FileText(f"{name}.sql", text.format(numbers.get(name, 0)))
            above = tuple(upstream_of(each) for each in made)
            reads = (made[-1].name,) if made else ()
            made.append(replace(DEFINITION, name=name, query=query, views=above, reads_directly=reads, **changes))
        return made

    def apply_all(self, numbers: dict[str, int] | None = None, **changes: object) -> None:
        for each in self.definitions(numbers or {}, **changes):
            newest = self.catalog.versions(each.name) if each.name in self.names() else []
            if not newest or newest[-1].definition_hash != each.definition_hash:
                self.catalog.create_view(each.name, each.architecture, each.definition_hash)
                self.catalog.add_version(each.name, each.as_dict(), each.definition_hash)

    def names(self) -> list[str]:
        return [view.name for view in self.catalog.views()]

    def catch_up_all(self, version: int, *names: str) -> None:
        for name in names or QUERIES:
            self.made[f"{name} v{version}"].far = Lag(0, 100, 10.0)
        self.tick()

    def all_serving(self) -> dict[str, int | None]:
        return {view.name: view.serving_version for view in self.catalog.views()}

    def readers_see(self) -> dict[str, int]:
        return {name: self.seen(name) for name in QUERIES}

    def obstacle(self, view: str, version: int) -> str | None:
        self.tick(1_000)
        return self.catalog.reports()[view, version].obstacle


def everywhere(version: int) -> dict[str, int]:
    return dict.fromkeys(sorted(QUERIES), version)


@pytest.fixture
def graph(sqlite_url, tmp_path):
    made = GraphHarness(sqlite_url, tmp_path)
    made.apply_all()
    made.tick()
    made.catch_up_all(1)
    yield made
    made.database.close()


def test_the_first_versions_serve_as_soon_as_they_have_caught_up(sqlite_url, tmp_path):
    made = GraphHarness(sqlite_url, tmp_path)
    made.apply_all()
    made.tick()
    made.catch_up_all(1, "page")
    assert made.all_serving() == {"page": 1, "revenue": None, "top": None}
    made.catch_up_all(1)
    assert made.all_serving() == everywhere(1)
    made.database.close()


def test_a_changed_view_and_all_below_it_take_over_together(graph):
    graph.apply_all({"revenue": 1})
    graph.tick()
    graph.catch_up_all(2, "revenue", "page")
    assert graph.all_serving() == everywhere(1)
    assert graph.obstacle("revenue", 2) == "is not switched to: it waits for top v2, which is replaying"
    graph.catch_up_all(2, "top")
    assert (graph.all_serving(), graph.readers_see()) == (everywhere(2), everywhere(2))
    assert {name: graph.state(1, name) for name in QUERIES} == dict.fromkeys(QUERIES, VersionState.STANDBY)
    assert graph.obstacle("revenue", 2) is None


def test_views_above_a_change_keep_their_versions(graph):
    graph.apply_all({"page": 1})
    graph.tick()
    graph.catch_up_all(2, "page")
    assert graph.all_serving() == {"page": 2, "revenue": 1, "top": 1}


def test_a_version_that_fails_holds_the_set_back_and_status_names_it(graph):
    graph.apply_all({"revenue": 1})
    graph.tick()
    graph.made["top v2"].broken = DataLost("the log has lost records")
    graph.tick()
    graph.catch_up_all(2, "revenue", "page")
    assert graph.all_serving() == everywhere(1)
    text = graph.obstacle("page", 2)
    assert text is not None
    assert "it waits for top v2, which is failed: the log has lost records" in text


def test_a_corrected_view_takes_the_place_of_the_one_that_failed(graph):
    graph.apply_all({"revenue": 1})
    graph.tick()
    graph.made["top v2"].broken = DataLost("the log has lost records")
    graph.tick()
    graph.catch_up_all(2, "revenue", "page")
    graph.apply_all({"revenue": 1, "top": 1})
    graph.tick()
    graph.catch_up_all(3, "top", "page")
    assert graph.all_serving() == {"page": 3, "revenue": 2, "top": 3}


def test_a_manual_switch_of_one_view_makes_the_set_manual(graph):
    graph.apply_all({"revenue": 1})
    manual = replace(graph.definitions({"revenue": 1})[1], kappa=KappaSettings(switch="manual"))
    with graph.database.begin() as connection:
        graph.catalog.set_definition(connection, "top", 2, manual.as_dict())
    graph.tick()
    graph.catch_up_all(2)
    assert graph.all_serving() == everywhere(1)
    text = graph.obstacle("page", 2)
    assert text is not None
    assert "it waits for 'headrace views switch top 2', because top has switch = \"manual\"" in text


def test_a_set_is_not_switched_to_again_after_a_rollback(graph):
    graph.apply_all({"revenue": 1})
    graph.tick()
    graph.catch_up_all(2)
    with graph.database.begin() as connection:
        graph.catalog.switch_all(connection, {(name, 1): "SELECT 1 AS version" for name in QUERIES})
    graph.tick(10_000)
    assert graph.all_serving() == everywhere(1)
    graph.apply_all({"revenue": 1, "page": 7})
    graph.tick()
    graph.catch_up_all(3, "page")
    assert graph.all_serving() == everywhere(1)
    text = graph.obstacle("page", 3)
    assert text is not None
    assert "because readers were switched away from revenue v2" in text


def test_a_dropped_member_makes_the_set_wait_for_apply(graph):
    graph.apply_all({"revenue": 1})
    graph.tick()
    graph.catalog.set_desired_state("revenue", 2, DesiredState.DROP)
    graph.tick()
    graph.catch_up_all(2, "top", "page")
    assert graph.all_serving() == everywhere(1)
    assert "no version of revenue has: run 'headrace views apply'" in (graph.obstacle("top", 2) or "")


# ------------------------------------------------------------------------------------------------------------ crashes


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_crash_leaves_all_switched_or_nothing(database_url, tmp_path, monkeypatch, at):
    """The process dies before it points the SQL view number ``at`` at its version; 4: after the commit."""
    graph = GraphHarness(database_url, tmp_path)
    graph.apply_all()
    graph.tick()
    graph.catch_up_all(1)
    graph.apply_all({"revenue": 1})
    graph.tick()
    repoint, count = catalog_module.repoint_view, 0

    def dies(*given: object) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Crash
        repoint(*given)

    with monkeypatch.context() as patched:
        patched.setattr(catalog_module, "repoint_view", dies)
        if at == 4:
            graph.catch_up_all(2)
        else:
            with pytest.raises(Crash):
                graph.catch_up_all(2)
    assert graph.all_serving() == graph.readers_see() == everywhere(2 if at == 4 else 1)
    graph.runner = graph.new_runner()
    graph.tick()
    graph.catch_up_all(1)
    graph.catch_up_all(2)
    graph.tick(10_000)
    assert graph.all_serving() == graph.readers_see() == everywhere(2)
    graph.database.close()


# ------------------------------------------------------------------------------------------------------------ run once


def test_run_once_switches_the_whole_set_at_its_end(graph):
    graph.runner.close()
    graph.apply_all({"revenue": 1})
    graph.runner = graph.new_runner()
    assert graph.runner.run_once() == []
    assert graph.all_serving() == graph.readers_see() == everywhere(2)
    assert {version.state for version in graph.catalog.versions()} == {VersionState.STOPPED}


def test_run_once_tells_which_versions_did_not_take_over(graph):
    graph.runner.close()
    graph.apply_all({"revenue": 1})
    graph.runner = graph.new_runner()
    graph.start_errors["top v2"] = DataLost("the log has lost records")
    assert sorted(graph.runner.run_once()) == ["page v2", "revenue v2", "top v2"]
    assert graph.all_serving() == everywhere(1)
