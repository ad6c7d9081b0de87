"""Views of a shop: joins, distinct counts, ranks, changes of a database. And what is true of them.

==========  =======================================  ================================================================
orders      events                                   one in a hundred does not decode
customers   a table, by the key of its records       countries change, customers are removed
accounts    changes of a database                    with updates, deletes and tombstones
==========  =======================================  ================================================================

``Orders`` writes in the background. ``Shop`` writes the files of the project, and checks answers without Spark: it
reads the topics at the end, and computes what each answer must be at the offsets that the answer names.
"""

import json
import random
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from clicks_truth import Watcher
from views_process import ViewsProject

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.admin.types import NewTopic
from headrace.client.types import ConsumedRecord
from headrace.pipeline.serving.queries.query import Answer

TOPICS = {"orders": 3, "customers": 2, "accounts": 2}
_SOURCES = {
    "orders": ("events", "id BIGINT, customer BIGINT, item STRING, amount BIGINT"),
    "customers": ("table", "customer BIGINT, country STRING"),
    "accounts": ("changes", "account BIGINT, status STRING"),
}
_SOURCE = """\
topics = ["{name}"]
kind = "{kind}"

[decode]
schema = "{schema}"
"""
_QUERIES = {
    "revenue": "SELECT c.country, count(*) AS orders, sum(o.amount) AS total, count(DISTINCT o.customer) AS customers "
    "FROM orders o JOIN customers c ON o.customer = c.customer GROUP BY c.country",
    "best": "SELECT item, nth, id, amount FROM (SELECT item, id, amount, row_number() OVER (PARTITION BY item "
    "ORDER BY amount DESC, id) AS nth FROM orders) WHERE nth <= 3",
    "statuses": "SELECT status, count(*) AS n FROM accounts GROUP BY status",
}
_VIEW = """\
architecture = "{architecture}"
query = "{query}.sql"
"""
_BATCHES = """
[lambda]
batch_every = "20 seconds"
"""
#: A start takes time for each view, so the short form has each query once.
_SHORT = ("revenue_kappa", "best_lambda", "statuses_kappa")
_ALL = tuple(f"{name}_{architecture}" for name in _QUERIES for architecture in ("lambda", "kappa"))
_CUSTOMERS, _COUNTRIES, _ITEMS, _STATUSES = 100, 20, 200, ("new", "active", "blocked")
_ORDERS_PER_TICK, _TICK_S = 5, 0.1
_BAD = b"this is no JSON"
Offsets = Mapping[str, Mapping[int, int]]
Rows = set[tuple[object, ...]]


