"""The watch over a real log: a field is removed, added, or gets another type, in a Lambda and in a Kappa view."""

from __future__ import annotations

import io
import json
import logging
from itertools import count

import fastavro
import pytest

from headrace import Admin, Producer
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.lambda_.view import LambdaView
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog, DesiredState
from headrace.pipeline.serving.catalog_tables.schema_changes import SchemaChanges
from headrace.pipeline.serving.database import Database
from headrace.pipeline.source_watch import watch as watch_module
from headrace.pipeline.source_watch.watch import SourceWatch
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock
from registry_harness import fake_registry

SCHEMA = "id BIGINT NOT NULL, item STRING, price DOUBLE"
QUERY = "SELECT item, count(*) AS n, sum(price) AS price FROM events GROUP BY item"
JSON = Decode("json", SCHEMA)
_numbers = count()


class Shop:
    """A topic of orders with two partitions, and versions of views over it."""

    def __init__(self, bootstrap: str, url: str, folder, spark=None) -> None:
        self.topic = f"watched{next(_numbers)}"
        self.database = Database(url)
        project = Project(folder, bootstrap, url, str(folder / "archive"), "local[2]")
        self.context = RunContext(
            spark, project, self.database, Catalog(self.database), SystemClock(), str(folder / "checkpoints"),
            PipelineMetrics(),
        )  # fmt: skip
        self.watch = SourceWatch(self.context)
        self._producer = Producer(bootstrap_servers=bootstrap)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(self.topic, num_partitions=2)

    def close(self) -> None:
        self.watch.close()
        self._producer.close()
        self.database.close()

    def apply(self, view: str, architecture: str = "kappa", decode: Decode = JSON) -> None:
        made = ViewDefinition(view, (self.topic,), "", architecture, FileText("view.sql", QUERY), decode)
        catalog = self.context.catalog
        catalog.create_view(view, architecture, made.definition_hash)
        catalog.add_version(view, json.loads(json.dumps(made.as_dict())), made.definition_hash)

    def send(self, *values: object) -> None:
        sent = []
        for number, value in enumerate(values):
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            sent.append(self._producer.send(self.topic, raw, partition=number % 2))
        self._producer.flush()
        for each in sent:
            each.result()

    def orders(self, numbers: range, **fields: object) -> None:
        self.send(*({"id": number, "item": "tea", **fields} for number in numbers))

    def changes(self, view: str) -> list[tuple[str, str, int]]:
        found = SchemaChanges(self.database).read()[view, 1].changes
        return [(each.kind, each.column, each.records) for each in found]


@pytest.fixture
def shop(kafka, sqlite_url, tmp_path):
    made = Shop(kafka.bootstrap_servers, sqlite_url, tmp_path)
    yield made
    made.close()


