"""Queries that name other views: how the names are found, what the definitions have, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.views_on_views.order import order_of
from headrace.pipeline.query.quick_checks import check_sql

ORDERS = 'topics = ["orders"]\n[decode]\nschema = "id BIGINT, customer BIGINT, amount BIGINT, at TIMESTAMP"\n'
CUSTOMERS = 'kind = "table"\ntopics = ["customers"]\n[decode]\nschema = "customer BIGINT, name STRING"\n'
OWN = 'topics = ["clicks"]\ndead_letters = "bad-clicks"\n[decode]\nschema = "page STRING"\n'
REVENUE = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
TOP = "SELECT c.name, r.total FROM revenue r JOIN customers c ON r.customer = c.customer"


class GraphFolder:
    """The files of a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "headrace.toml").write_text("")
        for each in ("views", "sources"):
            (folder / each).mkdir()

    def source(self, name: str, text: str) -> None:
        (self.folder / "sources" / f"{name}.toml").write_text(text)

    def view(self, name: str, query: str, fields: str = "", architecture: str = "kappa") -> None:
        is_python = query.startswith("def")
        (self.folder / "views" / f"{name}.{'py' if is_python else 'sql'}").write_text(query)
        named = f"{name}.py:{name}" if is_python else f"{name}.sql"
        text = f'architecture = "{architecture}"\nquery = "{named}"\n{fields}'
        (self.folder / "views" / f"{name}.toml").write_text(text)

    def views(self) -> dict[str, ViewDefinition]:
        assert self.problems() == []
        return dict(read_project(self.folder).project.views)

    def problems(self) -> list[str]:
        return [str(each).replace(f"{self.folder}/", "") for each in read_project(self.folder).problems]

    def hashes(self) -> dict[str, str]:
        return {name: view.definition_hash for name, view in self.views().items()}


@pytest.fixture
def project(tmp_path: Path) -> GraphFolder:
    made = GraphFolder(tmp_path)
    made.source("orders", ORDERS)
    made.source("customers", CUSTOMERS)
    made.view("revenue", REVENUE)
    made.view("top", TOP)
    return made


# ---------------------------------------------------------------------------------------------------------- the order


@pytest.mark.parametrize(
    ("reads", "names", "cycles"),
    [
        ({}, [], []),
        ({"a": [], "b": []}, ["a", "b"], []),
        ({"a": ["b"], "b": ["c"], "c": []}, ["c", "b", "a"], []),
        ({"d": ["b", "c"], "b": ["a"], "c": ["a", "elsewhere"], "a": []}, ["a", "b", "c", "d"], []),
        ({"b": ["a"], "a": ["b"], "below": ["a"], "other": []}, ["other"], [["a", "b", "a"]]),
        ({"c": ["a"], "a": ["b"], "b": ["c"]}, [], [["a", "b", "c", "a"]]),
        ({"a": ["b"], "b": ["a"], "x": ["y"], "y": ["x"]}, [], [["a", "b", "a"], ["x", "y", "x"]]),
    ],
)
def test_every_view_follows_those_that_it_reads(reads, names, cycles):
    assert order_of(reads) == (names, cycles)


def test_a_long_chain_is_ordered_without_recursion():
    reads = {f"v{at:05}": [f"v{at - 1:05}"] if at else [] for at in range(3000)}
    assert order_of(reads).names == sorted(reads)


# -------------------------------------------------------------------------------------------------------- definitions


def test_a_view_on_a_view_reads_the_sources_of_both(project):
    top = project.views()["top"]
    assert [source.name for source in top.sources] == ["customers", "orders"]
    assert (top.topics, top.reads_directly) == ((), ("revenue", "customers"))
    (revenue,) = top.views
    assert (revenue.name, revenue.query.text) == ("revenue", REVENUE)
    assert [(each.name, each.reads, each.topic) for each in revenue.tables] == [("orders", "orders", "")]
    assert [top.reads(topic) for topic in ("orders", "customers", "clicks")] == [True, True, False]


