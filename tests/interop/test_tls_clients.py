"""Clients of other projects over TLS, with a certificate that the broker demands."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from interop_records import WITHIN_S
from kafka import KafkaConsumer, KafkaProducer

from headrace import Broker

COUNT = 3
#: Smaller and larger than a TLS record, and larger than what the loop's thread sends itself.
VALUES = [b"small", b"m" * 20_000, bytes(range(256)) * 3_500]


@dataclass(frozen=True)
class Secured:
    bootstrap: str
    authority: Path
    client: Path

    @property
    def librdkafka(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client),
        }

    @property
    def kafka_python(self) -> dict[str, object]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority),
            "ssl_certfile": str(self.client),
            "ssl_keyfile": str(self.client),
        }

    @property
    def aiokafka(self) -> dict[str, object]:
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.client)
        return {"bootstrap_servers": self.bootstrap, "security_protocol": "SSL", "ssl_context": context}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name in ("127.0.0.1", "client"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "127.0.0.1.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "authority.pem",
        "ssl.client.auth": "required",
        "num.partitions": 1,
    }
    with Broker(config=config) as broker:
        yield Secured(broker.bootstrap_servers, folder / "authority.pem", folder / "client.pem")


def test_confluent_kafka(secured: Secured) -> None:
    producer = confluent_kafka.Producer({**secured.librdkafka, "acks": "all", "linger.ms": 5})
    for value in VALUES * COUNT:
        producer.produce("confluent", value)
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer(
        {**secured.librdkafka, "group.id": "confluent", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    with closing(consumer):
        consumer.subscribe(["confluent"])
        values: list[bytes] = []
        while len(values) < len(VALUES) * COUNT:
            messages = consumer.consume(len(VALUES) * COUNT - len(values), timeout=WITHIN_S)
            assert messages
            assert all(message.error() is None for message in messages)
            values += [message.value() for message in messages]
        consumer.commit(asynchronous=False)
    assert values == VALUES * COUNT


def test_kafka_python(secured: Secured) -> None:
    with closing(KafkaProducer(**secured.kafka_python, acks="all")) as producer:
        futures = [producer.send("kafka-python", value) for value in VALUES * COUNT]
        assert [future.get(WITHIN_S).offset for future in futures] == list(range(len(futures)))
    settings = {"group_id": "kafka-python", "auto_offset_reset": "earliest", "consumer_timeout_ms": WITHIN_S * 1000}
    with closing(KafkaConsumer("kafka-python", **settings, **secured.kafka_python)) as consumer:
        assert [next(consumer).value for _ in futures] == VALUES * COUNT


async def test_aiokafka(secured: Secured) -> None:
    async with AIOKafkaProducer(**secured.aiokafka, acks="all") as producer:
        for value in VALUES * COUNT:
            await producer.send_and_wait("aiokafka", value)
    settings = {"group_id": "aiokafka", "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer("aiokafka", **settings, **secured.aiokafka) as consumer:
        values = [(await asyncio.wait_for(consumer.getone(), WITHIN_S)).value for _ in VALUES * COUNT]
    assert values == VALUES * COUNT


def test_many_clients_at_once(secured: Secured) -> None:
    def produce(number: int) -> int:
        producer = confluent_kafka.Producer({**secured.librdkafka, "acks": "all"})
        for _ in range(20):
            producer.produce("many", b"%d" % number * 1000)
        return producer.flush(WITHIN_S)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(produce, range(8))) == [0] * 8
    consumer = confluent_kafka.Consumer(
        {**secured.librdkafka, "group.id": "many", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    with closing(consumer):
        consumer.subscribe(["many"])
        seen: list[bytes] = []
        while len(seen) < 160:
            messages = consumer.consume(160 - len(seen), timeout=WITHIN_S)
            assert messages
            seen += [message.value() for message in messages]
    assert sorted(seen) == sorted(b"%d" % number * 1000 for number in range(8) for _ in range(20))


def test_a_client_without_a_certificate_gets_nothing(secured: Secured) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = {"bootstrap.servers": secured.bootstrap, "security.protocol": "ssl"}
    client = confluent_kafka.Producer(
        {**settings, "ssl.ca.location": str(secured.authority), "error_cb": errors.append, "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=1)
