"""Publishing exactly once: the topic, read by committed records only, is the view, whatever died in between."""

import base64
import datetime
import io
import json
import random
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest
from changes_harness import FakeView

from headrace import Admin, Consumer, Producer
from headrace.client.types import TopicPartition
from headrace.pipeline.changes.avro_records import AvroFormat, avro_schema
from headrace.pipeline.changes.follower import ChangeFollower
from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.published_topic import PublishRefused
from headrace.pipeline.changes.publisher import Publisher, Transaction
from headrace.pipeline.changes.publishing_state import publishing_notes
from headrace.pipeline.changes.reading import ChangeReader
from headrace.pipeline.changes.row_values import ViewColumn
from headrace.pipeline.decoding.registry import RegistryUnavailable, SchemaRegistry
from headrace.pipeline.project.definition import ChangeSettings, Publish
from headrace.pipeline.serving.change_tables import PUBLISHED
from headrace.runtime.clock import SystemClock
from registry_harness import fake_registry

_numbers = count()


class Published:
    """A view, its topic and the publisher of the process that runs now."""

    def __init__(self, database, url, kafka):
        self.client = {"bootstrap.servers": kafka.bootstrap_servers}
        self.topic = f"pages-changes-{next(_numbers)}"
        self.view = FakeView(database)
        self.reader = ChangeReader(url)
        self.publisher = self.publish_as = None
        self.restart()

    def restart(self):
        """Another process takes over, without the end of the one before."""
        self.publisher = Publisher(
            self.view.database, self.reader, SystemClock(), self.client, "pages", self.publish_as or Publish(self.topic)
        )

    def report(self, rows, **options):
        self.view.commit(rows, **options)
        return self.view.step()

    def publish(self):
        count = 0
        while self.publisher.advance():
            count += 1
        return count

    def records(self):
        """All committed records of JSON, in the order of their offsets."""
        return [(json.loads(key), None if value is None else json.loads(value)) for key, value in self.raw()]

    def raw(self):
        options = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        with Consumer(config={**self.client, **options}) as consumer:
            places = [TopicPartition(self.topic, each.partition) for each in consumer.partitions_for(self.topic)]
            ends = consumer.end_offsets(*places)
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            found = []
            while any(consumer.position(place) < ends[place] for place in places):
                found += consumer.poll(1000)
            return [(one.key, one.value) for one in found]

    def table(self):
        rows = {}
        for key, value in self.records():
            if value is None:
                rows.pop(key["page"], None)
            else:
                rows[key["page"]] = value["clicks"]
        return rows


@pytest.fixture
def published(sqlite_url, kafka):
    from headrace.pipeline.serving.database import Database

    database = Database(sqlite_url)
    made = Published(database, sqlite_url, kafka)
    yield made
    made.publisher.close()
    made.reader.close()
    database.close()


def test_the_whole_table_is_sent_first_and_then_every_change_with_tombstones(published):
    published.report([("home", 1), ("shop", 2)])
    assert published.publish() == 1
    assert sorted(map(str, published.records())) == [
        "({'page': 'home'}, {'page': 'home', 'clicks': 1})",
        "({'page': 'shop'}, {'page': 'shop', 'clicks': 2})",
    ]
    published.report([("home", 5), ("tea", 1)])
    published.report([("home", 6), ("tea", 1)])
    published.publish()
    assert published.publish() == 0
    assert sorted(map(str, published.records()[2:])) == [
        "({'page': 'home'}, {'page': 'home', 'clicks': 5})",
        "({'page': 'home'}, {'page': 'home', 'clicks': 6})",
        "({'page': 'shop'}, None)",
        "({'page': 'tea'}, {'page': 'tea', 'clicks': 1})",
    ]
    assert published.table() == {"home": 6, "tea": 1}
    with Admin(config=published.client) as admin:
        entries = admin.describe_config("topic", published.topic)
    assert entries["cleanup.policy"].value == "compact"


_CRASHES = ["before the commit", "after the commit", "after the database"]


@pytest.mark.parametrize("crash", _CRASHES)
@pytest.mark.parametrize("when", ["first table", "changes"])
def test_a_crash_around_a_commit_neither_loses_nor_doubles_a_record(published, monkeypatch, crash, when):
    published.report([("home", 1), ("shop", 2)])
    if when == "changes":
        published.publish()
        published.report([("home", 3), ("tea", 1)])
    before = len(published.records()) if when == "changes" else 0
    real_commit, real_saved = Producer.commit_transaction, Publisher.committed

    def commit(producer):
        if crash == "before the commit":
            producer.flush()
            raise SystemExit
        real_commit(producer)

    def saved(publisher, position):
        if crash == "after the database":
            real_saved(publisher, position)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "commit_transaction", commit)
        patched.setattr(Publisher, "committed", saved)
        patched.setattr(Transaction, "_abort", lambda _: None)  # a process that was killed aborts nothing
        with pytest.raises(SystemExit):
            published.publish()
    published.restart()
    published.publish()
    found = published.records()
    expected = 2 if when == "first table" else 3
    assert len(found) - before == expected, f"{crash}: records were lost or doubled"
    assert published.table() == ({"home": 1, "shop": 2} if when == "first table" else {"home": 3, "tea": 1})


