"""The data source in Spark itself: few tests, as each costs seconds; the details are tested without Spark."""

from __future__ import annotations

import json

import pytest

from headrace import Admin, Producer, TopicPartition

pytestmark = pytest.mark.timeout(300)
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(kafka):
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        for topic in ("clicks", "copy", "exact", "written"):
            admin.create_topic(topic, num_partitions=2)
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(100):
            producer.send(
                "clicks", b"v%d" % number, key=b"k%d" % (number % 5), partition=number % 2,
                timestamp_ms=START_MS + number, headers={"h": b"x"},
            )  # fmt: skip
    return kafka


def read(spark, broker, topic="clicks", **options):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load()


def stream(spark, broker, **options):
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", "clicks").option("startingOffsets", "earliest").options(**options).load()


def test_a_topic_is_a_data_frame(spark, broker):
    frame = read(spark, broker, includeHeaders="true")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    found = frame.selectExpr(
        "count(*)", "count(DISTINCT key)", "sum(length(value))", "max(offset)", "sum(size(headers))"
    ).first()
    assert tuple(found) == (100, 5, 10 * 2 + 90 * 3, 49, 100)
    row = frame.where("offset = 3 AND partition = 1").selectExpr(
        "string(key)", "string(value)", "unix_millis(timestamp)"
    )
    assert [tuple(one) for one in row.collect()] == [("k2", "v7", START_MS + 7)]


@pytest.fixture(params=["false", "true"])
def pushdown(request, spark):
    """Spark keeps one reader per load(): filters that were pushed down to it would stay for the next query."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, before)


def test_a_filter_holds_for_its_own_query_alone(spark, broker, pushdown):
    frame = read(spark, broker)
    assert sorted(row.offset for row in frame.where("partition = 1 AND offset >= 48").collect()) == [48, 49]
    assert frame.count() == 100
    young = frame.where("timestamp >= timestamp_millis(1700000000099)")
    assert [bytes(row.value) for row in young.collect()] == [b"v99"]
    last, first = frame.where("partition = 0 AND offset >= 47"), frame.where("partition = 1 AND offset < 5")
    assert last.union(first).count() == 3 + 5
    assert last.alias("a").join(first.alias("b"), "topic").count() == 3 * 5


def test_a_schema_names_the_columns_that_are_read(spark, broker):
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = reader.option("subscribe", "clicks").schema("offset BIGINT, value BINARY").load()
    assert frame.selectExpr("max(offset)", "sum(length(value))").first()[:] == (49, 290)


def test_mistakes_are_told_before_anything_runs(spark, broker):
    with pytest.raises(Exception, match="did you mean minPartitions"):
        read(spark, broker, minPartition="3").count()
    with pytest.raises(Exception, match="no topic 'absent'"):
        read(spark, broker, topic="absent").count()
    with pytest.raises(Exception, match="no column value"):
        _write(spark.range(1), broker).option("topic", "copy").mode("append").save()


def _write(frame, broker):
    return frame.write.format("headrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)


def test_rows_are_written(spark, broker):
    rows = spark.range(10).selectExpr("string(id) AS key", "string(id * id) AS value", "'written' AS topic")
    _write(rows, broker).mode("append").save()
    _write(rows.drop("topic"), broker).option("topic", "written").option("transactionalIdPrefix", "batch").mode(
        "append"
    ).save()
    found = read(spark, broker, topic="written", **{"kafka.isolation.level": "read_committed"})
    assert sorted((int(row.key), int(row.value)) for row in found.collect()) == sorted(
        (number, number * number) for number in range(10) for _ in range(2)
    )


def _run(frame, broker, topic, checkpoint, **options):
    query = (
        frame.selectExpr("key", "value").writeStream.format("headrace").option("topic", topic)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers).option("checkpointLocation", str(checkpoint))
        .options(**options).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(200)
        return query.recentProgress
    finally:
        query.stop()


def test_a_stream_is_bounded_and_tells_its_group(spark, broker, tmp_path):
    clicks = stream(spark, broker, maxOffsetsPerTrigger="60", commitGroup="lag")
    progress = _run(clicks, broker, "copy", tmp_path)
    assert [json.loads(one.sources[0].endOffset) for one in progress] == [
        {"clicks": {"0": 30, "1": 30}},
        {"clicks": {"0": 50, "1": 50}},
    ]
    assert read(spark, broker, topic="copy").selectExpr("count(*)", "count(DISTINCT value)").first()[:] == (100, 100)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        group = admin.list_group_offsets("lag")
    assert group[TopicPartition("clicks", 1)].offset == 50


def test_a_replayed_batch_is_written_once(spark, broker, tmp_path):
    clicks = stream(spark, broker, minOffsetsPerTrigger="1000")  # which availableNow does not wait for
    _run(clicks, broker, "exact", tmp_path, transactionalIdPrefix="exact")
    # As if the driver had died before it wrote that the batch is done.
    for done in (tmp_path / "commits").glob("*0*"):
        done.unlink()
    (progress, *_) = _run(clicks, broker, "exact", tmp_path, transactionalIdPrefix="exact")
    assert progress.batchId == 0
    found = read(spark, broker, topic="exact", **{"kafka.isolation.level": "read_committed"})
    assert found.selectExpr("count(*)", "count(DISTINCT value)").first()[:] == (100, 100)
