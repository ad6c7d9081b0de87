"""The files of sources, and how the names in a query find them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import Keep, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.project.source_definition import Watermark
from headrace.pipeline.project.table_names import tables_of_sql

ORDERS = """\
topics = ["orders"]
dead_letters = "bad-orders"

[decode]
schema = "id BIGINT, customer STRING, at TIMESTAMP"

[watermark]
column = "at"
delay = "1 hour"
"""
CUSTOMERS = """\
kind = "table"
topics = ["customers"]

[decode]
schema = "name STRING"

[decode.key]
format = "csv"
schema = "id STRING"
"""
JOINED = "SELECT c.name, count(*) AS n\nFROM orders o JOIN Customers c ON o.customer = c.id GROUP BY c.name\n"
#: Stored by a version of Headrace that knew no sources, with its hash.
STORED = {
    "name": "pages",
    "topics": ["a", "b"],
    "pattern": "",
    "architecture": "kappa",
    "query": {"file": "views/q.py", "text": "def pages(events):\n    return events\n", "function": "pages"},
    "decode": {
        "format": "python",
        "schema": "page STRING",
        "options": {"x": "y"},
        "function": {"file": "views/q.py", "text": "def read(value):\n    return {}\n", "function": "read"},
        "framing": "confluent",
    },
    "key": ["page"],
    "dead_letters": "dead",
    "watermark": {"column": "at", "delay": "1 hour"},
    "kappa": {"start": "2026-11-16T08:00:00Z", "switch": "auto", "caught_up_within": 1000},
    "lambda_": {"batch_every_ms": 3600000, "trigger_ms": 200},
    "file": ".",
}


class ProjectFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "headrace.toml").write_text("")
        for each in ("views", "sources"):
            (folder / each).mkdir()
        self.source("orders", ORDERS)
        self.source("customers", CUSTOMERS)

    def source(self, name: str, text: str) -> None:
        (self.folder / "sources" / f"{name}.toml").write_text(text)

    def view(self, query: str, fields: str = "", architecture: str = "kappa", file: str = "v.sql") -> None:
        (self.folder / "views" / file).write_text(query)
        named = f"{file}:v" if file.endswith(".py") else file
        text = f'architecture = "{architecture}"\nquery = "{named}"\n{fields}'
        (self.folder / "views" / "v.toml").write_text(text)

    def definition(self) -> ViewDefinition:
        assert self.problems() == []
        return read_project(self.folder).project.views["v"]

    def problems(self) -> list[str]:
        return [str(each).replace(f"{self.folder}/", "") for each in read_project(self.folder).problems]


@pytest.fixture
def project(tmp_path: Path) -> ProjectFolder:
    return ProjectFolder(tmp_path)


# ------------------------------------------------------------------------------------------------- names in queries


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("SELECT * FROM orders o JOIN `my-topic` USING (id), Payments", ["orders", "my-topic", "Payments"]),
        ("SELECT * FROM ORDERS a JOIN orders b ON a.x = b.x", ["ORDERS"]),
        ("WITH a AS (SELECT * FROM orders), b AS (SELECT * FROM a) SELECT * FROM b", ["orders"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM a, b", ["a"]),
        ("SELECT (SELECT max(x) FROM t) FROM o WHERE EXISTS (SELECT 1 FROM p WHERE p.id = o.id)", ["t", "o", "p"]),
        ("SELECT * FROM o WHERE id IN (WITH x AS (SELECT * FROM p) SELECT id FROM x)", ["o", "p"]),
        ("SELECT * FROM (SELECT * FROM a UNION ALL SELECT * FROM b) LATERAL VIEW explode(xs) t AS x", ["a", "b"]),
        ("SELECT * FROM range(10) JOIN o", ["o"]),
        ("SELECT * FROM VALUES (1), (2) AS t(a)", []),
        ("-- FROM comment\nSELECT 'FROM text' FROM a /* JOIN b */", ["a"]),
        ("FROM orders |> WHERE x > 1 |> AGGREGATE count(*) AS n GROUP BY y", ["orders"]),
        ("TABLE orders", ["orders"]),
        ("SELECT )( FROM orders JOIN `my-topic`", ["orders", "my-topic"]),  # sqlglot cannot parse it
    ],
)
def test_the_tables_of_a_query(sql, names):
    assert [each.name for each in tables_of_sql(sql)] == names


def test_the_place_of_a_table():
    assert tables_of_sql("SELECT *\n  FROM `my-topic` a\nJOIN b")[:2] == [("my-topic", 2, 8), ("b", 3, 6)]


# ------------------------------------------------------------------------------------------------------- definitions


def test_a_view_over_two_sources(project):
    project.view(JOINED, 'maintain = "touched"\n[keep]\ncolumn = "at"\nfor = "7 days"\n')
    view = project.definition()
    orders, customers = view.sources
    assert (orders.name, orders.kind, orders.topics, orders.dead_letters) == (
        "orders",
        "events",
        ("orders",),
        "bad-orders",
    )
    assert orders.watermark == Watermark("at", "1 hour")
    assert (customers.name, customers.kind, customers.file) == ("customers", "table", Path("sources/customers.toml"))
    assert customers.decode == Decode("json", "name STRING", key=Decode("csv", "id STRING"))
    assert (view.topics, view.pattern, view.source_name) == ((), "", "")
    assert (view.maintain, view.keep) == ("touched", Keep("at", "7 days"))
    assert [view.reads(topic) for topic in ("orders", "customers", "clicks")] == [True, True, False]
    assert view.inputs == view.sources


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_a_view_over_one_source_of_events_has_its_records_as_its_own(project, architecture):
    project.view("SELECT customer, count(*) AS n FROM Orders GROUP BY 1", architecture=architecture)
    view = project.definition()
    assert (view.topics, view.decode.schema) == (("orders",), "id BIGINT, customer STRING, at TIMESTAMP")
    assert (view.source_name, view.source_file, view.sources) == ("orders", Path("sources/orders.toml"), ())
    assert view.dead_letters == "bad-orders"
    assert view.watermark == (Watermark("at", "1 hour") if architecture == "kappa" else None)
    assert view.inputs[0].name == "orders"
    project.view("SELECT customer, count(*) AS n FROM Orders GROUP BY 1", 'dead_letters = "mine"\n', architecture)
    assert project.definition().dead_letters == "mine"


def test_a_view_over_one_table_reads_a_source(project):
    project.view("SELECT name, count(*) AS n FROM customers GROUP BY name", 'dead_letters = "mine"\n')
    view = project.definition()
    assert [source.kind for source in view.sources] == ["table"]
    assert view.sources[0].dead_letters == "mine"


def test_a_view_with_its_own_records_and_a_source(project):
    own = 'topics = ["clicks", "orders"]\n[decode]\nschema = "customer STRING"\n'
    project.view("SELECT * FROM orders JOIN customers c ON customer = c.id JOIN clicks", own)
    view = project.definition()
    assert [(each.name, each.kind, each.topics) for each in view.sources] == [
        ("events", "events", ("clicks", "orders")),  # orders is the view's own topic
        ("customers", "table", ("customers",)),
    ]
    assert view.topics == ()
    project.view("SELECT count(*) AS n FROM clicks", own)
    assert (project.definition().sources, project.definition().topics) == ((), ("clicks", "orders"))


@pytest.mark.parametrize(
    ("query", "fields", "names"),
    [
        ("def v(customers, orders):\n    return orders\n", "", ["customers", "orders"]),
        ("def v(a, b):\n    return a\n", 'sources = ["orders", "customers"]\n', ["orders", "customers"]),
        ("v = max\n", 'sources = ["customers", "orders"]\n', ["customers", "orders"]),
        (
            "def v(events, customers):\n    return events\n",
            'topics = ["clicks"]\n[decode]\nschema = "a INT"\n',
            ["events", "customers"],
        ),
    ],
)
def test_the_arguments_of_a_function(project, query, fields, names):
    project.view(query, fields, file="v.py")
    assert [source.name for source in project.definition().sources] == names


def test_a_function_with_one_argument(project):
    project.view("def v(orders):\n    return orders\n", file="v.py")
    assert project.definition().source_name == "orders"
    project.view(
        "def v(orders):\n    return orders\n", 'topics = ["clicks"]\n[decode]\nschema = "a INT"\n', file="v.py"
    )
    assert (project.definition().source_name, project.definition().topics) == ("", ("clicks",))


def test_a_registry_and_its_login(project, monkeypatch):
    text = """topics = ["t"]
