"""Views as DataFrames, and the problems that validation finds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.pipeline.decoding.events import decode_frame, good_rows
from headrace.pipeline.maintenance.checks import check_view
from headrace.pipeline.maintenance.ways import Way
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition, Watermark
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.needed_columns import needed_columns
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.row_keys import key_columns, output_mode
from headrace.pipeline.query.row_partials import RowPartials
from headrace.pipeline.query.validation import missing_topics
from headrace.pipeline.query.view_query import ViewError, apply_query, build, empty_events
from headrace.pipeline.spark.source.data_source import spark_schema

LINES = {("topics",): 1, ("architecture",): 2, ("query",): 3, ("decode",): 5, ("decode", "schema"): 7}
AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
BY_SESSION = "SELECT page, session_window(at, '5 minutes') AS s, count(*) AS n FROM events GROUP BY 1, 2"
BY_PAGE = "SELECT page, count(*) AS n FROM events GROUP BY page"


def _validate(spark, definition, topics):
    """All problems of a view: those of its topics, and those that Spark finds."""
    return missing_topics(definition, topics) + check_view(spark, definition).problems


def _view(query: str, architecture: str = "lambda", *, function: str = "", **changes: object) -> ViewDefinition:
    made = ViewDefinition(
        name="pages",
        topics=("clicks",),
        pattern="",
        architecture=architecture,
        query=FileText("views/q.py" if function else "views/pages.sql", query, function),
        decode=Decode("json", "page STRING, ms BIGINT, at TIMESTAMP"),
        file=Path("views/pages.toml"),
        lines=LINES,
    )
    return replace(made, **changes)


def _problems(spark, definition: ViewDefinition) -> list[str]:
    return [str(problem) for problem in _validate(spark, definition, ["clicks", "orders"])]


def _records(spark, *values: bytes):
    rows = [(None, value, "clicks", 0, offset, AT, 0) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, spark_schema(include_headers=False))


@pytest.mark.parametrize("name", ["events", "clicks"])
def test_a_query_reads_events_or_the_topic(spark, name):
    query = BY_PAGE.replace("events", name) + " ORDER BY page;"
    records = _records(spark, b'{"page":"a"}', b'{"page":"b"}', b'{"page":"a"}', b"{bad")
    frame = build(spark, _view(query), records)
    assert [tuple(row) for row in frame.collect()] == [("a", 2), ("b", 1)]
    assert not spark.catalog.tableExists(name)


def _mixed(spark):
    """Two records of orders, one of customers, one of my-topic."""
    topics = ("orders", "customers", "orders", "my-topic")
    rows = [(None, b'{"page":"%d"}' % at, topic, 0, at, AT, 0) for at, topic in enumerate(topics)]
    return spark.createDataFrame(rows, spark_schema(include_headers=False))


@pytest.mark.parametrize(
    ("topics", "table", "pages"),
    [
        (("orders", "customers", "my-topic"), "events", ["0", "1", "2", "3"]),
        (("orders", "customers", "my-topic"), "orders", ["0", "2"]),
        (("orders", "customers", "my-topic"), "ORDERS", ["0", "2"]),
        (("orders", "customers", "my-topic"), "`my-topic`", ["3"]),
        (("my-topic",), "`my-topic`", ["0", "1", "2", "3"]),  # nobody else's records are read then
        (("a.b", "customers"), "customers", ["1"]),
        (("a.b",), "`a.b`", ["0", "1", "2", "3"]),
        (("Events",), "events", ["0", "1", "2", "3"]),
        (("events", "customers"), "customers", ["1"]),
    ],
)
@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_the_name_of_a_topic_means_its_own_records(spark, architecture, topics, table, pages):
    definition = _view(f"SELECT page, count(*) AS n FROM {table} GROUP BY page", architecture, topics=topics)
    assert _validate(spark, definition, topics) == []
    records = _mixed(spark)
    assert sorted(row.page for row in build(spark, definition, records).collect()) == pages
    if architecture == "lambda":
        algebra = Algebra(analyze(apply_query(spark, definition, empty_events(spark, definition))))
        partials = algebra.collect(good_rows(decode_frame(definition.decode, records)))
        assert sorted(partials.column("_k0").to_pylist()) == pages
        rows = RowPartials.prepare(spark, definition, algebra)
        assert sorted(rows.compute(records.toArrow()).rows.column("_k0").to_pylist()) == pages
    else:
        assert ("topic" in needed_columns(spark, definition)) == (len(topics) > 1 and table != "events")
    assert not spark.catalog.tableExists(table)


@pytest.mark.parametrize(
    ("changes", "table", "problem"),
    [
        (
            {"topics": ("events", "orders")},
            "events",
            "FROM events is ambiguous: events means the records of all topics",
        ),
        (
            {"topics": ("Orders", "orders")},
            "orders",
            "FROM orders is ambiguous: the view has the topics Orders and ord",
        ),
        ({"topics": ("a.b", "orders")}, "a.b", "write the name of the topic in backticks, FROM `a.b`"),
        (
            {"topics": (), "pattern": "orders|my.*"},
            "orders",
            "in a view with a pattern, write FROM events WHERE _topic =",
        ),
        ({"topics": ("orders", "my-topic")}, "order", "there is no table order: did you mean orders?"),
    ],
)
def test_names_that_are_ambiguous_or_not_there(spark, changes, table, problem):
    definition = _view(f"SELECT page, count(*) AS n FROM {table} GROUP BY page", **changes)
    (found,) = _validate(spark, definition, ["events", "orders", "Orders", "a.b", "my-topic"])
    assert str(found).startswith("views/pages.sql:1:33: ")
    assert problem in str(found)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.page, sum(o.ms) AS n FROM orders o JOIN clicks c ON o.page = c.page GROUP BY o.page",
        "SELECT o.page, o.ms FROM orders o JOIN clicks c ON o.page = c.page",
        "SELECT page, sum(ms) AS n FROM (SELECT * FROM orders UNION ALL SELECT * FROM clicks) GROUP BY page",
        "SELECT page, ms FROM orders WHERE page IN (SELECT page FROM clicks)",
    ],
)
def test_topics_are_joined_by_touched_keys(spark, query):
    for architecture in ("lambda", "kappa"):
        problems, chosen = check_view(spark, _view(query, architecture, topics=("orders", "clicks")))
        assert problems == []
        assert chosen is not None
        assert chosen.way is Way.TOUCHED


def test_a_view_of_several_topics_is_a_new_version_since_their_names_mean_what_they_say(spark):
    one, two = _view(BY_PAGE), _view(BY_PAGE, topics=("clicks", "orders"))
    code = "def pages(events):\n    return events.groupBy('page').count()\n"
    assert one.definition_hash == "6b0062f7a018c359"
    assert _view(code, function="pages", topics=("clicks", "orders")).definition_hash == "8fb089cc9a57f37e"
    assert two.definition_hash != "8c9c8c4dd098ea56"


def test_a_python_query(spark):
    code = "def pages(events):\n    return events.groupBy('page').count()\n"
    frame = build(spark, _view(code, function="pages"), _records(spark, b'{"page":"a"}'))
    assert [tuple(row) for row in frame.collect()] == [("a", 1)]


def test_windows_become_two_columns(spark):
    query = "SELECT window(at, '1 hour') AS w, page, count(*) AS n FROM events GROUP BY 1, page"
    definition = _view(query, "kappa")
    frame = build(spark, definition, _records(spark, b'{"page":"a","at":"2026-11-16T08:10:00Z"}'))
    assert frame.columns == ["w_start", "w_end", "page", "n"]
    assert frame.toArrow().column("w_start")[0].as_py() == datetime(2026, 11, 16, 8, tzinfo=UTC)
    assert key_columns(definition, frame) == ("w_start", "w_end", "page")


@pytest.mark.parametrize(
    ("query", "mode", "keys"),
    [
        (BY_PAGE, "update", ("page",)),
        ("SELECT upper(page) AS p, n FROM (SELECT page, count(*) AS n FROM events GROUP BY page)", "update", None),
        ("SELECT n, p FROM (SELECT page AS p, count(*) AS n FROM events GROUP BY page)", "update", ("p",)),
        (BY_PAGE + " ORDER BY n LIMIT 3", "complete", ("page",)),
        (BY_PAGE + " HAVING n < 3", "complete", ("page",)),
        (BY_PAGE + " HAVING page > 'a'", "update", ("page",)),
        ("SELECT count(*) AS n FROM events", "update", ()),
        (BY_SESSION, "complete", ("page", "s_start", "s_end")),
        ("SELECT DISTINCT page, ms FROM events", "update", ("page", "ms")),
        ("SELECT page, ms FROM events WHERE ms > 0", "append", None),
    ],
)
def test_modes_and_keys(spark, query, mode, keys):
    definition = _view(query, "kappa")
    frame = apply_query(spark, definition, empty_events(spark, definition, is_stream=True))
    assert output_mode(frame) == mode
    if keys is None:
        with pytest.raises(ViewError):
            key_columns(definition, frame)
    else:
        assert key_columns(definition, frame) == keys


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
@pytest.mark.parametrize("query", [BY_PAGE, BY_PAGE + " HAVING n > 1 ORDER BY n DESC LIMIT 3"])
def test_views_that_run(spark, architecture, query):
    assert _problems(spark, _view(query, architecture)) == []


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT page,\n  pge\nFROM events", "2:3: there is no column pge: did you mean page?"),
        ("SELECT e.pge\nFROM events e", "1:8: there is no column e.pge: did you mean e.page?"),
        ("SELECT e.page\nFROM events", "1:8: there is no column e.page: did you mean events.page?"),
        ("SELECT page AS seite FROM events ORDER BY siete", "1:43: there is no column siete: did you mean seite?"),
        ("SELECT `the page` FROM events", "1:8: there is no column the page"),
        ("SELECT count(*),\n at.nme FROM events GROUP BY 2", "2:2: there is no field nme: did you mean name?"),
        ("SELECT page\nFORM events", "2:6: Syntax error at or near 'events'"),
        ("SELECT *\nFROM clikcs", "2:6: there is no table clikcs: did you mean clicks?"),
        ("SELECT *\nFROM shop.x", "2:6: there is no table shop.x: known names are clicks, events"),
        ("SELECT foo(page) FROM events", "1:8: there is no function foo"),
        ("SELECT 'é',\n  lowr(page) FROM events", "2:3: there is no function lowr: did you mean lower?"),
        ("SELECT upper(page, ms) FROM events", "1:8: The upper requires 1 parameters but the actual number is 2."),
        ("SELECT page::BIGNT FROM events", "1:14: there is no type BIGNT: did you mean BIGINT?"),
        ("SELECT e.page FROM events e, events f WHERE page = ''", "1:45: Reference page is ambiguous, could be: [e"),
        ("SELECT page, count(*) FROM events", "1:1: The query does not include a GROUP BY clause."),
        ("-- ms\nSELECT page, 'ms',\n  ms FROM events GROUP BY page", '3:3: The non-aggregating expression "ms"'),
        ("DROP TABLE x", "1: a view needs a query: one SELECT or WITH"),
        ("CREATE TABLE x AS SELECT 1", "1: a view needs a query: one SELECT or WITH"),
        ("  ", "1: the file has no query"),
        ("SELECT page,\n page FROM events GROUP BY page", "2:2: two columns are named 'page': rename one with AS"),
        ("SELECT page AS _hidden, count(*) FROM events GROUP BY 1", "1:16: the name _hidden is reserved"),
        ("SELECT array(parse_json(page)) AS docs FROM events", "1:35: column 'docs' has a VARIANT inside of another"),
        ("SELECT * FROM events", "1:1: the name _key is reserved for Headrace's own columns: leave it out with SELECT"),
    ],
)  # fmt: skip
def test_queries_that_do_not_run(spark, query, problem):
    schema = "page STRING, ms BIGINT, at STRUCT<id: BIGINT, name: STRING>"
    (found,) = _problems(spark, _view(query, decode=Decode("json", schema)))
    assert found.startswith(f"views/pages.sql:{problem}"), found
    assert "`" not in found


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT page, ms FROM events", "toml:3: the query has no GROUP BY, so it has no key"),
        ("SELECT count(*) AS n FROM events GROUP BY page", "sql:1:43: rows are identified by"),
        (
            "SELECT page, count(*) FROM events GROUP BY ROLLUP (page)",
            "sql:1:1: rows are identified by spark_grouping_id",
        ),
        (
            "SELECT page, count(DISTINCT ms) AS n FROM events GROUP BY page",
            "sql:1:1: this query cannot run as a stream: Distinct",
        ),
        (
            BY_SESSION.replace("page, ", "").replace("1, 2", "1"),
            "sql:1:72: this query cannot run as a stream: it groups by a session window only",
        ),
    ],
)
def test_queries_that_do_not_run_as_streams(spark, query, problem):
    found = _refusal(spark, _view(query, "kappa", maintain="touched"))
    assert found.startswith(f"views/pages.{problem}"), found


def _refusal(spark, definition) -> str:
    """Why the next cheaper way is not used."""
    problems, chosen = check_view(spark, definition)
    assert problems == []
    assert chosen is not None
    assert chosen.way is Way.TOUCHED
    return str(chosen.refused[-1].problem)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("\n SELECT page, ms FROM events", "2:2: this query cannot run as a Lambda view: it does"),
        ("SELECT page,\n percentile(ms, 0.5) FROM events GROUP BY 1", "2:2: this query cannot run as a Lambda view: p"),
        ("SELECT page, count(*) FROM events GROUP BY 1\nLIMIT 3 OFFSET 2", "2:"),
        (BY_SESSION, "1:"),
        ("SELECT page, row_number() OVER (PARTITION BY page ORDER BY ms) AS r FROM events", "1:"),
        ("SELECT page, count(DISTINCT ms) AS n FROM events GROUP BY page", "1:"),
    ],
)  # fmt: skip
def test_queries_that_cannot_be_combined(spark, query, problem):
    assert _refusal(spark, _view(query)).startswith(f"views/pages.sql:{problem}")


def test_a_python_query_that_cannot_be_combined(spark):
    code = "import math\n\ndef pages(events):\n    return events.select('page')\n"
    found = _refusal(spark, _view(code, function="pages"))
    assert found.startswith("views/q.py:3: this query cannot run as a Lambda view: it does not aggregate"), found


def test_an_unknown_topic(spark):
    assert _problems(spark, _view(BY_PAGE, topics=("click",))) == [
        "views/pages.toml:1: there is no topic 'click': did you mean clicks?"
    ]
    assert _problems(spark, _view(BY_PAGE, topics=(), pattern="x.*")) == [
        "views/pages.toml:1: no topic matches the pattern 'x.*'"
    ]


def test_an_unknown_key_and_watermark(spark):
    (found,) = _problems(spark, _view(BY_PAGE, "kappa", key=("pge",)))
    assert found == "views/pages.toml: key: the query has no column 'pge': did you mean page?"
    (found,) = _problems(spark, _view(BY_PAGE, "kappa", watermark=Watermark("att", "1 minute")))
    assert found == "views/pages.toml: there is no column att: did you mean at?"
    (found,) = _problems(spark, _view(BY_PAGE, key=("n",)))
    assert "the key of a Lambda view is always what its query groups by" in found


@pytest.mark.parametrize(
    ("query", "key", "problem"),
    [
        ("SELECT page, ms, count(*) AS n FROM events GROUP BY page, ms", ("page",), "rows that differ only in ms"),
        ("SELECT ms, count(*) AS n FROM events GROUP BY page, ms", ("ms",), "rows that differ only in events.page"),
        ("SELECT DISTINCT page, ms FROM events", ("page",), "rows that differ only in ms"),
        (BY_PAGE, ("page", "n"), "n changes when its group gets more events"),
        ("SELECT page, n + 1 AS m FROM (" + BY_PAGE + ")", ("page", "m"), "m changes when its group gets more events"),
        ("SELECT page, page AS p, upper(page) AS u, count(*) AS n FROM events GROUP BY page", ("u", "p"), None),
        ("SELECT window(at, '1 hour') AS w, count(*) AS n FROM events GROUP BY 1", ("w_start",), None),
        (BY_PAGE + " ORDER BY n LIMIT 3", ("page", "n"), None),
    ],
)
def test_a_key_tells_groups_apart(spark, query, key, problem):
    found = _problems(spark, _view(query, "kappa", key=key, lines=LINES | {("key",): 4}))
    if problem is None:
        assert found == []
    else:
        assert found[0].startswith(f"views/pages.toml:4: key: {problem}"), found


def test_a_type_that_no_table_has_is_told_with_its_column(spark):
    query = "SELECT page, max(make_ym_interval(1, 2)) AS gap FROM events GROUP BY page"
    for architecture in ("lambda", "kappa"):
        (found,) = _problems(spark, _view(query, architecture))
        assert found == (
            "views/pages.sql:1:45: column 'gap' has the type interval year to month, which no table can store: "
            "cast it in the query"
        )


def test_a_schema_that_is_none(spark):
    (found,) = _problems(spark, _view(BY_PAGE, decode=Decode("json", "page STRIN G")))
    assert found.startswith("views/pages.toml:7: decode.schema cannot be read: Syntax error at or near 'G'")
    (found,) = _problems(spark, _view(BY_PAGE, decode=Decode("json", "page STRIN")))
    assert found == ("views/pages.toml:7: decode.schema cannot be read: there is no type STRIN: did you mean STRING?")


def test_python_that_fails(spark):
    code = "def pages(events):\n    x = events.select('page')\n    return x.select('pge')\n"
    assert _problems(spark, _view(code, function="pages"))[0].startswith("views/q.py:3: there is no column pge")
    code = "def pages(events):\n    return 1 / 0\n"
    assert _problems(spark, _view(code, function="pages")) == ["views/q.py:2: ZeroDivisionError: division by zero"]
    code = "def pages(events):\n    return 7\n"
    assert _problems(spark, _view(code, function="pages")) == ["views/q.py: pages() returned int, not a DataFrame"]
