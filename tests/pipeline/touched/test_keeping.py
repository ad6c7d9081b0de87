"""[keep]: which queries allow it, and that rows and state go when the events' time has passed them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from touched_harness import TouchedHarness

from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import Keep, ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.serving.database import Database
from headrace.pipeline.touched.keeping import NotKept
from headrace.pipeline.touched.maintainer import Maintainer, tree_of
from headrace.pipeline.touched.view import TouchedVersion
from headrace.pipeline.whole.answer import kept_of
from headrace.pipeline.whole.view import WholeVersion

pytestmark = pytest.mark.timeout(900)
ORDERS = SourceDefinition("orders", "events", ("o",), "", Decode(schema="id BIGINT, item STRING, at TIMESTAMP, n INT"))
PAYMENTS = SourceDefinition("payments", "events", ("p",), "", Decode(schema="id BIGINT, paid_at TIMESTAMP"))
ITEMS = SourceDefinition("items", "table", ("i",), "", Decode(schema="item STRING, since TIMESTAMP"))
DAILY = "SELECT window(at, '1 day') AS day, count(DISTINCT item) AS n FROM orders GROUP BY 1"


def view(query: str, column: str, function: str = "") -> ViewDefinition:
    name = "v.py" if function else "v.sql"
    return ViewDefinition(
        "v", (), "", "kappa", FileText(name, query, function), Decode(), sources=(ORDERS, PAYMENTS, ITEMS),
        keep=Keep(column, "7 days"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "column", "shown", "clocks", "timed"),
    [
        ("SELECT id, at FROM orders", "at", "at", {"orders": "at"}, 1),
        (DAILY, "at", "day_end", {"orders": "at"}, 2),
        (DAILY, "day_start", "day_start", {"orders": "at"}, 2),
        (DAILY.replace("'1 day'", "'1 day', '1 hour'"), "at", "day_end", {"orders": "at"}, 2),
        ("SELECT to_date(at) AS d, median(n) AS m FROM orders GROUP BY 1", "d", "d", {"orders": "at"}, 2),
        (
            "SELECT o.id, o.at, i.since FROM orders o LEFT JOIN items i ON o.item = i.item",
            "at", "at", {"orders": "at"}, 2,
        ),
        (
            "SELECT o.id, o.at FROM orders o JOIN payments p ON o.id = p.id AND o.at = p.paid_at",
            "at", "at", {"orders": "at", "payments": "paid_at"}, 3,
        ),
        ("SELECT at FROM orders UNION ALL SELECT paid_at FROM payments", "at", "at",
         {"orders": "at", "payments": "paid_at"}, 1),
        ("SELECT id, at, row_number() OVER (PARTITION BY to_date(at), item ORDER BY n) AS r FROM orders",
         "at", "", {}, "PARTITION BY"),
        ("SELECT to_date(at) AS d, item, count(*) AS c FROM orders GROUP BY GROUPING SETS ((1, 2), (1))",
         "d", "d", {"orders": "at"}, 2),
        ("SELECT to_date(at) AS d, count(*) AS c FROM orders GROUP BY ROLLUP (1)", "d", "", {}, "have no time"),
        ("SELECT item, max(at) AS last FROM orders GROUP BY item", "last", "", {}, "not what the query groups by"),
        ("SELECT item, count(*) AS c FROM orders GROUP BY item", "at", "", {}, "no column of the answer"),
        ("SELECT item, n FROM orders", "n", "", {}, "not a time"),
        ("SELECT item, since FROM items", "since", "", {}, "a table whose rows change"),
        ("SELECT o.id, p.paid_at FROM orders o LEFT JOIN payments p USING (id)", "paid_at", "", {}, "outer join"),
        ("SELECT session_window(at, '1 hour') AS s, item, count(*) AS c FROM orders GROUP BY 1, 2",
         "s_end", "", {}, "not what the query groups by"),
        ("SELECT * FROM (SELECT id, at FROM orders ORDER BY n LIMIT 3) WHERE id > 1", "at", "", {}, "LIMIT below"),
    ],
)  # fmt: skip
def test_which_queries_allow_it(spark, query, column, shown, clocks, timed):
    if isinstance(timed, str):
        with pytest.raises(NotKept, match=timed):
            tree_of(spark, view(query, column))
        return
    tree = tree_of(spark, view(query, column))
    assert tree.kept is not None
    assert (tree.kept.column, tree.kept.clocks) == (shown, clocks)
    assert len([each for each in (tree.root, *tree.inputs) if each.time is not None]) == timed


def test_a_query_that_cannot_be_cut_needs_a_column_of_the_same_name(spark):
    body = "return orders.select('at', 'id').mapInPandas(lambda batches: batches, 'at TIMESTAMP, id INT')"
    code = f"def q(orders, payments, items):\n    {body}"
    kept = kept_of(spark, view(code, "at", "q"))
    assert (kept.column, kept.clocks) == ("at", {"orders": "at"})
    with pytest.raises(NotKept, match="need a time column of this name"):
        kept_of(spark, view(code, "paid_at", "q"))


# ------------------------------------------------------------------------------------------------------ with a broker

SALES = (
    "SELECT window(o.at, '1 day') AS day, c.country, {} AS n FROM orders o "
    "LEFT JOIN customers c ON o.customer = c.customer GROUP BY window(o.at, '1 day'), c.country"
)
START = datetime(2026, 11, 1)


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with TouchedHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()


def order(number: int, hours: float | None) -> dict[str, object]:
    at = None if hours is None else (START + timedelta(hours=hours)).isoformat()
    return {"id": number, "customer": number % 2, "item": f"i{number % 3}", "amount": 1, "at": at}


def sales(orders: list[dict], countries: dict[int, str], kind: type) -> list[tuple]:
    """The answer with the days that ended less than two days before the largest time.

    :param kind: how the items of a day are counted: as a set or as a list.
    """
    days: dict[tuple[datetime, str | None], list[str]] = {}
    timed = [(datetime.fromisoformat(each["at"]), each) for each in orders if each["at"]]
    for at, each in timed:
        day = START + timedelta(days=(at - START).days)
        days.setdefault((day, countries.get(each["customer"])), []).append(each["item"])
    oldest = max(at for at, _ in timed) - timedelta(days=2)
    rows = [(str(day), str(day + timedelta(days=1)), country, len(kind(items)))
            for (day, country), items in days.items() if day + timedelta(days=1) > oldest]  # fmt: skip
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("architecture", "version_class", "function", "groups"),
    [
        ("lambda", TouchedVersion, "count(DISTINCT o.item)", 5),
        ("kappa", TouchedVersion, "count(*)", 3),  # one row of sums per group
        ("kappa", WholeVersion, "count(DISTINCT o.item)", 0),
    ],
)
def test_rows_and_state_are_dropped(harness, architecture, version_class, function, groups):
    query, kind = SALES.format(function), set if "DISTINCT" in function else list
    sent, countries = [], {0: "DE"}
    harness.customer(0, {"name": "Ann", "country": "DE"})
    parts = [
        [*(order(at, 5 * at) for at in range(12)), order(90, None)],
        [order(20, 70), order(21, 1), order(22, 30)],
        [order(23, 100), order(24, 60), order(25, 2)],
    ]
    harness.apply(query, architecture, ("orders", "customers"), keep=Keep("at", "2 days"))
    for number, orders in enumerate(parts):
        harness.send("orders", *orders)
        sent += orders
        if number:
            countries[1] = f"C{number}"
            harness.customer(1, {"name": "Bob", "country": countries[1]})
        version_class(harness.context, harness.restarted() if number else harness.version).run_once()
        assert harness.seen()[0] == sales(sent, countries, kind)
    before = harness.seen()[0]
    assert {row[0][:10] for row in before} == {"2026-11-03", "2026-11-05"}
    if version_class is TouchedVersion:
        states = state_rows(harness)
        assert sorted(states) == sorted([2, 5, groups])  # customers; the orders of the join; those of the groups
        harness.apply(query, architecture, ("orders", "customers"), keep=Keep("at", "2 days"))
        version_class(harness.context, harness.version).run_once()
        assert (harness.seen()[0], state_rows(harness)) == (before, states)


def state_rows(harness) -> list[int]:
    """How many rows each state of the newest version has."""
    build = Maintainer(harness.context, harness.definition, harness.version, None, {}).current()
    with harness.context.database.read() as connection:
        return [sum(state.read_all(connection).counts) for state in build.states.values()]
