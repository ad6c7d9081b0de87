"""Clients of other projects log in by SASL: confluent-kafka, kafka-python and aiokafka.

Each with every mechanism, over PLAINTEXT and over TLS, producing and consuming.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import time
from typing import Any, NamedTuple

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
PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
WITHIN_S = 20


class Server(NamedTuple):
    #: By the security protocol.
    addresses: dict[str, str]
    #: The file of the authority that signed the broker's certificate.
    authority: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One broker with both protocols and all mechanisms."""
    folder = tmp_path_factory.mktemp("broker")
    stores, keys = certificate().write(folder), folder / "keys.json"
    keys.write_bytes(key_set())
    config = {
        **stores,
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "OAUTHBEARER"]),
        **{f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": JAAS for protocol in PROTOCOLS},
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.as_uri(),
    }
    with Broker(config=config) as broker:
        scram = {name: new_credential(name, PASSWORD).to_text() for name in MECHANISMS[1:]}
        broker.core.scram_users.put(USER, scram)
        addresses = {name: f"{host}:{port}" for name, (host, port) in broker.core.endpoints.items()}
        yield Server(addresses, stores["ssl.truststore.location"])


@pytest.fixture
def address(server: Server) -> str:
    return server.addresses["SASL_PLAINTEXT"]


def new_token() -> str:
    return signed(iat=int(time()) - 1, exp=int(time()) + 600)


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[*MECHANISMS, "OAUTHBEARER"])
def any_mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_confluent(server: Server, protocol: str, any_mechanism: str) -> None:
    common: dict[str, Any] = {
        "bootstrap.servers": server.addresses[protocol],
        "security.protocol": protocol,
        "ssl.ca.location": server.authority,
        "sasl.mechanism": any_mechanism,
    }
    if any_mechanism == "OAUTHBEARER":
        common["oauth_cb"] = lambda _: (new_token(), time() + 600)
    else:
        common |= {"sasl.username": USER, "sasl.password": PASSWORD}
    producer = confluent_kafka.Producer(common)
    producer.poll(0)
    topic = f"confluent-{protocol}-{any_mechanism}"
    producer.produce(topic, b"value")
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    record = consumer.poll(WITHIN_S)
    consumer.close()
    assert record is not None
    assert record.value() == b"value"


def test_a_group_of_confluent(address: str) -> None:
    common = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    producer = confluent_kafka.Producer(common)
    producer.produce("confluent-group", b"value")
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent-group"])
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


class KafkaPythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return new_token()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "123"}


def test_kafka_python(server: Server, protocol: str, any_mechanism: str) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": server.addresses[protocol],
        "security_protocol": protocol,
        "ssl_cafile": server.authority,
        "sasl_mechanism": any_mechanism,
    }
    if any_mechanism == "OAUTHBEARER":
        common["sasl_oauth_token_provider"] = KafkaPythonTokens()
    else:
        common |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    topic = f"kafka-python-{protocol}-{any_mechanism}"
    producer = kafka.KafkaProducer(**common)
    producer.send(topic, b"value").get(WITHIN_S)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **common)
    assert next(consumer).value == b"value"
    consumer.close()


class AiokafkaTokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return new_token()


async def test_aiokafka(server: Server, protocol: str, any_mechanism: str) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": server.addresses[protocol],
        "security_protocol": protocol,
        "ssl_context": create_ssl_context(cafile=server.authority) if protocol == "SASL_SSL" else None,
        "sasl_mechanism": any_mechanism,
    }
    if any_mechanism == "OAUTHBEARER":
        common["sasl_oauth_token_provider"] = AiokafkaTokens()
    else:
        common |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    topic = f"aiokafka-{protocol}-{any_mechanism}"
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
