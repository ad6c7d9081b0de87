"""The rows that the sink accepts and sends: with a broker, without Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.sink.options import SinkOptions
from headrace.pipeline.spark.sink.writers import BatchSink, StreamSink, send_rows

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


@pytest.fixture(scope="module")
def broker(kafka):
    return kafka


def create(broker, *topics: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(topics).all()


def records(broker, topic: str):
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        count, found = consumer.end_offsets(place)[place], []
        while len(found) < count:
            found += consumer.poll(5_000)
    return found


def test_rows_become_records(broker):
    create(broker, "all")
    at = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
    rows = [
        {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}], "timestamp": at, "partition": 0, "n": 1},
        {"key": None, "value": None, "headers": None, "timestamp": at, "partition": None, "n": 2},
    ]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert send_rows(producer, "all", [pa.RecordBatch.from_pylist(rows)]) == 2
    first, second = records(broker, "all")
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", [("h", b"x")])
    assert first.timestamp_ms == 1_767_225_600_001
    assert (second.key, second.value) == (None, None)


def test_rows_say_their_topic_unless_there_is_one_for_all(broker):
    create(broker, "one", "two")
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], "topic": ["one", "two", "one"]})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert send_rows(producer, None, [batch, batch.slice(0, 0)]) == 3
        assert send_rows(producer, "two", [batch]) == 3
        with pytest.raises(ValueError, match="a row has no topic"):
            send_rows(
                producer, None, [pa.RecordBatch.from_pydict({"value": ["a"], "topic": pa.array([None], "string")})]
            )
    assert [one.value for one in records(broker, "one")] == [b"a", b"c"]
    assert [one.value for one in records(broker, "two")] == [b"b", b"a", b"b", b"c"]


def test_a_timestamp_of_another_type_is_a_column_like_others(broker):
    create(broker, "own")
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "timestamp": ["yesterday"]})
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert send_rows(producer, "own", [rows]) == 1
    assert [one.value for one in records(broker, "own")] == [b"a"]
    parse("value string, timestamp string")


def test_many_small_batches_are_sent_together(broker):
    create(broker, "many")
    begun = []
    batches = [pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 500}) for _ in range(20)]
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert send_rows(producer, "many", iter(batches), before_first=begun.append) == 10_000
        assert send_rows(producer, "many", [], before_first=begun.append) == 0
    assert begun == ["many"]
    assert len(records(broker, "many")) == 10_000


def parse(schema: str = "key string, value binary", **options: str) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, "topic": "t", **options}, _struct(schema))


def _struct(ddl: str):
    """A schema without a session."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

    kinds = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "bigint": LongType()}
    return StructType([StructField(name, kinds[kind]) for name, kind in (one.split() for one in ddl.split(", "))])


def test_options_of_the_sink():
    options = parse(**{"kafka.linger.ms": "20", "checkpointlocation": "/somewhere"})
    assert options.client == {
        "bootstrap.servers": "127.0.0.1:9092", "linger.ms": "20", "enable.metrics.push": "false",
    }  # fmt: skip
    assert parse(**{"kafka.enable.metrics.push": "true"}).client["enable.metrics.push"] == "true"
    assert (options.topic, options.transactional_id_prefix) == ("t", None)
    assert parse(includeheaders="true") == parse()
    exact = parse(transactionalidprefix="x")
    assert (exact.transactional_id_prefix, exact.client["transaction.timeout.ms"]) == ("x", "900000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "t"}, "no option topics; did you mean topic"),
        ({"kafka.acks": "2"}, "acks"),
        ({"kafka.acks": "1", "transactionalidprefix": "x"}, "acks=all"),
        ({"kafka.transactional.id": "x"}, "use transactionalIdPrefix"),
        ({"kafka.value.serializer": "x"}, "binary or string"),
        (
            {"kafka.partitioner.class": "org.example.ByUser"},
            "^kafka.*partitioner.class = 'org.example.ByUser': must be one of",
        ),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"schema": "key string, values binary"}, "no column value"),
        ({"schema": "value int"}, "the column value has the type int, not binary or string"),
        ({"schema": "value string, partition string"}, "the column partition has the type string"),
        ({"schema": "value string, headers string"}, "the column headers has the type string"),
    ],
)
def test_what_cannot_be_written_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        parse(**options)


def test_a_topic_has_to_be_said():
    with pytest.raises(BadOption, match="no topic"):
        SinkOptions.parse(SERVERS, _struct("value string"))
    SinkOptions.parse(SERVERS, _struct("value string, topic string"))


def test_a_log_is_not_overwritten():
    with pytest.raises(BadOption, match="use mode append"):
        BatchSink.for_schema({**SERVERS, "topic": "t"}, _struct("value string"), overwrite=True)


def test_a_sink_can_be_pickled_for_its_tasks():
    for kind in (BatchSink, StreamSink):
        sink = kind.for_schema({**SERVERS, "topic": "t"}, _struct("value string"), overwrite=False)
        assert vars(pickle.loads(pickle.dumps(sink))) == vars(sink)