class Orders:
    """Writes orders, and changes of customers and accounts, now or all the time."""

    def __init__(self, address: str, pick: random.Random) -> None:
        self._pick = pick
        self._producer = Producer(bootstrap_servers=address)
        self._next_id = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders")
        self._error: Exception | None = None

    def write(self, count: int) -> None:
        pick = self._pick
        for _ in range(count):
            self._next_id += 1
            order = {"id": self._next_id, "customer": pick.randrange(_CUSTOMERS), "item": f"i{pick.randrange(_ITEMS)}",
                     "amount": pick.randrange(1000)}  # fmt: skip
            value = _BAD if pick.randrange(100) == 0 else json.dumps(order).encode()
            self._producer.send("orders", value, partition=pick.randrange(TOPICS["orders"]))
            if pick.randrange(10) == 0:
                self._change_a_customer()
                self._change_an_account()
        self._producer.flush()

    def _change_a_customer(self) -> None:
        number, is_removed = self._pick.randrange(_CUSTOMERS), self._pick.randrange(8) == 0
        row = {"customer": number, "country": f"c{self._pick.randrange(_COUNTRIES)}"}
        value = None if is_removed else json.dumps(row).encode()
        self._producer.send("customers", value, key=str(number).encode())

    def _change_an_account(self) -> None:
        number = self._pick.randrange(_CUSTOMERS)
        key = str(number).encode()
        if self._pick.randrange(8) == 0:
            self._producer.send("accounts", b'{"op":"d","before":{"account":1},"after":null}', key=key)
            self._producer.send("accounts", None, key=key)
            return
        row = {"account": number, "status": self._pick.choice(_STATUSES)}
        value = json.dumps({"op": self._pick.choice("cu"), "before": None, "after": row}).encode()
        self._producer.send("accounts", value, key=key)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.wait(_TICK_S):
                self.write(_ORDERS_PER_TICK)
        except Exception as error:  # noqa: BLE001  raised again where the test sees it
            self._error = error

    def stop(self) -> None:
        """All that was written is in the log."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.flush()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.close()


@dataclass(frozen=True)
class ShopSample:
    """An answer of a view."""

    view: str
    version: int
    offsets: Offsets
    rows: list[tuple[object, ...]]

    @property
    def place(self) -> object:
        return self.version, self.offsets

    @classmethod
    def of(cls, view: str, answer: Answer) -> "ShopSample":
        (as_of,) = answer.as_of
        return cls(view, as_of.version, as_of.offsets, answer.rows)


class Shop:
    """:param is_short: whether to have each query in one architecture only."""

    def __init__(self, address: str, project: ViewsProject, *, is_short: bool) -> None:
        self._address, self._project = address, project
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(name, partitions) for name, partitions in TOPICS.items()]).all()
        sources, views = project.folder / "sources", project.folder / "views"
        sources.mkdir()
        for name, (kind, schema) in _SOURCES.items():
            (sources / f"{name}.toml").write_text(_SOURCE.format(name=name, kind=kind, schema=schema))
        for name, query in _QUERIES.items():
            (views / f"{name}.sql").write_text(query)
        self.views = _SHORT if is_short else _ALL
        for view in self.views:
            query, _, architecture = view.partition("_")
            batches = _BATCHES if architecture == "lambda" else ""
            (views / f"{view}.toml").write_text(_VIEW.format(architecture=architecture, query=query) + batches)
        project.views = (*project.views, *self.views)

    def check(self, watcher: Watcher[ShopSample]) -> None:
        """Nothing is written any more: all views come to the end of the log, and were right all the way."""
        truth = ShopTruth(self._address)
        for view in self.views:
            ends = sum(sum(truth.ends[topic].values()) for topic in TOPICS_OF[view.partition("_")[0]])
            self._project.waits_until(
                lambda view=view, ends=ends: self._project.counted(view) == ends, f"{view} is not at the end"
            )
            truth.check(ShopSample.of(view, self._project.ask(view)))
        for sample in watcher.samples:
            truth.check(sample)
        assert not watcher.errors, watcher.errors[:3]


TOPICS_OF = {"revenue": ("orders", "customers"), "best": ("orders",), "statuses": ("accounts",)}


class ShopTruth:
    """The topics, read from their start to their end."""

    def __init__(self, address: str) -> None:
        places = [TopicPartition(topic, at) for topic, count in TOPICS.items() for at in range(count)]
        self._records: dict[str, list[ConsumedRecord]] = defaultdict(list)
        with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            ends = consumer.end_offsets(*places)
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in consumer.poll(500):
                    self._records[record.topic].append(record)
        self.ends: dict[str, dict[int, int]] = {topic: {} for topic in TOPICS}
        for place, end in ends.items():
            self.ends[place.topic][place.partition] = end

    def check(self, sample: ShopSample) -> None:
        right = getattr(self, f"_{sample.view.partition('_')[0]}")(sample.offsets)
        told = set(sample.rows)
        assert len(told) == len(sample.rows), f"{sample.view}: a row is there twice"
        assert told == right, (
            f"{sample.view} v{sample.version} as of {sample.offsets}: missing {sorted(right - told, key=str)[:5]}, "
            f"too many {sorted(told - right, key=str)[:5]}"
        )

    def _within(self, topic: str, offsets: Offsets) -> list[ConsumedRecord]:
        ends = offsets.get(topic, {})
        return [record for record in self._records[topic] if record.offset < ends.get(record.partition, 0)]

    def _orders(self, offsets: Offsets) -> list[dict[str, object]]:
        return [json.loads(each.value) for each in self._within("orders", offsets) if each.value != _BAD]

    def _newest(self, topic: str, offsets: Offsets) -> dict[bytes, bytes | None]:
        """Of each key; a key is always in the same partition."""
        return {record.key: record.value for record in self._within(topic, offsets)}

    def _revenue(self, offsets: Offsets) -> Rows:
        country_of = {
            int(key): json.loads(value)["country"]
            for key, value in self._newest("customers", offsets).items()
            if value is not None
        }
        groups: dict[str, list[dict[str, object]]] = defaultdict(list)
        for order in self._orders(offsets):
            if order["customer"] in country_of:
                groups[country_of[order["customer"]]].append(order)
        return {
            (country, len(orders), sum(each["amount"] for each in orders), len({each["customer"] for each in orders}))
            for country, orders in groups.items()
        }

    def _best(self, offsets: Offsets) -> Rows:
        groups: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for order in self._orders(offsets):
            groups[order["item"]].append((-order["amount"], order["id"]))
        return {
            (item, nth, number, -negative)
            for item, orders in groups.items()
            for nth, (negative, number) in enumerate(sorted(orders)[:3], start=1)
        }

    def _statuses(self, offsets: Offsets) -> Rows:
        counts: dict[str, int] = defaultdict(int)
        for value in self._newest("accounts", offsets).values():
            if value is not None and (after := json.loads(value)["after"]) is not None:
                counts[after["status"]] += 1
        return set(counts.items())
