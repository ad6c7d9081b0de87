"""The source and the sink on a SASL cluster: tasks log in with a token, and Spark shows no password."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from headrace import Admin, Broker, Consumer, Producer

pytestmark = pytest.mark.timeout(300)
PASSWORD = "alice-hidden-word"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
}
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{PASSWORD}";'


def client_of(broker):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
    }


def options_of(broker, **more):
    return {f"kafka.{name}": value for name, value in client_of(broker).items()} | more


@pytest.fixture(scope="module")
def broker():
    with Broker(config={**SETTINGS, "delegation.token.secret.key": "cluster-secret"}) as broker:
        with Admin(client_of(broker)) as admin:
            for topic in ("clicks", "copy", "streamed"):
                admin.create_topic(topic, num_partitions=2)
        with Producer(config=client_of(broker)) as producer:
            for number in range(100):
                producer.send("clicks", b"v%d" % number, partition=number % 2)
        yield broker


def tokens_of(broker):
    with Admin(client_of(broker)) as admin:
        return admin.describe_delegation_tokens()


def count(broker, topic):
    options = client_of(broker) | {"isolation.level": "read_committed"}
    with Consumer(config=options, enable_auto_commit=False) as consumer:
        partitions = [(topic, 0), (topic, 1)]
        return sum(consumer.end_offsets(*partitions).values())


def test_tasks_read_and_write_with_a_token(spark, broker):
    frame = spark.read.format("headrace").options(**options_of(broker, subscribe="clicks")).load()
    assert frame.count() == 100
    assert {str(token.owner) for token in tokens_of(broker)} == {"User:alice"}
    frame.select("value").write.format("headrace").mode("append").options(**options_of(broker, topic="copy")).save()
    assert count(broker, "copy") == 100


def test_a_stream_reads_and_writes_exactly_once_with_a_token(spark, broker, tmp_path):
    before = {token.token_id for token in tokens_of(broker)}
    stream = spark.readStream.format("headrace").options(
        **options_of(broker, subscribe="clicks", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    )
    writer = (
        stream.load().select("value").writeStream.format("headrace")
        .options(**options_of(broker, topic="streamed", transactionalIdPrefix="exact"))
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    )  # fmt: skip
    query = writer.start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    with Consumer(config=client_of(broker) | {"isolation.level": "read_committed"}) as consumer:
        consumer.assign([("streamed", 0), ("streamed", 1)])
        consumer.seek_to_beginning()
        seen = []
        while len(seen) < 100:
            batch = consumer.poll(timeout_ms=10_000)
            assert batch
            seen += [record.value for record in batch]
    assert sorted(seen) == sorted(b"v%d" % number for number in range(100))
    # The token of the source has ended with the stream. The sink planned three micro-batches with few tokens.
    assert len({token.token_id for token in tokens_of(broker)} - before) <= 2


def test_spark_does_not_show_the_password(spark, broker):
    frame = spark.read.format("headrace").options(**options_of(broker, subscribe="clicks")).load()
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.explain(extended=True)
    for text in (shown.getvalue(), frame._jdf.queryExecution().toString(), repr(frame)):
        assert PASSWORD not in text


def test_without_tokens_a_query_fails_unless_the_password_may_be_sent(spark):
    with Broker(config=SETTINGS) as broker:
        with Producer(config=client_of(broker)) as producer:
            producer.send("t", b"x").result(10)
        options = options_of(broker, subscribe="t")
        with pytest.raises(
            Exception, match="Spark's workers get no login: the cluster has no delegation tokens"
        ) as caught:
            spark.read.format("headrace").options(**options).load().count()
        assert PASSWORD not in str(caught.value)
        assert spark.read.format("headrace").options(**options, workerLogin="any").load().count() == 1
        assert spark.read.format("headrace").options(**options, workerLogin="password").load().count() == 1