def test_random_crashes_and_switches_leave_the_topic_equal_to_the_view(published, monkeypatch):
    dice = random.Random(18)
    real_send, real_commit, real_saved = Producer.send, Producer.commit_transaction, Publisher.committed
    crashing = {"send": 0.02, "commit": 0.15, "committed": 0.15}

    def dies(what):
        if dice.random() < crashing[what]:
            raise SystemExit

    def send(producer, *arguments, **options):
        dies("send")
        return real_send(producer, *arguments, **options)

    def commit(producer):
        dies("commit")
        real_commit(producer)

    def committed(publisher, position):
        dies("committed")
        real_saved(publisher, position)

    monkeypatch.setattr(Producer, "send", send)
    monkeypatch.setattr(Producer, "commit_transaction", commit)
    monkeypatch.setattr(Publisher, "committed", committed)
    monkeypatch.setattr(Transaction, "_abort", lambda _: None)
    rows, crashes = {}, 0
    for number in range(40):
        for _ in range(dice.randrange(4)):
            rows[f"p{dice.randrange(8)}"] = number
        for _ in range(dice.randrange(2)):
            rows.pop(f"p{dice.randrange(8)}", None)
        if number % 13 == 12:
            published.view.add_version()
        published.report(sorted(rows.items()), switch=True)
        try:
            published.publish()
        except SystemExit:
            crashes += 1
            published.restart()
    assert crashes > 3
    crashing.update(dict.fromkeys(crashing, 0))
    published.publish()
    assert published.table() == rows
    seen = {}
    for key, value in published.records():  # no record repeats what the topic had: nothing was sent twice
        assert seen.get(key["page"]) != value, f"{key} was sent twice"
        seen[key["page"]] = value


def test_a_new_stream_and_changes_that_are_not_kept_send_only_the_difference(published):
    published.view.settings = ChangeSettings(keep_changes=2)
    published.report([("home", 1), ("shop", 2), ("tea", 3)])
    published.publish()
    for clicks in (4, 5, 6, 7):
        published.report([("home", clicks), ("shop", 2)])
    published.publish()
    assert sorted(map(str, published.records()[3:])) == [
        "({'page': 'home'}, {'page': 'home', 'clicks': 7})",
        "({'page': 'tea'}, None)",
    ]
    published.report([("home", 7), ("a", 1), ("b", 1), ("c", 1)])  # more than the outbox keeps: a new stream
    published.publish()
    assert published.table() == {"home": 7, "a": 1, "b": 1, "c": 1}
    assert len(published.records()) == 3 + 2 + 4


def test_an_older_publisher_is_fenced(published):
    published.report([("home", 1)])
    published.publish()
    old = published.publisher
    published.restart()
    published.report([("home", 2)])
    published.publish()
    published.report([("home", 3)])
    with pytest.raises(Exception, match=r"(?i)fenc|epoch|newer"):
        old.advance()
    old.close()
    published.publish()
    assert [value["clicks"] for _, value in published.records()] == [1, 2, 3]


def test_topics_that_cannot_be_published_to_are_refused_and_left_alone(published):
    published.report([("home", 1)])
    with Admin(config=published.client) as admin:
        admin.create_topic(published.topic, num_partitions=1)
        with pytest.raises(PublishRefused, match=r"cleanup\.policy=delete, and a view can be published to"):
            published.publish()
        assert published.records() == []
        published.topic += "-foreign"
        admin.create_topic(published.topic, num_partitions=1, configs={"cleanup.policy": "compact"})
    with Producer(config=published.client) as producer:
        producer.send_and_wait(published.topic, b'{"clicks": 1}', key=b'{"page": "other"}')
    published.restart()
    with pytest.raises(PublishRefused, match="has records that were not written for the view pages of this database"):
        published.publish()
    assert published.table() == {"other": 1}


def test_a_view_without_a_key_is_refused(published):
    published.view.add_version(key=None)
    published.report([("home", 1)])
    with pytest.raises(PublishRefused, match=r'pages has no key.* such as key = \["id"\]'):
        published.publish()


def test_a_topic_that_was_deleted_is_made_again_from_the_whole_table(published):
    published.report([("home", 1)])
    published.publish()
    published.publisher.close()
    with Admin(config=published.client) as admin:
        admin.delete_topic(published.topic)
    published.report([("home", 2), ("shop", 1)])
    published.restart()
    published.publish()
    assert published.table() == {"home": 2, "shop": 1}