def test_definitions_survive_the_catalog(project):
    top = project.views()["top"]
    read = ViewDefinition.from_dict(json.loads(json.dumps(top.as_dict())))
    assert (read.views, read.reads_directly, read.definition_hash) == (
        top.views,
        top.reads_directly,
        top.definition_hash,
    )
    assert read == top


def test_the_views_of_views_come_in_an_order_in_which_they_can_be_computed(project):
    project.view("top", "SELECT max(r.total) AS most FROM revenue r JOIN large l ON r.customer = l.customer")
    project.view("large", "SELECT customer FROM Revenue WHERE total > 10")
    top = project.views()["top"]
    assert [view.name for view in top.views] == ["revenue", "large"]
    assert ("revenue", "revenue", "") in [(each.name, each.reads, each.topic) for each in top.views[1].tables]


def test_a_view_on_a_view_of_one_source_of_events_has_its_records(project):
    project.view("large", "SELECT customer FROM revenue WHERE total > 10")
    large = project.views()["large"]
    assert (large.topics, large.source_name, large.sources) == (("orders",), "orders", ())
    assert [view.name for view in large.views] == ["revenue"]


def test_a_project_of_views_alone_needs_no_sources(tmp_path):
    project = GraphFolder(tmp_path)
    project.view("pages", "SELECT page, count(*) AS n FROM clicks GROUP BY page", OWN)
    project.view("often", "SELECT page FROM pages WHERE n > 10")
    often = project.views()["often"]
    assert (often.topics, often.source_name, often.dead_letters) == (("clicks",), "pages.events", "bad-clicks")
    assert [(each.name, each.reads) for each in often.views[0].tables] == [
        ("events", "pages.events"), ("clicks", "pages.events"),
    ]  # fmt: skip
    assert check_sql(often) == (None, None)


def test_two_views_with_records_of_their_own_are_two_sources(project):
    project.view("pages", "SELECT page, count(*) AS n FROM events GROUP BY page", OWN)
    project.view("users", "SELECT user FROM a", 'topics = ["a", "b"]\n[decode]\nschema = "user STRING"\n')
    project.view("mixed", "SELECT * FROM pages, users, events", 'topics = ["x"]\n[decode]\nschema = "x STRING"\n')
    mixed = project.views()["mixed"]
    assert {source.name: source.topics for source in mixed.sources} == {
        "events": ("x",), "pages.events": ("clicks",), "users.events": ("a", "b"),
    }  # fmt: skip
    tables = {each.name: (each.reads, each.topic) for each in mixed.views[1].tables}
    assert tables == {"events": ("users.events", ""), "a": ("users.events", "a"), "b": ("users.events", "b")}


def test_python_queries_get_views_as_arguments(project):
    project.view("joined", "def joined(customers, revenue):\n    return customers.join(revenue, 'customer')\n")
    joined = project.views()["joined"]
    assert joined.reads_directly == ("customers", "revenue")
    project.view("joined", "def joined(one, two):\n    return one\n", 'sources = ["top", "customers"]\n')
    assert project.views()["joined"].reads_directly == ("top", "customers")


def test_a_python_query_can_be_read(project):
    project.view("revenue", "def revenue(orders):\n    return orders.groupBy('customer').count()\n")
    (revenue,) = project.views()["top"].views
    assert [(each.name, each.reads) for each in revenue.tables] == [("orders", "orders")]


def test_the_watermark_of_a_source_counts(project):
    project.source("orders", f'{ORDERS}[watermark]\ncolumn = "at"\ndelay = "1 hour"\n')
    top = project.views()["top"]
    assert {source.name: source.watermark is not None for source in top.sources} == {"customers": False, "orders": True}


# ------------------------------------------------------------------------------------------------------------- hashes


def test_a_changed_view_changes_everything_below_it_and_nothing_else(project):
    project.view("large", "SELECT customer FROM revenue WHERE total > 10")
    project.view("names", "SELECT name FROM customers")
    project.view("deep", "SELECT count(*) AS n FROM large")
    before = project.hashes()
    project.view("revenue", REVENUE.replace("sum", "max"))
    after = project.hashes()
    assert {name for name in before if before[name] != after[name]} == {"revenue", "top", "large", "deep"}


