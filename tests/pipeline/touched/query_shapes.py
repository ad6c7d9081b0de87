"""Query shapes that a view must support, over four sources: one list for all tests.

The sources: ``orders`` and ``payments`` are events, ``customers`` and ``countries`` are tables. Rows are drawn from
small domains, so that keys repeat, joins match, and values tie.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns of the records, as the rows of every source have them.
RECORD = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY"
SCHEMAS = {
    "orders": "id BIGINT, customer_id BIGINT, item STRING, amount BIGINT, price DOUBLE, cost DECIMAL(12,2), "
    "at TIMESTAMP, tags ARRAY<STRING>, note STRUCT<text: STRING, stars: INT>, extra VARIANT",
    "payments": "order_id BIGINT, paid BIGINT, at TIMESTAMP",
    "customers": "customer_id BIGINT, name STRING, country STRING",
    "countries": "country STRING, vat DOUBLE",
}
TABLES = {"customers": "customer_id", "countries": "country"}
EVENTS = tuple(name for name in SCHEMAS if name not in TABLES)


class Shape(NamedTuple):
    """
    :ivar query: SQL, or a function of frames by the names of sources.
    """

    name: str
    query: str | Callable[..., DataFrame]


def _deduplicated(orders: DataFrame) -> DataFrame:
    return orders.dropDuplicates(["id"]).select("id", "item", "amount")


def _with_udf(orders: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    shout = F.udf(lambda text: None if text is None else text.upper() + "!", "string")
    return orders.groupBy(shout("item").alias("loud")).agg(F.countDistinct("customer_id").alias("n"))


def _with_pandas(orders: DataFrame) -> DataFrame:
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812

    def doubled(amounts):
        return (amounts.fillna(0) * 2).astype("int64")

    doubled.__annotations__ = {"amounts": pd.Series, "return": pd.Series}  # texts of annotations mean nothing to Spark
    return orders.select("id", F.pandas_udf(doubled, "bigint")("amount").alias("double"))


SHAPES = (
    Shape("events join table", "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c USING (customer_id)"),
    Shape(
        "events left join table",
        "SELECT o.id, o.customer_id, c.country FROM orders o LEFT JOIN customers c ON o.customer_id = c.customer_id",
    ),
    Shape(
        "revenue by country",
        "SELECT c.country, sum(o.amount) AS total, count(*) AS n FROM orders o "
        "JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.country",
    ),
    Shape(
        "two streams by key and time",
        "SELECT o.id, p.paid FROM orders o JOIN payments p ON o.id = p.order_id "
        "AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR",
    ),
    Shape(
        "two streams with the unmatched side",
        "SELECT o.id, p.order_id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.at >= o.at",
    ),
    Shape("right join", "SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.customer_id = c.customer_id"),
    Shape("full join", "SELECT o.id, p.paid FROM orders o FULL JOIN payments p ON o.id = p.order_id"),
    Shape(
        "three-way join",
        "SELECT k.vat, sum(o.amount) AS total FROM orders o JOIN customers c ON o.customer_id = c.customer_id "
        "LEFT JOIN countries k ON c.country = k.country GROUP BY k.vat",
    ),
    Shape(
        "several distinct counts",
        "SELECT item, count(DISTINCT customer_id) AS customers, count(DISTINCT amount) AS amounts, count(*) AS n "
        "FROM orders GROUP BY item",
    ),
    Shape("a distinct count of all", "SELECT count(DISTINCT customer_id) AS n FROM orders"),
    Shape(
        "percentiles",
        "SELECT item, percentile(amount, 0.5) AS half, percentile_approx(amount, 0.9) AS most, median(price) AS med "
        "FROM orders GROUP BY item",
    ),
    Shape("mode", "SELECT item, mode(amount, true) AS often FROM orders GROUP BY item"),
    Shape(
        "collected in order",
        "SELECT customer_id, transform(array_sort(collect_list(struct(at, id, amount))), x -> x.amount) AS amounts, "
        "sort_array(collect_set(item)) AS items FROM orders GROUP BY customer_id",
    ),
    Shape(
        "collected in the log's order",
        "SELECT item, array_agg(id) AS ids, first(id) AS one FROM orders GROUP BY item",
    ),
    Shape(
        "top 3 per group",
        "SELECT item, id, amount FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY amount DESC, id) AS r "
        "FROM orders) WHERE r <= 3",
    ),
    Shape(
        "running totals, lag and lead",
        "SELECT id, sum(amount) OVER (PARTITION BY customer_id ORDER BY at, id) AS running, "
        "lag(id) OVER (PARTITION BY customer_id ORDER BY at, id) AS before, "
        "lead(id) OVER (PARTITION BY customer_id ORDER BY at, id) AS after FROM orders",
    ),
    Shape(
        "a window over structs",
        "SELECT id, note, row_number() OVER (PARTITION BY item ORDER BY note, id, _offset) AS r FROM orders",
    ),
    Shape("rank over all", "SELECT id, rank() OVER (ORDER BY amount) AS r FROM orders"),
    Shape(
        "grouping sets",
        "SELECT item, customer_id, grouping_id() AS g, count(DISTINCT amount) AS n FROM orders "
        "GROUP BY GROUPING SETS ((item), (customer_id), ())",
    ),
    Shape("rollup", "SELECT item, customer_id, sum(amount) AS total FROM orders GROUP BY ROLLUP (item, customer_id)"),
    Shape("cube", "SELECT item, customer_id, max(amount) AS most FROM orders GROUP BY CUBE (item, customer_id)"),
    Shape(
        "tumbling windows",
        "SELECT window(at, '10 minutes') AS w, count(DISTINCT customer_id) AS n FROM orders GROUP BY 1",
    ),
    Shape(
        "sliding windows",
        "SELECT window(at, '20 minutes', '10 minutes').start AS s, item, sum(amount) AS t FROM orders GROUP BY 1, 2",
    ),
    Shape(
        "session windows",
        "SELECT session_window(at, '7 minutes').end AS e, item, count(*) AS n FROM orders "
        "GROUP BY session_window(at, '7 minutes'), item",
    ),
    Shape(
        "having over a distinct count",
        "SELECT item, count(DISTINCT customer_id) AS n FROM orders GROUP BY item "
        "HAVING count(DISTINCT customer_id) > 1",
    ),
    Shape("deduplicated by id", "SELECT DISTINCT id, item FROM orders"),
    Shape("dropDuplicates", _deduplicated),
    Shape(
        "union of topics",
        "SELECT id AS what, amount AS value FROM orders UNION ALL SELECT order_id, paid FROM payments",
    ),
    Shape(
        "an aggregate over a union",
        "SELECT what, sum(value) AS total FROM (SELECT id AS what, amount AS value FROM orders "
        "UNION ALL SELECT order_id, -paid FROM payments) GROUP BY what",
    ),
    Shape("semi join", "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)"),
    Shape(
        "orders without payment",
        "SELECT o.id, o.amount FROM orders o LEFT ANTI JOIN payments p ON p.order_id = o.id",
    ),
    Shape("in a list", "SELECT id, item FROM orders WHERE customer_id IN (SELECT customer_id FROM customers)"),
    Shape("not in a list", "SELECT id, item FROM orders WHERE customer_id NOT IN (SELECT customer_id FROM customers)"),
    Shape(
        "exists as a column",
        "SELECT id, EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id) AS is_paid FROM orders o",
    ),
    Shape("share of the total", "SELECT id, amount / (SELECT sum(amount) FROM orders) AS share FROM orders"),
    Shape(
        "share of the total, by group",
        "SELECT item, sum(amount) / (SELECT sum(amount) FROM orders) AS share, "
        "max(amount - (SELECT min(paid) FROM payments)) AS more FROM orders GROUP BY item",
    ),
    Shape(
        "a total beside a subquery",
        "SELECT count(*) + (SELECT count(*) FROM payments) AS n FROM orders",
    ),
    Shape(
        "a subquery in the condition of a join",
        "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer_id = c.customer_id "
        "AND o.amount > (SELECT avg(amount) FROM orders)",
    ),
    Shape(
        "above the average, by subquery",
        "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
    ),
    Shape(
        "correlated scalar subquery",
        "SELECT c.name, (SELECT count(*) FROM orders o WHERE o.customer_id = c.customer_id) AS n FROM customers c",
    ),
    Shape(
        "explode",
        "SELECT tag, count(DISTINCT id) AS n FROM orders LATERAL VIEW explode(tags) t AS tag GROUP BY tag",
    ),
    Shape("nested fields", "SELECT note.text AS text, max(note.stars) AS stars FROM orders GROUP BY note.text"),
    Shape(
        "variant paths",
        "SELECT variant_get(extra, '$.kind', 'string') AS kind, count(DISTINCT id) AS n FROM orders GROUP BY 1",
    ),
    Shape("a Python UDF", _with_udf),
    Shape("a pandas UDF", _with_pandas),
    Shape("a table counted by a column", "SELECT country, count(*) AS n FROM customers GROUP BY country"),
    Shape("no GROUP BY", "SELECT id, item, amount FROM orders WHERE amount IS NOT NULL"),
    Shape("a self join", "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.item = b.item AND a.id < b.id"),
    Shape("no equality", "SELECT o.id, k.country FROM orders o JOIN countries k ON o.price > k.vat * 20"),
    Shape(
        "aggregates of an aggregate",
        "SELECT n, count(*) AS customers FROM (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id) "
        "GROUP BY n",
    ),
    Shape(
        "doubles and decimals",
        "SELECT item, sum(price) AS p, avg(cost) AS c, avg(amount) AS a FROM orders GROUP BY item",
    ),
    Shape(
        "sums over a join that changes",
        "SELECT upper(c.country) AS land, o.item, count(*) AS n, count(o.amount) AS m, sum(o.amount) + 1 AS s, "
        "avg(o.amount) AS a, sum(o.cost) FILTER (WHERE o.amount > 3) AS f FROM orders o "
        "LEFT JOIN customers c ON o.customer_id = c.customer_id GROUP BY upper(c.country), o.item HAVING count(*) > 1",
    ),
    Shape("a total of sums", "SELECT count(*) AS n, sum(customer_id) AS s, avg(customer_id) AS a FROM customers"),
    Shape("a total", "SELECT count(*) AS n, sum(amount) AS total, max(price) AS p FROM orders"),
    Shape("intersect", "SELECT customer_id FROM orders INTERSECT SELECT customer_id FROM customers"),
    Shape("except", "SELECT customer_id FROM orders EXCEPT SELECT customer_id FROM customers"),
    Shape("except all", "SELECT customer_id FROM orders EXCEPT ALL SELECT customer_id FROM customers"),
    Shape(
        "the newest two of all, joined",
        "SELECT p.paid, o.id FROM payments p JOIN (SELECT id FROM orders ORDER BY at DESC, id LIMIT 2) o "
        "ON p.order_id = o.id",
    ),
    Shape("pipes", "FROM orders |> JOIN customers USING (customer_id) |> AGGREGATE count(DISTINCT item) AS n "
          "GROUP BY name |> WHERE n > 1"),
    Shape("values in the query", "SELECT o.id, v.label FROM orders o JOIN VALUES ('a', 'A'), ('b', 'B') v(item, label) "
          "ON o.item = v.item"),
    Shape("all columns", "SELECT id, tags, note, cost, at, _topic, _offset FROM orders"),
)  # fmt: skip

_START = datetime.datetime(2026, 11, 17, 8, tzinfo=datetime.UTC)


class Rows:
    """Draws rows of the sources."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._offset = 0

    def _record(self) -> tuple[object, ...]:
        self._offset += 1
        late = self._random.choice([0, 0, 0, 500])
        return ("t", self._offset % 2, self._offset, _START + datetime.timedelta(seconds=self._offset - late), b"k")

    def _maybe(self, value: object) -> object:
        return None if self._random.random() < 0.15 else value

    def _time(self) -> datetime.datetime:
        return _START + datetime.timedelta(minutes=self._random.randrange(90), seconds=self._random.randrange(2))

    def draw(self, source: str) -> tuple[object, ...]:
        """One row, with the columns of its record."""
        import decimal

        r = self._random
        if source == "orders":
            extra = r.choice(['{"kind": "x"}', '{"kind": "y", "n": [1]}', "3"])
            return (
                r.randrange(12), self._maybe(r.randrange(5)), self._maybe(r.choice("abc")),
                self._maybe(r.randrange(-3, 20)), self._maybe(r.choice([0.1, 0.2, 0.3, 2.5, float("nan"), -0.0, 7e9])),
                self._maybe(decimal.Decimal(r.randrange(999)) / 100), self._maybe(self._time()),
                self._maybe([self._maybe(r.choice("uvw")) for _ in range(r.randrange(3))]),
                self._maybe((self._maybe(r.choice(["good", "bad"])), self._maybe(r.randrange(5)))),
                self._maybe(extra), *self._record(),
            )  # fmt: skip
        if source == "payments":
            return (self._maybe(r.randrange(12)), r.randrange(20), self._maybe(self._time()), *self._record())
        if source == "customers":
            return (r.randrange(5), self._maybe(r.choice(["Ann", "Bob"])), self._maybe(r.choice(["DE", "FR"])),
                    *self._record())  # fmt: skip
        return (r.choice(["DE", "FR", "IT"]), self._maybe(r.choice([0.1, 0.2])), *self._record())