class PublishedView(FakeView):
    publish = Publish("unset")

    def definition(self):
        from headrace.pipeline.project.decode import Decode, FileText
        from headrace.pipeline.project.definition import ViewDefinition

        query = FileText("pages.sql", "SELECT 1")
        return ViewDefinition("pages", ("clicks",), "", "kappa", query, Decode(), publish=self.publish).as_dict()


def test_the_follower_tells_and_publishes_what_the_newest_definition_says(database, database_url, kafka, caplog):
    topic = f"followed-{next(_numbers)}"
    client = {"bootstrap.servers": kafka.bootstrap_servers}
    PublishedView.publish = Publish(topic)
    view = PublishedView(database)
    view.commit([("home", 1)])

    def follower():
        return ChangeFollower(database, view.catalog, SystemClock(), client, database_url)

    assert follower().run_once() == []
    view.commit([("home", 2)])
    assert follower().run_once() == []
    with database.read() as connection:
        (row,) = connection.execute(PUBLISHED.select()).fetchall()
    assert (row.topic, row.seq, row.error) == (topic, 1, None)
    with Admin(config=client) as admin:
        admin.create_topic(f"{topic}-deleted", num_partitions=1)
    PublishedView.publish = Publish(f"{topic}-deleted")
    view.add_version()
    assert follower().run_once() == ["publishing pages"]
    with database.read() as connection:
        (row,) = connection.execute(PUBLISHED.select()).fetchall()
    assert "-deleted has cleanup.policy=delete" in row.error
    (note,) = publishing_notes(database, {"pages": f"{topic}-deleted", "users": "another"})
    assert note.startswith(f"pages: publishing to {topic}-deleted fails and is tried again: the topic {topic}-deleted ")
    assert publishing_notes(database, {"other": f"{topic}-deleted"}) == []
    assert sum("cleanup.policy=delete" in each for each in caplog.messages) == 1


AVRO = pa.schema(
    [
        ("page", pa.string()),
        ("clicks", pa.int64()),
        ("share", pa.float64()),
        ("hot", pa.bool_()),
        ("price", pa.decimal128(8, 2)),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("odd name", pa.int32()),
    ]
)


def test_avro_records_are_read_by_the_schemas_of_the_registry(published):
    from fastavro import schemaless_reader

    published.view.add_version(AVRO)
    noon = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
    full = ("home", 1, 0.5, True, Decimal("3.10"), b"\x00\xff", noon, ["a"], 7)
    with fake_registry() as registry:
        published.publish_as = Publish(published.topic, "avro", registry.url)
        published.restart()
        published.report([full, ("none", *[None] * 8)])
        published.publish()
        schemas = SchemaRegistry(registry.url)

        def decoded(data):
            schema = json.loads(schemas.schema(int.from_bytes(data[1:5], "big")).text)
            return schemaless_reader(io.BytesIO(data[5:]), schema)

        found = {decoded(key)["page"]: decoded(value) for key, value in published.raw()}
        assert found["home"] == {
            "page": "home", "clicks": 1, "share": 0.5, "hot": True, "price": Decimal("3.10"), "raw": b"\x00\xff",
            "at": "2026-11-16 12:00:00", "tags": '["a"]', "odd_name": 7,
        }  # fmt: skip
        assert set(found["none"].values()) == {"none", None}
        published.report([full])
        published.publish()
        assert published.raw()[-1][1] is None
        registry.refused.add(f"{published.topic}-value")
        published.restart()
        published.report([full, ("more", *[None] * 8)])
        with pytest.raises(PublishRefused, match=r"incompatible.*allow the change for the subject"):
            published.publish()
        registry.broken = 500
        published.restart()
        with pytest.raises(RegistryUnavailable, match="500"):
            published.publish()
        registry.broken = None
        registry.refused.clear()
        published.restart()
        published.publish()
        assert len(published.raw()) == 4


def test_a_registry_with_a_password_gets_it(monkeypatch):
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    state = Followed("pages", "s", (ViewColumn("page", "TEXT"),), ("page",), 1, 0, "", {})
    options = {"basic.auth.user.info": "${env:REGISTRY_LOGIN}"}
    with fake_registry() as registry:
        registry.login = "Basic " + base64.b64encode(b"ann:secret").decode()
        assert AvroFormat.of(Publish("out", "avro", registry.url, options), state).key({"page": "home"})[:1] == b"\0"
        with pytest.raises(RegistryUnavailable, match="401"):
            AvroFormat.of(Publish("out", "avro", registry.url), state)


def test_columns_with_the_same_avro_name_are_refused():
    with pytest.raises(PublishRefused, match="two columns of pages are 'a_b' in Avro"):
        avro_schema("pages", [ViewColumn("a b", "TEXT"), ViewColumn("a-b", "TEXT")])
    assert avro_schema("pages", [ViewColumn("2nd", "")])["fields"] == [
        {"name": "_2nd", "type": ["null", "boolean", "long", "double", "string"], "default": None}
    ]
