"""The source and the sink on a log that asks for TLS and a login: options as Spark's connector takes them."""

import pytest

from certificates import certificate
from headrace import Broker, Consumer, Producer
from headrace.pipeline.spark.options import BadOption
from headrace.pipeline.spark.source.options import SourceOptions

SECRET = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MADE = certificate()


@pytest.fixture(scope="module")
def client():
    config = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "delegation.token.secret.key": "the workers of Spark log in with tokens",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="{SECRET}";',
        **MADE.key_store(),
        **MADE.trust_store(),
    }
    with Broker(config=config) as broker:
        yield {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} username="alice" password="{SECRET}";',
            **MADE.trust_store(),
        }


def for_spark(client, **others):
    return {**{f"kafka.{name}": value for name, value in client.items()}, **others}


def test_reading_and_writing(spark, client, tmp_path, capfd):
    with Producer(config=client) as producer:
        for number in range(10):
            producer.send("in", str(number).encode())
    given = for_spark(client)
    rows = spark.read.format("headrace").options(**given, subscribe="in").load()
    rows.explain(True)
    assert {bytes(row.value) for row in rows.collect()} == {str(number).encode() for number in range(10)}
    stream = (
        spark.readStream.format("headrace")
        .options(**given, subscribe="in", startingOffsets="earliest")
        .load()
        .writeStream.format("headrace")
        .options(**given, topic="out", checkpointLocation=str(tmp_path / "checkpoint"), transactionalIdPrefix="s")
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(60)
    assert stream.exception() is None
    stream.explain(True)
    options = {**client, "auto.offset.reset": "earliest", "isolation.level": "read_committed", "group.id": "g"}
    with Consumer(config=options) as consumer:
        consumer.subscribe(["out"])
        found = consumer.poll(20_000)
    assert {record.value for record in found} == {str(number).encode() for number in range(10)}
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err + str(stream.lastProgress)
    for file in (tmp_path / "checkpoint").rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file


def test_a_wrong_password(spark, client):
    given = for_spark({**client, "sasl.jaas.config": f'{PLAIN} username="alice" password="wrong horse";'})
    with pytest.raises(Exception, match="rejected the login by PLAIN") as error:
        spark.read.format("headrace").options(**given, subscribe="in").load().collect()
    assert "wrong horse" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.security.protocol": "TELNET"}, "must be one of PLAINTEXT"),
        ({"kafka.ssl.truststore.location": "/a"}, "set security.protocol too"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-256"),
        ({"kafka.ssl.truststore.locatoin": "/a"}, "has no option"),
    ],
)
def test_options_that_cannot_be_used(options, message):
    with pytest.raises(BadOption, match=message):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options}, is_stream=True)


def test_secrets_are_not_shown(client):
    assert SECRET not in repr(SourceOptions.parse(for_spark(client, subscribe="t"), is_stream=False))
