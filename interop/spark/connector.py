"""Spark's own Kafka connector on a Headrace broker; part of script/interop. Runs under Spark 4.0.0, with its jars.

    python interop/spark/connector.py ADDRESS JAR,JAR...

Topics are made and transactions written by the Java client that the connector brings along.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, Row, SparkSession

address, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").appName("interop").config("spark.jars", jars)
for name, value in {
    "spark.driver.extraClassPath": jars.replace(",", ":"),
    # Little data: compiling would be most of the work.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
jvm: Any = spark._jvm


# -- the Java client


def properties(**values: str) -> Any:
    made = jvm.java.util.Properties()
    made.put("bootstrap.servers", address)
    for name, value in values.items():
        made.put(name.replace("_", "."), value)
    return made


def create(topic: str, partitions: int = 2) -> None:
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties())
    wanted = jvm.java.util.ArrayList()
    wanted.add(jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1))
    admin.createTopics(wanted).all().get()
    admin.close()


def transaction(topic: str, values: Iterable[str], *, is_kept: bool) -> None:
    text = "org.apache.kafka.common.serialization.StringSerializer"
    options = properties(transactional_id=f"interop-{topic}", key_serializer=text, value_serializer=text)
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(options)
    producer.initTransactions()
    producer.beginTransaction()
    for value in values:
        producer.send(jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, value)).get()
    producer.commitTransaction() if is_kept else producer.abortTransaction()
    producer.close()


# -- Spark


def read(topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": address, "subscribe": topic})
    return reader.options(**options).load()


def read_stream(topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": address, "subscribe": topic})
    return reader.option("startingOffsets", "earliest").options(**options).load()


def write(rows: DataFrame, **options: str) -> None:
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": address, **options}).save()


def values(frame: DataFrame) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("string(value) AS value").collect())


def numbers(count: int, first: int = 0) -> DataFrame:
    return spark.range(first, first + count).selectExpr("string(id) AS key", "concat('v', id) AS value")


def same(found: object, wanted: object) -> None:
    assert found == wanted, f"{found!r} is not {wanted!r}"


# -- checks


def batch() -> None:
    create("batch")
    write(numbers(1000), topic="batch")
    same(values(read("batch")), sorted(f"v{number}" for number in range(1000)))
    same(read("batch").selectExpr("count(DISTINCT partition, offset)").first(), Row(1000))
    ends = '{"batch": {"0": 20, "1": -1}}'
    starts = '{"batch": {"0": 5, "1": -2}}'
    some = read("batch", startingOffsets=starts, endingOffsets=ends).where("partition = 0")
    same(some.selectExpr("min(offset)", "max(offset)").first(), Row(5, 19))
    same(read("batch", startingTimestamp="1", minPartitions="6").count(), 1000)


def headers() -> None:
    create("headers", 1)
    header = "named_struct('key', '{}', 'value', CAST({} AS BINARY))"
    both = ", ".join([header.format("a", "'1'"), header.format("b", "NULL")])
    rows = spark.sql(f"SELECT 'v' AS value, array({both}) AS headers")
    write(rows, topic="headers", includeHeaders="true")
    (row,) = read("headers", includeHeaders="true").collect()
    same([(one.key, one.value and bytes(one.value)) for one in row.headers], [("a", b"1"), ("b", None)])


def topic_of_each_row() -> None:
    create("left")
    create("right")
    write(numbers(10).selectExpr("IF(int(key) % 2 = 0, 'left', 'right') AS topic", "key", "value"))
    same((read("left").count(), read("right").count()), (5, 5))
    same(read("left,right").count(), 10)


def stream() -> None:
    create("streamed")
    create("copied")
    write(numbers(300), topic="streamed")
    with tempfile.TemporaryDirectory() as checkpoint:
        for wanted in (300, 500):
            writer = read_stream("streamed", maxOffsetsPerTrigger="70").writeStream.format("kafka")
            options = {"kafka.bootstrap.servers": address, "topic": "copied", "checkpointLocation": checkpoint}
            query = writer.options(**options).trigger(availableNow=True).start()
            query.awaitTermination()
            same(values(read("copied")), sorted(f"v{number}" for number in range(wanted)))
            write(numbers(200, first=wanted), topic="streamed")  # it goes on where its checkpoint is


def grouped_stream() -> None:
    create("grouped")
    write(numbers(100), topic="grouped")
    counted = read_stream("grouped").selectExpr("int(string(key)) % 10 AS digit").groupBy("digit").count()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = counted.writeStream.outputMode("complete").format("memory").queryName("grouped")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    same(sorted(spark.table("grouped").collect()), [Row(digit, 10) for digit in range(10)])


def transactions() -> None:
    create("exact", 1)
    for name, is_kept in (("a", True), ("b", False), ("c", True)):
        transaction("exact", [f"{name}{number}" for number in range(5)], is_kept=is_kept)
    committed = {"kafka.isolation.level": "read_committed"}
    kept = [f"{name}{number}" for name in "ac" for number in range(5)]
    same(values(read("exact", **committed)), kept)
    same(read("exact").count(), 15)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = read_stream("exact", **committed).writeStream.format("memory").queryName("exact")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    same(values(spark.table("exact")), kept)


def lost_data() -> None:
    create("lost", 1)
    write(numbers(10), topic="lost")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write('{"version": 1, "partitions": [{"topic": "lost", "partition": 0, "offset": 4}]}')
        file.flush()
        tool = [".venv/bin/headrace", "delete-records", "--bootstrap-server", address]
        subprocess.run([*tool, "--offset-json-file", file.name], check=True, capture_output=True, timeout=60)
    same(read("lost").count(), 6)
    from_start = {"startingOffsets": '{"lost": {"0": 0}}'}
    same(read("lost", failOnDataLoss="false", **from_start).count(), 6)
    with suppress(Exception):
        read("lost", **from_start).count()
        raise SystemExit("a range that is gone was read without an error")


CHECKS: dict[str, Callable[[], None]] = {
    "batches by offset and time": batch,
    "headers": headers,
    "a topic for each row, two topics at once": topic_of_each_row,
    "a stream with a checkpoint, topic to topic": stream,
    "a stream that aggregates": grouped_stream,
    "transactions, committed and aborted": transactions,
    "records that are gone": lost_data,
}
for name, check in CHECKS.items():
    try:
        check()
        outcome = f"ok the connector: {name}"
    except (Exception, SystemExit) as error:  # noqa: BLE001  each check is told by itself
        traceback.print_exc()
        outcome = f"FAILED the connector: {name}: {' '.join(str(error).split())[:200]}"
    sys.stdout.write(f"{outcome}\n")
    sys.stdout.flush()
spark.stop()
sys.stdout.write("done\n")
