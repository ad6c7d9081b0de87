"""The versions that readers are switched to together: pure decisions over a catalog of views that read each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from headrace.pipeline.project.views_on_views.switch_sets import NoSwitchSet, readers_of, switch_set
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState, View


@dataclass
class Graph:
    """Views and versions. An answer is a text; a version reads answers of other views."""

    views: dict[str, View] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)

    def add(self, view: str, version: int, answer: str, *, serves: bool = False, **reads: str) -> None:
        known = self.views.get(view, View(view, "kappa", "", 0, None, None, 0, 0))
        self.views[view] = replace(known, serving_version=version if serves else known.serving_version)
        definition = {"answer_hash": answer, "views": [{"name": n, "answer_hash": a} for n, a in reads.items()]}
        self.versions.append(
            Version(view, version, VersionState.CAUGHT_UP, DesiredState.RUN, definition, "", "", None, 0, 0)
        )

    def of(self, label: str) -> Version:
        return next(each for each in self.versions if each.label == label)

    def served_before(self, view: str, version: int) -> None:
        self.views[view] = replace(self.views[view], previous_version=version)

    def drop(self, label: str) -> None:
        at = self.versions.index(self.of(label))
        self.versions[at] = replace(self.versions[at], desired_state=DesiredState.DROP)

    def set_of(self, label: str, *, back: bool = False) -> list[str]:
        found = switch_set(self.of(label), self.views.values(), self.versions, back=back)
        return [each.label for each in found.versions] + [f"left: {name}" for name in found.left_behind]


@pytest.fixture
def graph() -> Graph:
    """revenue <- top <- page; revenue <- totals; other is alone. revenue has changed, so all below it has."""
    made = Graph()
    for version, answer in ((1, "old"), (2, "new")):
        serves = version == 1
        made.add("revenue", version, answer, serves=serves)
        made.add("top", version, f"top {answer}", serves=serves, revenue=answer)
        made.add("page", version, f"page {answer}", serves=serves, revenue=answer, top=f"top {answer}")
        made.add("totals", version, f"totals {answer}", serves=serves, revenue=answer)
    made.add("other", 1, "other", serves=True)
    made.add("other", 2, "other 2")
    return made


@pytest.mark.parametrize("name", ["revenue", "top", "page", "totals"])
def test_the_whole_subgraph_is_switched_together_whoever_is_first(graph, name):
    assert graph.set_of(f"{name} v2") == ["page v2", "revenue v2", "top v2", "totals v2"]


def test_a_view_that_reads_no_view_is_switched_alone(graph):
    assert graph.set_of("other v2") == ["other v2"]


def test_a_changed_leaf_is_switched_alone(graph):
    graph.add("page", 3, "page other", revenue="old", top="top old")
    assert graph.set_of("page v3") == ["page v3"]


def test_a_view_with_another_architecture_and_the_same_answer_is_switched_alone(graph):
    graph.add("revenue", 3, "old")
    assert graph.set_of("revenue v3") == ["revenue v3"]


def test_a_later_version_takes_the_place_of_an_earlier_one_in_the_set(graph):
    graph.add("top", 3, "top newer", revenue="new")
    graph.add("page", 3, "page newer", revenue="new", top="top newer")
    assert graph.set_of("revenue v2") == ["page v3", "revenue v2", "top v3", "totals v2"]
    # A set of versions that fit each other is not mixed with versions that do not.
    assert graph.set_of("top v2") == ["page v2", "revenue v2", "top v2", "totals v2"]


def test_a_view_that_no_longer_reads_the_changed_view_joins_with_its_new_version(graph):
    graph.drop("totals v2")
    graph.add("totals", 3, "totals of something else")
    assert graph.set_of("revenue v2") == ["page v2", "revenue v2", "top v2", "totals v3"]


def test_a_new_view_does_not_hold_back_a_change(graph):
    graph.add("fresh", 1, "fresh", revenue="new")
    assert "fresh v1" not in graph.set_of("revenue v2")
    assert graph.set_of("fresh v1") == ["fresh v1", "page v2", "revenue v2", "top v2", "totals v2"]


def test_a_new_view_over_what_serves_is_switched_alone(graph):
    graph.add("fresh", 1, "fresh", revenue="old")
    assert graph.set_of("fresh v1") == ["fresh v1"]


def test_views_that_never_served_ask_nothing_of_each_other():
    graph = Graph()
    graph.add("revenue", 1, "old")
    graph.add("top", 1, "top old", revenue="old")
    assert (graph.set_of("revenue v1"), graph.set_of("top v1")) == (["revenue v1"], ["top v1"])


def test_a_view_without_a_fitting_version_is_left_behind(graph):
    graph.drop("totals v2")
    assert graph.set_of("revenue v2") == ["page v2", "revenue v2", "top v2", "left: totals"]


def test_an_upstream_view_without_a_fitting_version_is_an_obstacle(graph):
    graph.drop("revenue v2")
    with pytest.raises(
        NoSwitchSet, match="page v2 reads revenue with a definition that no version of revenue has: run"
    ):
        graph.set_of("top v2")


def test_versions_that_contradict_each_other_are_an_obstacle(graph):
    graph.add("left", 1, "left", serves=True, revenue="old")
    graph.add("left", 2, "left 2", revenue="new")
    graph.add("both", 1, "both", left="left 2", revenue="old")
    with pytest.raises(NoSwitchSet, match="which fits the others"):
        graph.set_of("both v1")


def test_a_rollback_takes_the_whole_set_back_to_what_served_before(graph):
    for name in ("revenue", "top", "page", "totals"):
        graph.views[name] = replace(graph.views[name], serving_version=2, previous_version=1)
    assert graph.set_of("top v1", back=True) == ["page v1", "revenue v1", "top v1", "totals v1"]
    assert graph.set_of("revenue v1", back=True) == ["page v1", "revenue v1", "top v1", "totals v1"]


def test_a_rollback_prefers_the_version_that_served(graph):
    graph.add("totals", 3, "totals again", revenue="old")
    for name in ("revenue", "top", "page", "totals"):
        graph.views[name] = replace(graph.views[name], serving_version=2, previous_version=1)
    assert "totals v1" in graph.set_of("revenue v1", back=True)
    assert "totals v3" in graph.set_of("revenue v1")


def test_a_rollback_of_a_leaf_alone(graph):
    graph.add("page", 3, "page other", serves=True, revenue="old", top="top old")
    graph.served_before("page", 1)
    assert graph.set_of("page v1", back=True) == ["page v1"]


def test_who_reads_a_view(graph):
    assert readers_of("revenue", graph.views, graph.versions) == ["page", "top", "totals"]
    assert readers_of("page", graph.views, graph.versions) == []
    graph.add("totals", 3, "totals of something else", serves=True)
    assert readers_of("revenue", graph.views, graph.versions) == ["page", "top"]
    for label in ("page v1", "page v2"):
        graph.drop(label)
    assert readers_of("top", graph.views, graph.versions) == []
