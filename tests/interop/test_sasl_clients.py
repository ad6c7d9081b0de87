"""Clients of other projects log in by SASL: confluent-kafka, kafka-python and aiokafka, with every mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider

from certificates import certificate
from headrace import Broker
from headrace.security.sasl.scram import new_credential
from token_harness import key_set, signed

USER, PASSWORD = "alice", "it's = a, secret"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
WITHIN_S = 20


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(config=CONFIG) as broker:
        scram = {name: new_credential(name, PASSWORD).to_text() for name in MECHANISMS[1:]}
        broker.core.scram_users.put(USER, scram)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def oauth_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("provider") / "keys.json"
    file.write_bytes(key_set())
    config = {
        **CONFIG,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": file.as_uri(),
    }
    with Broker(config=config) as broker:
        yield broker.bootstrap_servers


def new_token() -> str:
    return signed(iat=int(time()) - 1, exp=int(time()) + 600)


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_confluent(address: str, mechanism: str) -> None:
    common = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    producer = confluent_kafka.Producer(common)
    topic = f"confluent-{mechanism}"
    producer.produce(topic, b"value")
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(WITHIN_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"value"


def test_confluent_with_a_wrong_password(address: str, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": "wrong",
            "error_cb": errors.append,
        }
    )
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=2)
    client.poll(0)
    assert confluent_kafka.KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_kafka_python(address: str, mechanism: str) -> None:
    common = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**common)
    producer.send(topic, b"value").get(WITHIN_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **common)
    assert next(consumer).value == b"value"
    consumer.close()


async def test_aiokafka(address: str, mechanism: str) -> None:
    common = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    topic = f"aiokafka-{mechanism}"
    async with AIOKafkaProducer(**common) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common) as consumer:
        record = await consumer.getone()
    assert record.value == b"value"


async def test_aiokafka_with_an_unknown_user(address: str, mechanism: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="nobody",
        sasl_plain_password=PASSWORD,
    )
    with pytest.raises(AiokafkaError):
        await producer.start()
    await producer.stop()


# -- OAUTHBEARER


def test_confluent_by_token(oauth_address: str) -> None:
    common = {
        "bootstrap.servers": oauth_address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (new_token(), time() + 600),
    }
    producer = confluent_kafka.Producer(common)
    producer.poll(0)
    producer.produce("confluent-token", b"value")
    assert producer.flush(WITHIN_S) == 0


def test_kafka_python_by_token(oauth_address: str) -> None:
    class Provider(KafkaPythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return new_token()

        def extensions(self) -> dict[str, str]:
            return {"traceId": "123"}

    producer = kafka.KafkaProducer(
        bootstrap_servers=oauth_address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    producer.send("kafka-python-token", b"value").get(WITHIN_S)
    producer.close()


async def test_aiokafka_by_token(oauth_address: str) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return new_token()

    async with AIOKafkaProducer(
        bootstrap_servers=oauth_address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    ) as producer:
        await producer.send_and_wait("aiokafka-token", b"value")


# -- over TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a SASL_SSL listener, and the file of the authority that signed the broker's certificate."""
    folder = tmp_path_factory.mktemp("stores")
    stores = certificate().write(folder)
    config = {
        **stores,
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with Broker(config=config) as broker:
        broker.core.scram_users.put(USER, {"SCRAM-SHA-512": new_credential("SCRAM-SHA-512", PASSWORD).to_text()})
        yield broker.bootstrap_servers, stores["ssl.truststore.location"]


def test_confluent_over_tls(tls: tuple[str, str]) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tls[0],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": tls[1],
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    producer.produce("tls", b"value")
    assert producer.flush(WITHIN_S) == 0


def test_kafka_python_over_tls(tls: tuple[str, str]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=tls[0],
        security_protocol="SASL_SSL",
        ssl_cafile=tls[1],
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    producer.send("tls", b"value").get(WITHIN_S)
    producer.close()


async def test_aiokafka_over_tls(tls: tuple[str, str]) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=tls[0],
        security_protocol="SASL_SSL",
        ssl_context=create_ssl_context(cafile=tls[1]),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    ) as producer:
        await producer.send_and_wait("tls", b"value")