[decode]
format = "avro"
schema = '{"type": "record", "name": "R", "fields": []}'
registry = "https://registry:8081"
registry_options = {"basic.auth.user.info" = "LOGIN", "ssl.ca.location" = "ca.pem"}
"""
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    project.source("a", text.replace("LOGIN", "${env:REGISTRY_LOGIN}"))
    decode = read_project(project.folder).project.sources["a"].decode
    assert project.problems() == []
    assert (decode.framing, decode.registry) == ("confluent", "https://registry:8081")
    assert decode.registry_options == {
        "basic.auth.user.info": "${env:REGISTRY_LOGIN}",  # the catalog never has the secret
        "ssl.ca.location": str(project.folder / "ca.pem"),
    }
    for login, complaint in {
        "ann:secret": "basic.auth.user.info must be a reference to a secret",
        "${env:NOT_THERE}": "the variable NOT_THERE is not set in the environment",
        "${file:login}": "cannot read the file: No such file",
    }.items():
        project.source("a", text.replace("LOGIN", login))
        assert [problem for problem in project.problems() if complaint in problem]


def test_protobuf(project):
    text = 'topics = ["t"]\n[decode]\nformat = "protobuf"\ndescriptor = "a.desc"\nmessage = "shop.Order"\n'
    project.source("a", text)
    assert "sources/a.toml:4: descriptor: cannot read sources/a.desc: No such file" in project.problems()[0]
    (project.folder / "sources" / "a.desc").write_bytes(b"\xff\x00")
    decode = read_project(project.folder).project.sources["a"].decode
    assert (decode.format, decode.descriptor, decode.message) == ("protobuf", "/wA=", "shop.Order")


def test_the_address_of_a_registry_does_not_change_the_hash():
    avro = Decode("avro", "{}", registry="http://a")
    assert avro.essence == replace(avro, registry="http://b", registry_options={"ssl.ca.location": "x"}).essence
    assert avro.essence != replace(avro, registry="").essence


# ---------------------------------------------------------------------------------------------------- hash, catalog


def test_a_definition_with_sources_survives_json(project):
    project.view(JOINED, 'maintain = "whole"\n[keep]\ncolumn = "at"\nfor = "7 days"\n')
    for query in (JOINED, "SELECT * FROM orders"):
        project.view(query)
        view = project.definition()
        again = ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict())))
        assert again == view
        assert again.definition_hash == view.definition_hash


def test_a_definition_of_an_earlier_release_is_read_and_keeps_its_hash():
    stored = ViewDefinition.from_dict(STORED)
    assert stored.definition_hash == "295d938eff54a607"
    assert (stored.sources, stored.decode.key, stored.maintain, stored.keep) == ((), None, "", None)
    sql = FileText("views/pages.sql", "SELECT page, count(*) AS n FROM events GROUP BY page\n")
    decode = Decode("json", "page STRING, ms BIGINT")
    assert ViewDefinition("pages", ("clicks",), "", "lambda", sql, decode).definition_hash == "554abfcd2fa8131e"
    several = ViewDefinition("p", ("a", "b"), "", "kappa", FileText("q.sql", "SELECT 1 FROM a"), Decode("raw"))
    assert several.definition_hash == "f44e467365029fca"


def test_the_hash_changes_with_what_the_rows_of_a_source_depend_on(project):
    project.view(JOINED)
    before = project.definition()
    orders, customers = before.sources
    same = [
        (customers, orders),
        (replace(orders, dead_letters="other", file=Path("other")), customers),
        (replace(orders, decode=replace(orders.decode, schema=orders.decode.schema.replace(" ", "  "))), customers),
    ]
    other = [
        (replace(orders, topics=("orders-2",)), customers),
        (orders, replace(customers, kind="events")),
        (orders, replace(customers, decode=replace(customers.decode, key=None))),
        (orders,),
    ]
    assert {replace(before, sources=sources).definition_hash for sources in same} == {before.definition_hash}
    hashes = [replace(before, sources=sources).definition_hash for sources in other]
    assert len({before.definition_hash, *hashes, replace(before, maintain="whole").definition_hash}) == 6


# ---------------------------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("query", "fields", "problem"),
    [
        ("SELECT *\nFROM ordrs", "", "views/v.sql:2:6: there is no table ordrs: did you mean orders?"),
        (
            "SELECT * FROM events",
            "",
            "views/v.sql:1:15: there is no table events, because the view has no topics of its own: write FROM and",
        ),
        ("SELECT 1 AS a", "", "views/v.toml:2: the query names no source: write FROM and the name of a source"),
        ("SELECT * FROM orders", 'sources = ["order"]\n', "views/v.toml:3: there is no table order: did you mean"),
        (
            "SELECT * FROM orders",
            'topics = ["clicks"]\n[decode]\nschema = "a INT"\n',
            "views/v.toml:2: the query does not read the view's own topics: name them in FROM, or remove topics and",
        ),
        (
            JOINED,
            '[watermark]\ncolumn = "at"\ndelay = "1 hour"\n',
            "views/v.toml:3: a view over several sources has no",
        ),
        (
            JOINED,
            '[kappa]\nstart = "2026-11-16T08:00:00Z"\n',
            'views/v.toml:4: kappa.start must be "earliest", because',
        ),
        (JOINED, 'maintain = "stram"\n', "views/v.toml:3: maintain cannot be 'stram': did you mean stream?"),
        (JOINED, '[keep]\ncolumn = "at"\nfor = "7 moons"\n', "views/v.toml:5: for: '7 moons' is not a duration"),
    ],
)
def test_mistakes_in_a_view(project, query, fields, problem):
    project.view(query, fields)
    (found,) = project.problems()
    assert found.startswith(problem)


def test_a_function_that_does_not_say_its_sources(project):
    project.view("v = max\n", file="v.py")
    assert project.problems() == [
        'views/v.toml:2: say which sources the function gets, in their order: sources = ["orders", "customers"]'
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("my-source", ORDERS, "sources/my-source.toml: 'my-source' cannot be the name of a source: use letters,"),
        ("a", ORDERS.replace("topics", "topic"), "sources/a.toml:1: there is no field 'topic': did you mean topics?"),
        ("a", 'kind = "tabel"\n' + ORDERS, "sources/a.toml:1: kind cannot be 'tabel': did you mean table?"),
        ("a", 'kind = "table"\n' + ORDERS, "sources/a.toml:8: a source of kind table has no late events: remove"),
        ("a", ORDERS.replace("bad-orders", "orders"), "sources/a.toml:2: dead_letters cannot be 'orders', because the"),
        ("a", CUSTOMERS.replace('"csv"', '"raw"'), "sources/a.toml:8: decode.key.format cannot be 'raw': known names"),
        ("a", CUSTOMERS.replace('schema = "id STRING"', ""), "sources/a.toml:7: decode.key.schema is missing: format"),
        (
            "a",
            ORDERS.replace("schema", 'registry = "x"\nschema'),
            "sources/a.toml:5: decode.registry must be an",
        ),
        (
            "a",
            ORDERS.replace("schema", 'format = "csv"\nregistry = "http://r"\nschema'),
            "sources/a.toml:6: a registry has no schemas for format csv: use one of json, avro, protobuf",
        ),
        (
            "a",
            ORDERS.replace("schema", 'message = "x"\nschema'),
            "sources/a.toml:5: only format protobuf has a",
        ),
        (
            "a",
            ORDERS.replace("schema", 'format = "protobuf"\nschema'),
            "sources/a.toml:6: format protobuf has no",
        ),
        (
            "a",
            'kind = "changes"\n' + CUSTOMERS[15:].replace("schema", 'format = "csv"\nschema', 1),
            "sources/a.toml:5: kind changes needs format json or avro or protobuf, not csv",
        ),
        ("a", "topics = [", "sources/a.toml: the file is not valid TOML"),
        ("ORDERS", ORDERS, "sources/orders.toml: sources/ORDERS.toml has the same name, because SQL ignores the case"),
    ],
)
def test_mistakes_in_a_source(project, name, text, problem):
    project.source(name, text)
    assert any(found.startswith(problem) for found in project.problems())


def test_a_view_is_not_checked_further_if_its_source_has_a_problem(project):
    project.source("orders", ORDERS.replace("schema", "shema"))
    project.view(JOINED)
    draft = read_project(project.folder)
    assert "decode" in draft.invalid_fields["v"]
    assert len(draft.problems) == 2  # the field that does not exist, and the field that is missing
