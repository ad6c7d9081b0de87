"""A grammar of queries over three sources, and records for them, for Hypothesis.

=============  ========  =========================================================================================
orders         events    id, customer, amount, at, tags (an array), note (text)
payments       events    order_id, paid, at
customers      table     customer (its key), country, tier
=============  ========  =========================================================================================

The shapes are those that views have to support: joins of all kinds, aggregates with and without DISTINCT, grouping
sets, time windows, session windows, window functions, deduplication, unions and other set operations, subqueries,
explode. Every query is deterministic: where the order of rows matters (LIMIT, ROW_NUMBER, LAG), the order is total.

Values are few, so that keys meet, repeat and are missing. Any field may be NULL. Times are out of order. Some records
do not decode, and some occur twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

SCHEMAS = {
    "orders": "id BIGINT, customer BIGINT, amount BIGINT, at TIMESTAMP, tags ARRAY<STRING>, note STRING",
    "payments": "order_id BIGINT, paid BIGINT, at TIMESTAMP",
    "customers": "customer BIGINT, country STRING, tier INT",
}
KINDS = {"orders": "events", "payments": "events", "customers": "table"}
#: A total order of the events of a source.
_POSITION = "{0}._timestamp, {0}._topic, {0}._partition, {0}._offset"


@dataclass(frozen=True)
class Query:
    """
    :param tables: the sources that it reads.
    :param shape: the names of the shapes in it, for messages.
    """

    sql: str
    tables: frozenset[str]
    shape: str


@dataclass(frozen=True)
class _Rows:
    """What stands after FROM, and the columns that it offers."""

    text: str
    tables: frozenset[str]
    keys: tuple[str, ...]
    numbers: tuple[str, ...]
    at: str
    position: str
    shape: str
    conditions: tuple[str, ...] = field(default=())


def _orders(shape: str = "one source", **more: Any) -> _Rows:
    values: dict[str, Any] = {
        "text": "orders o", "tables": frozenset({"orders"}), "keys": ("o.customer", "o.note"),
        "numbers": ("o.amount", "o.id"), "at": "o.at", "position": _POSITION.format("o"),
    }  # fmt: skip
    return _Rows(shape=shape, **{**values, **more})


_CUSTOMERS = {"keys": ("c.country", "c.tier", "o.note"), "numbers": ("o.amount", "c.tier")}
_WITH_PAYMENTS = {"numbers": ("o.amount", "p.paid")}
_BOTH = f"{_POSITION.format('o')}, {_POSITION.format('p')}"
_HOUR = "p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"

FROM = (
    _orders(),
    _orders("events with a table", text="orders o JOIN customers c ON o.customer = c.customer",
            tables=frozenset({"orders", "customers"}), **_CUSTOMERS),
    _orders("events with a table, left", text="orders o LEFT JOIN customers c ON o.customer = c.customer",
            tables=frozenset({"orders", "customers"}), **_CUSTOMERS),
    _orders("two streams by key and time", text=f"orders o JOIN payments p ON o.id = p.order_id AND {_HOUR}",
            tables=frozenset({"orders", "payments"}), position=_BOTH, **_WITH_PAYMENTS),
    _orders("two streams, left", text=f"orders o LEFT JOIN payments p ON o.id = p.order_id AND {_HOUR}",
            tables=frozenset({"orders", "payments"}), position=_BOTH, **_WITH_PAYMENTS),
    _orders("two streams, full", text="orders o FULL JOIN payments p ON o.id = p.order_id",
            tables=frozenset({"orders", "payments"}), position=_BOTH, **_WITH_PAYMENTS),
    _orders("three ways", text="orders o JOIN customers c ON o.customer = c.customer "
            "LEFT JOIN customers d ON c.tier = d.customer", tables=frozenset({"orders", "customers"}),
            keys=("c.country", "d.country"), numbers=("o.amount", "d.tier"),
            position=f"{_POSITION.format('o')}, d.customer"),
    _orders("self join", text="orders o JOIN orders p ON o.customer = p.customer AND o.id < p.id",
            numbers=("o.amount", "p.amount"), position=_BOTH),
    _orders("semi join", conditions=("EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)",),
            tables=frozenset({"orders", "payments"})),
    _orders("anti join", conditions=("NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)",),
            tables=frozenset({"orders", "payments"})),
    _orders("in", conditions=("o.customer IN (SELECT c.customer FROM customers c WHERE c.tier > 1)",),
            tables=frozenset({"orders", "customers"})),
    _orders("not in, with NULL", conditions=("o.id NOT IN (SELECT p.order_id FROM payments p)",),
            tables=frozenset({"orders", "payments"})),
    _orders("right join", text="orders o RIGHT JOIN customers c ON o.customer = c.customer",
            tables=frozenset({"orders", "customers"}), position=f"{_POSITION.format('o')}, c.customer", **_CUSTOMERS),
    _orders("no equality", text="orders o JOIN customers c ON o.amount > c.tier",
            tables=frozenset({"orders", "customers"}), position=f"{_POSITION.format('o')}, c.customer", **_CUSTOMERS),
    _orders("above the average", conditions=("o.amount >= (SELECT avg(amount) FROM orders)",)),
    _orders("subquery in a join", text="orders o LEFT JOIN customers c ON o.customer = c.customer AND o.amount > "
            "(SELECT avg(amount) FROM orders)", tables=frozenset({"orders", "customers"}), **_CUSTOMERS),
    _orders("correlated subquery", text="(SELECT o.*, (SELECT max(p.paid) FROM payments p WHERE p.order_id = o.id) "
            "AS most FROM orders o) o", numbers=("o.most", "o.amount"), tables=frozenset({"orders", "payments"})),
    _orders("the newest five", text="(SELECT * FROM orders ORDER BY at DESC, _timestamp, _topic, _partition, _offset "
            "LIMIT 5) o"),
    _orders("a table", text="customers c", tables=frozenset({"customers"}), keys=("c.country", "c.tier"),
            numbers=("c.tier", "c.customer"), at="c._timestamp", position="c.customer"),
    _orders("explode", text="orders o LATERAL VIEW explode(o.tags) t AS tag", keys=("t.tag", "o.customer"),
            position=f"{_POSITION.format('o')}, t.tag"),
    _orders("deduplicated", text="(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY "
            "_timestamp, _topic, _partition, _offset) AS nth FROM orders) WHERE nth = 1) o"),
)  # fmt: skip

_AGGREGATES = (
    "count(*)", "count({x})", "sum({x})", "min({x})", "max({x})", "count(DISTINCT {x})", "count(DISTINCT {x}, {y})",
    "sum(DISTINCT {x})", "percentile({x}, 0.5)", "median({x})", "max_by({x}, struct({position}))",
    "sort_array(collect_list({x}))", "sort_array(collect_set({x}))", "bool_or({x} > 2)", "count_if({x} > 2)",
    "count(*) FILTER (WHERE {x} > 1)", "avg({x})", "mode({x}, true)", "percentile_approx({x}, 0.5)",
    "count(DISTINCT {y})", "min({y})", "first({x}) FILTER (WHERE {x} = 2)", "sum({x}) + count(DISTINCT {y})",
    "approx_count_distinct({x})",
)  # fmt: skip
_CONDITIONS = ("{x} > 1", "{x} IS NOT NULL", "{k} IS NOT NULL", "{x} <> 3 OR {k} IS NULL")
_WINDOW_FUNCTIONS = (
    "row_number() OVER (PARTITION BY {k} ORDER BY {at}, {position})",
    "lag({x}) OVER (PARTITION BY {k} ORDER BY {at}, {position})",
    "lead({x}) OVER (PARTITION BY {k} ORDER BY {at}, {position})",
    "sum({x}) OVER (PARTITION BY {k} ORDER BY {at}, {position} ROWS UNBOUNDED PRECEDING)",
    "count(*) OVER (PARTITION BY {k})",
    "rank() OVER (ORDER BY {x})",
    "max({x}) OVER (PARTITION BY {k} ORDER BY {at} RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)",
)
#: What rows are sorted by: also values that SQLite cannot store, and values that a database sorts in another way.
_SORTED_BY = ("{x}", "{k}", "IF({x} = 2, double('NaN'), double({x}))", "array({x}, 10 - {x})", "struct({k}, {x})")
_DIRECTIONS = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
_TIMES = ("window({at}, '1 hour')", "window({at}, '1 hour', '30 minutes')")


@st.composite
def queries(draw: st.DrawFn) -> Query:
    rows = draw(st.sampled_from(FROM))
    build = draw(
        st.sampled_from(
            (
                _grouped,
                _grouped,
                _sets,
                _timed,
                _sessions,
                _windowed,
                _top,
                _plain,
                _share,
                _union,
                _nested,
                _set,
                _sorted_rows,
                _sorted_groups,
            )
        )
    )
    return draw(build(rows))


def _where(draw: st.DrawFn, rows: _Rows) -> str:
    chosen = draw(st.lists(st.sampled_from(_CONDITIONS), max_size=1))
    names = {"x": draw(st.sampled_from(rows.numbers)), "k": draw(st.sampled_from(rows.keys))}
    conditions = [*rows.conditions, *(f"({each.format(**names)})" for each in chosen)]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _functions(draw: st.DrawFn, rows: _Rows) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(_AGGREGATES), min_size=1, max_size=3, unique=True))
    return [
        each.format(x=draw(st.sampled_from(rows.numbers)), y=draw(st.sampled_from(rows.keys)), position=rows.position)
        for each in chosen
    ]


def _named(parts: list[str], letter: str) -> list[str]:
    return [f"{part} AS {letter}{number}" for number, part in enumerate(parts)]


def _query(rows: _Rows, how: str, sql: str) -> Query:
    return Query(sql, rows.tables, f"{rows.shape}: {how}")


@st.composite
def _grouped(draw: st.DrawFn, rows: _Rows) -> Query:
    keys = draw(st.lists(st.sampled_from(rows.keys), max_size=2, unique=True))
    columns = [*_named(keys, "k"), *_named(_functions(draw, rows), "f")]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    having = draw(st.sampled_from(("", " HAVING count(*) > 1"))) if keys else ""
    sql = f"SELECT {', '.join(columns)} FROM {rows.text}{_where(draw, rows)}{by}{having}"
    if keys and draw(st.booleans()):
        order = ", ".join(f"k{number}" for number in range(len(keys)))
        sql += f" ORDER BY {order}{draw(st.sampled_from((' DESC', ' NULLS LAST', '')))} LIMIT 3"
        sql += draw(st.sampled_from(("", " OFFSET 1")))
    return _query(rows, "groups", sql)


@st.composite
def _sets(draw: st.DrawFn, rows: _Rows) -> Query:
    one, other = rows.keys[:2]
    how = draw(st.sampled_from(("ROLLUP ({0}, {1})", "CUBE ({0}, {1})", "GROUPING SETS (({0}), ({1}), ())")))
    columns = [*_named([one, other], "k"), "grouping_id() AS g", *_named(_functions(draw, rows), "f")]
    text = f"SELECT {', '.join(columns)} FROM {rows.text}{_where(draw, rows)} GROUP BY {how.format(one, other)}"
    return _query(rows, "grouping sets", text)


@st.composite
def _timed(draw: st.DrawFn, rows: _Rows) -> Query:
    time, key = draw(st.sampled_from(_TIMES)).format(at=rows.at), draw(st.sampled_from(rows.keys))
    columns = [f"{time} AS w", f"{key} AS k0", *_named(_functions(draw, rows), "f")]
    text = f"SELECT {', '.join(columns)} FROM {rows.text}{_where(draw, rows)} GROUP BY {time}, {key}"
    return _query(rows, "time windows", text)


@st.composite
def _sessions(draw: st.DrawFn, rows: _Rows) -> Query:
    time, key = f"session_window({rows.at}, '10 minutes')", draw(st.sampled_from(rows.keys))
    columns = [f"{time} AS w", f"{key} AS k0", *_named(_functions(draw, rows), "f")]
    text = f"SELECT {', '.join(columns)} FROM {rows.text}{_where(draw, rows)} GROUP BY {time}, {key}"
    return _query(rows, "session windows", text)


@st.composite
def _windowed(draw: st.DrawFn, rows: _Rows) -> Query:
    chosen = draw(st.lists(st.sampled_from(_WINDOW_FUNCTIONS), min_size=1, max_size=2, unique=True))
    values = {"at": rows.at, "position": rows.position}
    functions = [
        each.format(k=draw(st.sampled_from(rows.keys)), x=draw(st.sampled_from(rows.numbers)), **values)
        for each in chosen
    ]
    columns = [f"{rows.keys[0]} AS k0", f"{rows.numbers[0]} AS x0", *_named(functions, "f")]
    return _query(rows, "window functions", f"SELECT {', '.join(columns)} FROM {rows.text}{_where(draw, rows)}")


@st.composite
def _top(draw: st.DrawFn, rows: _Rows) -> Query:
    key, number = draw(st.sampled_from(rows.keys)), draw(st.sampled_from(rows.numbers))
    ranked = (
        f"SELECT {key} AS k0, {number} AS x0, row_number() OVER (PARTITION BY {key} ORDER BY {number} DESC, "
        f"{rows.position}) AS nth FROM {rows.text}{_where(draw, rows)}"
    )
    return _query(rows, "top 3 per group", f"SELECT k0, x0, nth FROM ({ranked}) WHERE nth <= 3")


@st.composite
def _plain(draw: st.DrawFn, rows: _Rows) -> Query:
    columns = [f"{rows.keys[0]} AS k0", f"{rows.numbers[0]} AS x0", f"coalesce({rows.numbers[1]}, -1) + 1 AS x1"]
    distinct = draw(st.sampled_from(("", "DISTINCT ")))
    return _query(rows, "rows", f"SELECT {distinct}{', '.join(columns)} FROM {rows.text}{_where(draw, rows)}")


def _sort_term(draw: st.DrawFn, rows: _Rows) -> str:
    names = {"x": draw(st.sampled_from(rows.numbers)), "k": draw(st.sampled_from(rows.keys))}
    return draw(st.sampled_from(_SORTED_BY)).format(**names)


@st.composite
def _sorted_rows(draw: st.DrawFn, rows: _Rows) -> Query:
    order = f"{_sort_term(draw, rows)}{draw(st.sampled_from(_DIRECTIONS))}, {rows.position}"
    columns = f"{rows.keys[0]} AS k0, {rows.numbers[0]} AS x0"
    limit = draw(st.sampled_from((" LIMIT 3", " LIMIT 2 OFFSET 1", "")))
    return _query(rows, "sorted", f"SELECT {columns} FROM {rows.text}{_where(draw, rows)} ORDER BY {order}{limit}")


@st.composite
def _sorted_groups(draw: st.DrawFn, rows: _Rows) -> Query:
    key, function = draw(st.sampled_from(rows.keys)), f"max({_sort_term(draw, rows)})"
    order = f"f0{draw(st.sampled_from(_DIRECTIONS))}, k0"
    text = f"SELECT {key} AS k0, {function} AS f0, count(*) AS n FROM {rows.text}{_where(draw, rows)} GROUP BY {key}"
    return _query(rows, "sorted groups", f"{text} ORDER BY {order} LIMIT 2")


@st.composite
def _share(draw: st.DrawFn, rows: _Rows) -> Query:
    key, number = draw(st.sampled_from(rows.keys)), draw(st.sampled_from(rows.numbers))
    where = _where(draw, rows)
    sql = (
        f"SELECT {key} AS k0, sum({number}) AS s, sum({number}) / (SELECT sum(amount) + 1 FROM orders) AS share, "
        f"max({number} + (SELECT min(amount) FROM orders)) AS m "
        f"FROM {rows.text}{where} GROUP BY {key}"
    )
    return Query(sql, rows.tables | {"orders"}, f"{rows.shape}: share of the total")


@st.composite
def _nested(draw: st.DrawFn, rows: _Rows) -> Query:
    key, (function, *_) = draw(st.sampled_from(rows.keys)), _functions(draw, rows)
    inner = f"SELECT {key} AS k, {function} AS f FROM {rows.text}{_where(draw, rows)} GROUP BY {key}"
    return _query(rows, "aggregate of an aggregate", f"SELECT f, count(*) AS n, max(k) AS k FROM ({inner}) GROUP BY f")


@st.composite
def _set(draw: st.DrawFn, rows: _Rows) -> Query:
    how = draw(st.sampled_from(("INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "UNION")))
    key = draw(st.sampled_from(rows.keys))
    other = "SELECT CAST(customer AS STRING) FROM customers"
    sql = f"SELECT CAST({key} AS STRING) AS k FROM {rows.text}{_where(draw, rows)} {how} {other}"
    return Query(sql, rows.tables | {"customers"}, f"{rows.shape}: {how.lower()}")


@st.composite
def _union(draw: st.DrawFn, rows: _Rows) -> Query:
    key, number = draw(st.sampled_from(rows.keys)), draw(st.sampled_from(rows.numbers))
    both = (
        f"SELECT CAST({key} AS STRING) AS k, {number} AS x FROM {rows.text}{_where(draw, rows)} "
        "UNION ALL SELECT CAST(order_id AS STRING), paid FROM payments"
    )
    outer = draw(st.sampled_from(("SELECT k, x FROM ({0})", "SELECT k, count(DISTINCT x) AS n FROM ({0}) GROUP BY k")))
    return Query(outer.format(both), rows.tables | {"payments"}, f"{rows.shape}: union")


# ------------------------------------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class Record:
    """A record of a source: an event, or a new value of a key.

    :param key: for a table; None for events. A table's record without a key is bad, or removes all rows (``changes``).
    :param value: None removes the row of the key. A text does not decode.
    :param timestamp_ms: of the record, out of order.
    """

    source: str
    partition: int
    key: int | None
    value: dict[str, Any] | str | None
    timestamp_ms: int


_few = st.one_of(st.none(), st.integers(1, 4))
_texts = st.one_of(st.none(), st.sampled_from(("a", "b", "", "ä")))
_BEGIN_MS = 1_767_225_600_000
_minutes = st.integers(0, 180)
_at = st.one_of(st.none(), _minutes.map(lambda minute: f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z"))
_VALUES = {
    "orders": st.fixed_dictionaries(
        {"id": _few, "customer": _few, "amount": _few, "at": _at, "note": _texts,
         "tags": st.one_of(st.none(), st.lists(_texts, max_size=3))}
    ),
    "payments": st.fixed_dictionaries({"order_id": _few, "paid": _few, "at": _at}),
    "customers": st.fixed_dictionaries({"country": _texts, "tier": _few}),
}  # fmt: skip


@st.composite
def records(draw: st.DrawFn, source: str) -> Record:
    at = _BEGIN_MS + 60_000 * draw(_minutes)
    partition, how = draw(st.integers(0, 1)), draw(st.integers(0, 19))
    if KINDS[source] != "table":
        return Record(source, partition, None, "{" if how == 0 else draw(_VALUES[source]), at)
    if how == 0:
        return Record(source, partition, None, None, at)
    value = "{" if how == 1 else None if how < 6 else draw(_VALUES[source])
    return Record(source, partition, draw(st.integers(1, 4)), value, at)


@st.composite
def logs(draw: st.DrawFn, tables: frozenset[str], *, min_size: int = 0, max_size: int = 30) -> list[Record]:
    """Records of these sources in the order in which they are written. Some records are there twice."""
    one = st.one_of(*(records(source) for source in sorted(tables)))
    made = draw(st.lists(one, min_size=min_size, max_size=max_size))
    again = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
    return [*made, *again]


#: What happens after some more records: a micro-batch, a batch from the start, a batch while a micro-batch is
#: committed, a restart of the version, a crash before or after a commit.
STEPS = (
    "micro-batch",
    "micro-batch",
    "micro-batch",
    "batch",
    "batch meanwhile",
    "restart",
    "crash before",
    "crash after",
)
cuts = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 10)), min_size=1, max_size=6)