def test_a_field_is_removed_and_comes_back(shop, caplog):
    caplog.set_level(logging.INFO, "headrace.views")
    shop.apply("sales", "lambda")
    shop.apply("items", "kappa")
    shop.orders(range(200), price=1.5)
    shop.watch.look()
    assert shop.changes("sales") == shop.changes("items") == []
    shop.orders(range(200, 300))
    for _ in range(2):
        shop.watch.look()
    assert shop.changes("sales") == shop.changes("items") == [("missing", "price", 100)]
    assert shop.context.metrics.of("sales", 1).missing_columns == 1
    (line,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert line.message.startswith(
        f"items v1, sales v1: source events: the column price has no value in the last 100 records of topic "
        f"{shop.topic}, since offset 100 of partition "
    )
    shop.orders(range(300, 310), price=2.0)
    shop.watch.look()
    assert shop.changes("items") == []
    assert shop.context.metrics.of("sales", 1).missing_columns == 0
    assert (
        caplog.messages[-1] == f"items v1, sales v1: source events: the column price of topic {shop.topic} has "
        "values again"
    )


def test_a_new_field_is_named_once(shop, caplog):
    caplog.set_level(logging.INFO, "headrace.views")
    shop.apply("sales")
    shop.orders(range(10), price=1.5, discount=0.1)
    shop.watch.look()
    shop.orders(range(10, 20), price=1.5, discount=0.1)
    shop.watch.look()
    assert shop.changes("sales") == [("new", "discount", 0)]
    assert len([each for each in caplog.messages if "discount" in each]) == 1


def test_the_counts_survive_a_restart(shop):
    shop.apply("sales")
    shop.orders(range(200), price=1.5)
    shop.watch.look()
    shop.orders(range(200, 290))
    another = SourceWatch(shop.context)
    another.look()
    another.close()
    assert shop.changes("sales") == []
    shop.orders(range(290, 300))
    third = SourceWatch(shop.context)
    third.look()
    third.close()
    assert shop.changes("sales") == [("missing", "price", 100)]


def test_a_look_reads_the_newest_records_only(shop, monkeypatch):
    monkeypatch.setattr(watch_module, "MAX_RECORDS", 100)
    shop.apply("sales")
    shop.orders(range(500), price=1.5)
    shop.watch.look()
    counts = SchemaChanges(shop.database).read()["sales", 1].counts["events"]["topics"][shop.topic]
    assert counts["columns"]["price"]["looked"] == 100
    shop.watch.look()
    again = SchemaChanges(shop.database).read()["sales", 1].counts["events"]["topics"][shop.topic]
    assert again == counts, "there is nothing new"


def test_versions_that_are_dropped_are_not_watched(shop):
    shop.apply("sales")
    shop.orders(range(10), price=1.5)
    shop.context.catalog.set_desired_state("sales", 1, DesiredState.DROP)
    shop.watch.look()
    assert SchemaChanges(shop.database).read() == {}


def test_a_source_that_cannot_be_read_does_not_affect_the_others(shop, caplog):
    caplog.set_level(logging.INFO, "headrace.views")
    made = ViewDefinition("other", ("no-such-topic",), "", "kappa", FileText("view.sql", QUERY), Decode("json", SCHEMA))
    shop.context.catalog.create_view("other", "kappa", made.definition_hash)
    shop.context.catalog.add_version("other", json.loads(json.dumps(made.as_dict())), made.definition_hash)
    shop.apply("sales")
    shop.orders(range(10), price=1.5, discount=1)
    for _ in range(2):
        shop.watch.try_to_look()
    assert shop.changes("sales") == [("new", "discount", 0)]
    assert len([each for each in caplog.messages if "no-such-topic" in each]) == 1, caplog.messages


def test_avro_by_the_id_of_its_schema(shop):
    def record(*names: str) -> dict:
        return {"type": "record", "name": "Order", "fields": [{"name": name, "type": ["null", "string"]} for name in
                                                              names]}  # fmt: skip

    def written(schema: dict, schema_id: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {})
        return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()

    own, other = record("id", "item", "price"), record("id", "item", "cost")
    with fake_registry() as registry:
        first, second = registry.register(own), registry.register(other)
        shop.apply("sales", decode=Decode("avro", json.dumps(own), framing="confluent", registry=registry.url))
        shop.send(*[written(own, first)] * 20)
        shop.watch.look()
        assert shop.changes("sales") == []
        shop.send(*[written(other, second)] * 10)
        registry.broken = 500
        shop.watch.try_to_look()
        assert shop.changes("sales") == [], "the look is repeated when the registry answers again"
        registry.broken = None
        shop.watch.look()
        assert shop.changes("sales") == [("missing", "price", 10), ("new", "cost", 0)]


def test_both_architectures_go_on_and_say_so(kafka, sqlite_url, tmp_path, spark):
    """The field price becomes an object, which is a dead letter and never NULL; then it is gone."""
    shop = Shop(kafka.bootstrap_servers, sqlite_url, tmp_path, spark)
    try:
        shop.apply("sales", "lambda")
        shop.apply("items", "kappa")
        shop.orders(range(200), price=1.5)
        shop.watch.look()
        shop.orders(range(200, 202), price={"amount": 1})
        shop.watch.look()
        shop.orders(range(202, 302), discount=0.1)
        for view, made in (("sales", LambdaView), ("items", KappaView)):
            version = shop.context.catalog.version(view, 1)
            made(shop.context, version).run_once()
            with shop.database.read() as connection:
                select = shop.context.catalog.version(view, 1, connection).select_sql
                assert connection.exec_driver_sql(select).fetchall() == [("tea", 300, 300.0)]
                progress = shop.context.catalog.progress(connection, view, 1)
            assert (progress.events, progress.dead_letters) == (302, 2)
        shop.watch.look()
        expected = [("missing", "price", 100), ("new", "discount", 0)]
        assert shop.changes("sales") == shop.changes("items") == expected
    finally:
        shop.close()