def test_what_does_not_change_the_rows_of_a_view_changes_nothing_below_it(project):
    before = project.hashes()
    project.view("revenue", REVENUE, 'maintain = "touched"\n', architecture="lambda")
    after = project.hashes()
    assert {name for name in before if before[name] != after[name]} == {"revenue"}


def test_a_changed_source_changes_what_reads_it_through_a_view(project):
    before = project.hashes()
    project.source("orders", ORDERS.replace("amount BIGINT", "amount DOUBLE"))
    assert all(before[name] != after for name, after in project.hashes().items())


# -------------------------------------------------------------------------------------------------------- refusals


def test_cycles_are_refused_with_their_path(project):
    project.view("revenue", "SELECT customer\nFROM large")
    project.view("large", "SELECT customer FROM top")
    assert project.problems() == [
        "views/large.sql:1:22: views cannot read each other: large -> top -> revenue -> large; "
        "remove one of these names"
    ]  # fmt: skip


def test_a_view_cannot_read_itself(project):
    project.view("revenue", "SELECT total FROM revenue")
    (problem,) = project.problems()
    assert problem == "views/revenue.sql:1:19: the view revenue cannot read itself: name a source or another view"


def test_a_view_may_have_the_name_of_the_source_or_topic_that_it_reads(project):
    project.view("orders", "SELECT count(*) AS n FROM orders")
    project.view("clicks", "SELECT count(*) AS n FROM clicks", OWN)
    assert project.problems() == [
        "views/revenue.sql:1:44: orders is a source and also a view (sources/orders.toml and views/orders.toml): "
        "rename one of them"
    ]
    project.view("orders", "SELECT 1 AS n FROM orders")
    (project.folder / "views" / "revenue.toml").unlink()
    (project.folder / "views" / "top.toml").unlink()
    assert [source.name for source in project.views()["orders"].inputs] == ["orders"]


@pytest.mark.parametrize(
    ("topics", "instead"),
    [('["revenue"]', "FROM events"), ('["revenue", "b"]', "FROM events WHERE _topic = 'revenue'")],
)
def test_a_name_of_a_topic_and_of_a_view_is_refused(project, topics, instead):
    project.view("v", "SELECT 1 AS x FROM revenue", f'topics = {topics}\n[decode]\nschema = "x INT"\n')
    assert project.problems() == [
        "views/v.sql:1:20: revenue is a topic of this view, and also a view: "
        f"write {instead}, or rename the view"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('[keep]\ncolumn = "at"\nfor = "1 day"\n', "revenue has [keep], so its old rows are deleted"),
        ('[watermark]\ncolumn = "at"\ndelay = "1 hour"\n', "revenue has a [watermark] of its own"),
        ('[kappa]\nstart = "2026-11-16T08:00:00Z"\n', "begins at '2026-11-16T08:00:00Z', and this view at 'earliest'"),
    ],
)
def test_views_whose_rows_are_not_those_of_their_query_cannot_be_read(project, fields, problem):
    project.view("revenue", REVENUE, fields)
    (found,) = project.problems()
    assert found.startswith("views/top.sql:1:29: ")
    assert problem in found


def test_a_problem_of_a_view_is_told_once(project):
    project.view("revenue", REVENUE, 'nonsense = "x"\n')
    (problem,) = project.problems()
    assert "views/revenue.toml" in problem
    (project.folder / "views" / "revenue.sql").unlink()
    assert len(project.problems()) == 2
    (project.folder / "views" / "revenue.toml").write_text("x = [")
    (problem,) = project.problems()
    assert "not valid TOML" in problem
    assert "query" in read_project(project.folder).invalid_fields["top"]


def test_an_unknown_name_is_told_with_the_views_that_there_are(project):
    project.view("top", "SELECT * FROM revenu")
    assert project.problems() == ["views/top.sql:1:15: there is no table revenu: did you mean revenue?"]
