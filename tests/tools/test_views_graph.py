"""headrace views graph, and the plan of apply for views on views: over a catalog, without Spark."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headrace.pipeline.management.graph.model import Graph, SourceNode, VersionNode, ViewNode
from headrace.pipeline.management.graph.svg import svg_text
from headrace.pipeline.project.applying import apply_changes, plan_changes
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.serving.catalog import Catalog, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.tools.views.command import main
from headrace.tools.views.graph.text import mermaid_lines, text_lines

ORDERS = 'topics = ["orders"]\n[decode]\nschema = "customer BIGINT, amount BIGINT"\n'
CUSTOMERS = 'kind = "table"\ntopics = ["customers"]\n[decode]\nschema = "customer BIGINT, name STRING"\n'
CLICKS = 'topics = ["clicks"]\n[decode]\nschema = "page STRING"\n'
QUERIES = {
    "revenue": "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer",
    "top": "SELECT c.name, r.total FROM revenue r JOIN customers c ON r.customer = c.customer",
    "best": "SELECT max(total) AS total FROM top",
    "names": "SELECT name FROM customers",
}


class Shop:
    """A project whose versions the test moves through their states itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "headrace.toml").write_text('[log]\nbootstrap = "127.0.0.1:1"\n')
        for each in ("views", "sources"):
            (folder / each).mkdir()
        (folder / "sources" / "orders.toml").write_text(ORDERS)
        (folder / "sources" / "customers.toml").write_text(CUSTOMERS)
        for name, query in QUERIES.items():
            self.view(name, query)
        self.view("clicks", "SELECT count(*) AS n FROM events", CLICKS)
        self.database = Database(f"sqlite:///{folder / 'headrace-views.db'}")
        self.catalog = Catalog(self.database)

    def view(self, name: str, query: str, fields: str = "") -> None:
        (self.folder / "views" / f"{name}.sql").write_text(query)
        (self.folder / "views" / f"{name}.toml").write_text(f'architecture = "kappa"\nquery = "{name}.sql"\n{fields}')

    def plan(self):
        views = read_project(self.folder).project.views
        return plan_changes(views, self.catalog.views(), self.catalog.versions())

    def apply(self) -> None:
        apply_changes(self.database, self.catalog, self.plan())

    def catch_up(self, version: int, *names: str) -> None:
        for name in names:
            self.catalog.set_state(name, version, VersionEvent.STARTED)
            self.catalog.set_state(name, version, VersionEvent.CAUGHT_UP)
            with self.database.begin() as connection:
                self.catalog.set_select(connection, name, version, f"SELECT {version} AS version")

    def serve(self, version: int, *names: str) -> None:
        self.catch_up(version, *names)
        with self.database.begin() as connection:
            self.catalog.switch_all(connection, {(name, version): f"SELECT {version} AS version" for name in names})

    def serving(self) -> dict[str, int | None]:
        return {view.name: view.serving_version for view in self.catalog.views() if view.name in QUERIES}

    def run(self, *arguments: str) -> int:
        return main([*arguments, "--project", str(self.folder)])


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path)
    made.apply()
    made.serve(1, *QUERIES)
    yield made
    made.database.close()


# ------------------------------------------------------------------------------------------------------------ the plan


def test_the_plan_follows_the_graph(tmp_path):
    shop = Shop(tmp_path)
    assert [change.view for change in shop.plan()] == ["clicks", "names", "revenue", "top", "best"]
    shop.database.close()


def test_the_plan_says_what_is_new_and_why_and_what_stays(shop):
    shop.view("revenue", QUERIES["revenue"].replace("sum", "max"))
    changes = {change.view: change for change in shop.plan()}
    assert {name: (str(change.kind), change.version) for name, change in changes.items()} == {
        "clicks": ("unchanged", 1), "names": ("unchanged", 1),
        "revenue": ("changed", 2), "top": ("changed", 2), "best": ("changed", 2),
    }  # fmt: skip
    assert changes["top"].because == ("revenue",)
    assert changes["best"].because == ("top",)
    assert changes["revenue"].together_with == ("best v2", "top v2")
    assert changes["top"].description == (
        "v2 replays the log while v1 serves, because revenue changed; it takes over together with best v2, revenue v2 "
        "when all of them have caught up"
    )


def test_two_changes_that_do_not_depend_on_each_other_take_over_alone(shop):
    shop.view("names", "SELECT upper(name) AS name FROM customers")
    shop.view("best", "SELECT min(total) AS total FROM top")
    changes = {change.view: change for change in shop.plan()}
    assert (changes["names"].together_with, changes["best"].together_with) == ((), ())


# ---------------------------------------------------------------------------------------------------------- switching


def changed(shop: Shop) -> None:
    shop.view("revenue", QUERIES["revenue"].replace("sum", "max"))
    shop.apply()


def test_switch_and_rollback_take_the_whole_set(shop, capsys):
    changed(shop)
    shop.catch_up(2, "revenue", "top", "best")
    assert shop.run("switch", "top", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "view": "top", "version": 2, "before": 1,
        "together_with": [{"view": "best", "version": 2, "before": 1}, {"view": "revenue", "version": 2, "before": 1}],
    }  # fmt: skip
    assert shop.serving() == {"best": 2, "names": 1, "revenue": 2, "top": 2}
    assert shop.run("rollback", "best") == 0
    assert capsys.readouterr().out.splitlines() == [
        "best v1 serves from now on, v2 before",
        "revenue v1 serves from now on, v2 before",
        "top v1 serves from now on, v2 before",
    ]
    assert shop.serving() == dict.fromkeys(sorted(QUERIES), 1)
    assert shop.run("switch", "revenue") == 0
    assert shop.serving() == {"best": 2, "names": 1, "revenue": 2, "top": 2}


def test_a_set_is_not_switched_before_all_have_caught_up(shop, capsys):
    changed(shop)
    shop.catch_up(2, "revenue", "best")
    assert shop.run("switch", "revenue") == 1
    assert "revenue v2 needs top v2: top v2 is starting, so readers cannot be switched to it" in capsys.readouterr().err
    assert shop.serving() == dict.fromkeys(sorted(QUERIES), 1)


def test_a_view_that_others_read_is_not_dropped(shop, capsys):
    assert shop.run("drop", "revenue") == 1
    assert "revenue is read by best, top: drop these views first" in capsys.readouterr().err
    for name in ("best", "top", "revenue"):
        assert shop.run("drop", name) == 0
    assert shop.serving() == {"best": None, "names": 1, "revenue": None, "top": None}


# ------------------------------------------------------------------------------------------------------------ drawings


def test_the_graph_as_text(shop, capsys):
    changed(shop)
    shop.catalog.set_state("top", 2, VersionEvent.FAILED, error="no such column")
    assert shop.run("graph") == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split() == ["SOURCE", "KIND", "TOPICS"]
    assert [line.split() for line in lines[1:4]] == [
        ["clicks.events", "events", "clicks"], ["customers", "table", "customers"], ["orders", "events", "orders"],
    ]  # fmt: skip
    (top,) = (at for at, line in enumerate(lines) if line.startswith("  top (kappa)"))
    assert "customers, revenue" in lines[top]
    assert "v1 serving" in lines[top]
    assert "v2 failed" in lines[top + 1]
    assert [line for line in lines if line.startswith("    best (kappa)")]
    assert "top v2 failed: no such column" in shown.err


def test_the_graph_as_json(shop, capsys):
    shop.view("late", "SELECT * FROM best")
    (shop.folder / "views" / "names.toml").unlink()
    assert shop.run("graph", "--format", "json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["sources"][1] == {"name": "customers", "kind": "table", "topics": ["customers"], "pattern": None}
    views = {view["name"]: view for view in value["views"]}
    assert views["top"]["reads"] == {"sources": ["customers"], "views": ["revenue"]}
    assert views["top"]["serving_version"] == 1
    assert (views["top"]["versions"][0]["state"], views["top"]["versions"][0]["records_behind"]) == ("serving", None)
    assert (views["late"]["versions"], views["late"]["has_file"]) == ([], True)
    assert (len(views["names"]["versions"]), views["names"]["has_file"]) == (1, False)
    assert views["clicks"]["reads"] == {"sources": ["clicks.events"], "views": []}


def test_the_graph_of_a_project_with_problems(shop, capsys):
    shop.view("revenue", "SELECT total FROM best")
    assert shop.run("graph") == 0
    shown = capsys.readouterr()
    assert "revenue (kappa)" in shown.out
    assert "the files have 1 problems, which 'headrace views apply' prints" in shown.err


V1 = VersionNode(1, "serving", "combine", True, 12_000, 2000, None)
V2 = VersionNode(2, "failed", "touched", False, 0, None, "failed: x")
NODES = Graph(
    (SourceNode("orders", "events", ("or<ders",)), SourceNode("customers", "table", (), "c.*")),
    (
        ViewNode("revenue", "lambda", ("orders",), (), True, (V1,)),
        ViewNode("top", "kappa", ("customers",), ("revenue",), True, (V2,)),
    ),
)


def test_the_graph_as_mermaid():
    lines = mermaid_lines(NODES)
    assert lines[0] == "flowchart LR"
    assert lines[1:5] == [
        '    n0[("orders<br/>events: or&lt;ders")]:::source',
        '    n1[("customers<br/>table: c.*")]:::source',
        '    n2["revenue (lambda)<br/>v1 serving, 12,000 behind, 2 s old"]:::view',
        '    n3["top (kappa)<br/>v2 failed, 0 behind"]:::trouble',
    ]
    assert [line.strip() for line in lines if "-->" in line] == ["n0 --> n2", "n1 --> n3", "n2 --> n3"]


def test_the_graph_as_svg_needs_nothing_else_and_boxes_do_not_overlap():
    text = svg_text(NODES)
    root = ET.fromstring(text)
    names = "{http://www.w3.org/2000/svg}"
    boxes = []
    for group in root.iter(f"{names}g"):
        rect = group.find(f"{names}rect")
        boxes.append([float(rect.get(each)) for each in ("x", "y", "width", "height")])
    assert len(boxes) == 4
    assert "or&lt;ders" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    for at, (x, y, width, height) in enumerate(boxes):
        for ox, oy, *_ in boxes[at + 1 :]:
            assert not (x <= ox < x + width and y <= oy < y + height)
    assert len([path for path in root.iter(f"{names}path") if path.get("stroke")]) == 3


def test_the_command_draws_the_project_in_every_format(shop, capsys):
    drawn = {}
    for name in ("text", "mermaid", "json", "svg"):
        assert shop.run("graph", "--format", name) == 0
        drawn[name] = capsys.readouterr().out
    assert drawn["mermaid"].startswith("flowchart LR\n")
    assert ET.fromstring(drawn["svg"]).tag == "{http://www.w3.org/2000/svg}svg"
    for name, text in drawn.items():
        assert [each for each in (*QUERIES, "orders") if each not in text] == [], name


def test_an_empty_graph():
    empty = Graph((), ())
    assert text_lines(empty) == ["the project has no views; a view is a TOML file in views/"]
    assert ET.fromstring(svg_text(empty)).get("width") == "16"
