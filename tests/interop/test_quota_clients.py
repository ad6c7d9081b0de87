"""Clients of other projects under quotas: the rate is held, the client knows of it, and nobody else notices.

The windows are shorter than by default (three of one second), so that two seconds' worth are free at the begin instead
of ten. The machine may be busy with other things. So each client sends or reads a certain amount, and the tests demand
that it takes as long as the limit says, or longer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import confluent_kafka
import pytest
import trustme
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from headrace import Broker
from headrace.protocol.api import Api
from headrace.testing import RawClient

MB = 1_000_000
VALUE = b"v" * 10_000
FREE_S = 2
#: A busy machine may need long.
PATIENCE_S = 90
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="secret";'
LISTENERS = ("PLAINTEXT", "SSL", "SASL_SSL")

Entity = dict[str, str | None]


@dataclass
class Limited:
    broker: Broker
    authority: Path
    number: int = 0
    changed: list[Entity] = field(default_factory=list)

    def bootstrap(self, listener: str) -> str:
        host, port = self.broker.core.endpoints[listener]
        return f"{host}:{port}"

    def librdkafka(self, listener: str, client_id: str, user: str = "alice") -> dict[str, object]:
        settings = {
            "bootstrap.servers": self.bootstrap(listener),
            "security.protocol": listener.lower(),
            "client.id": client_id,
        }
        if "SSL" in listener:
            settings["ssl.ca.location"] = str(self.authority)
        if "SASL" in listener:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": "secret"}
        return dict(settings)

    def kafka_python(self, client_id: str) -> dict[str, object]:
        return {"bootstrap_servers": self.bootstrap("PLAINTEXT"), "client_id": client_id}

    def set_quota(self, entity: Entity, **limits: float | None) -> None:
        """Sets quotas as an operator does; None removes one."""
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": limit or 0.0, "remove": limit is None} for key, limit in limits.items()],
        }
        with RawClient(self.bootstrap("PLAINTEXT"), client_id="operator") as client:
            (answer,) = client.ask(Api.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False).entries
        assert answer.error_code == 0, answer
        self.changed.append(entity)

    def new_topic(self) -> str:
        self.number += 1
        return f"limited-{self.number}"

    def filled_topic(self, size_bytes: int) -> str:
        topic = self.new_topic()
        producer = confluent_kafka.Producer(self.librdkafka("PLAINTEXT", "filler") | {"batch.size": 50_000})
        for _ in range(size_bytes // len(VALUE)):
            producer.produce(topic, VALUE)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        return topic


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "num.partitions": 1,
        "quota.window.num": FREE_S + 1,
    }
    with Broker(config=config) as broker:
        yield Limited(broker, folder / "authority.pem")


@pytest.fixture
def limited(shared: Limited) -> Iterator[Limited]:
    yield shared
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    for entity in list(shared.changed):
        shared.set_quota(entity, **dict.fromkeys(keys))
    shared.changed.clear()


class Sending:
    """A producer that sends as fast as it may, and counts what was acknowledged."""

    def __init__(self, settings: dict[str, object], topic: str) -> None:
        self.acked_bytes = 0
        #: The longest throttle time that librdkafka reports, in milliseconds.
        self.throttled_ms = 0
        self._topic = topic
        self._is_closing = False
        more: dict[str, Any] = {
            "statistics.interval.ms": 200,
            "stats_cb": self._stats,
            "batch.size": 50_000,
            "queue.buffering.max.messages": 100,
            "linger.ms": 1,
        }
        self._producer = confluent_kafka.Producer({**settings, **more})

    def _stats(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            self.throttled_ms = max(self.throttled_ms, broker["throttle"]["max"])

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None or self._is_closing
        self.acked_bytes += len(VALUE)

    def send(self, size_bytes: int) -> float:
        """Sends until so much more is acknowledged. Returns the seconds that it took."""
        enough, started = self.acked_bytes + size_bytes, monotonic()
        while self.acked_bytes < enough:
            try:
                self._producer.produce(self._topic, VALUE, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)
            assert monotonic() - started < PATIENCE_S
        return monotonic() - started

    def send_until(self, is_throttled: bool) -> None:
        """Sends until librdkafka has reported throttle times, or has reported none for a while."""
        started = monotonic()
        self.throttled_ms = 0
        while bool(self.throttled_ms) is not is_throttled or monotonic() - started < 0.5:
            if not is_throttled:
                self.throttled_ms = 0
            self.send(20_000)
            self._producer.poll(0.3)
            assert monotonic() - started < PATIENCE_S

    def close(self) -> None:
        self._is_closing = True
        self._producer.purge()
        self._producer.flush(PATIENCE_S)
        self._producer.close()


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_producer_is_held_to_its_rate(limited: Limited, listener: str) -> None:
    limited.set_quota({"client-id": "slow"}, producer_byte_rate=MB)
    with (
        closing(Sending(limited.librdkafka(listener, "slow"), limited.new_topic())) as slow,
        closing(Sending(limited.librdkafka(listener, "fast"), limited.new_topic())) as fast,
        ThreadPoolExecutor(2) as pool,
    ):
        slow_s, fast_s = pool.map(lambda each: each.send(6 * MB), (slow, fast))
        assert slow_s > (6 - FREE_S) * 0.9
        assert fast.throttled_ms == 0
        if fast_s < 3:  # else the machine is too busy for this rate
            assert slow.throttled_ms > 0
            assert slow_s < 2 * 6


@pytest.mark.parametrize(
    "entity",
    [{"user": "alice"}, {"user": None}, {"client-id": None}, {"user": "alice", "client-id": "tool"},
     {"user": None, "client-id": "tool"}],
    ids=str,
)  # fmt: skip
def test_quotas_of_users_and_client_ids(limited: Limited, entity: Entity) -> None:
    limited.set_quota(entity, producer_byte_rate=100_000)
    with closing(Sending(limited.librdkafka("SASL_SSL", "tool"), limited.new_topic())) as sending:
        assert sending.send(400_000) > (4 - FREE_S) * 0.9


def test_the_quota_of_another_user_does_not_count(limited: Limited) -> None:
    limited.set_quota({"user": "alice"}, producer_byte_rate=1_000)
    limited.set_quota({"user": "bob", "client-id": "other"}, producer_byte_rate=1_000)
    with closing(Sending(limited.librdkafka("SASL_SSL", "tool", user="bob"), limited.new_topic())) as sending:
        sending.send(200_000)
        assert sending.throttled_ms == 0


def test_a_quota_changes_and_ends_while_a_producer_runs(limited: Limited) -> None:
    with closing(Sending(limited.librdkafka("PLAINTEXT", "changing"), limited.new_topic())) as sending:
        sending.send(MB)
        assert sending.throttled_ms == 0
        limited.set_quota({"client-id": "changing"}, producer_byte_rate=20_000)
        sending.send_until(is_throttled=True)
        limited.set_quota({"client-id": "changing"}, producer_byte_rate=None)
        sending.send_until(is_throttled=False)
        sending.throttled_ms = 0
        sending.send(MB)
        assert sending.throttled_ms == 0


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_consumer_is_held_to_its_rate(limited: Limited, listener: str) -> None:
    size_bytes = 5 * MB
    topic = limited.filled_topic(size_bytes)
    limited.set_quota({"client-id": "slow"}, consumer_byte_rate=MB)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(consume, limited.librdkafka(listener, "slow"), topic, size_bytes)
        fast = pool.submit(consume, limited.librdkafka(listener, "fast"), topic, size_bytes)
        (slow_s, slow_throttled_ms), (fast_s, fast_throttled_ms) = slow.result(), fast.result()
    assert slow_s > (size_bytes / MB - FREE_S) * 0.8
    assert fast_throttled_ms == 0
    if fast_s < 2:  # else the machine is too busy for this rate
        assert slow_throttled_ms > 0


def consume(settings: dict[str, object], topic: str, size_bytes: int) -> tuple[float, int]:
    """Reads so much. Returns the seconds that it took, and the longest throttle time in milliseconds."""
    throttled_ms = 0

    def stats(text: str) -> None:
        nonlocal throttled_ms
        for broker in json.loads(text)["brokers"].values():
            throttled_ms = max(throttled_ms, broker["throttle"]["max"])

    more: dict[str, Any] = {"group.id": "unused", "enable.auto.commit": False, "fetch.message.max.bytes": 200_000,
                            "statistics.interval.ms": 100, "stats_cb": stats}  # fmt: skip
    consumer = confluent_kafka.Consumer({**settings, **more})
    try:
        started = monotonic()
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        left = size_bytes // len(VALUE)
        while left:
            for message in consumer.consume(left, 0.5):
                assert message.error() is None
                left -= 1
            assert monotonic() - started < PATIENCE_S
        return monotonic() - started, throttled_ms
    finally:
        consumer.close()


def test_kafka_python(limited: Limited, caplog: pytest.LogCaptureFixture) -> None:
    limited.set_quota({"client-id": "python"}, producer_byte_rate=MB, consumer_byte_rate=MB)
    topic, count = limited.new_topic(), 500
    started = monotonic()
    with closing(KafkaProducer(**limited.kafka_python("python"), batch_size=50_000)) as producer:
        for _ in range(count):
            producer.send(topic, VALUE)
        producer.flush(PATIENCE_S)
    assert monotonic() - started > (count * len(VALUE) / MB - FREE_S) * 0.8
    assert any("ProduceResponse throttled by broker" in line for line in caplog.messages)
    started = monotonic()
    fetching = {"group_id": None, "auto_offset_reset": "earliest", "max_partition_fetch_bytes": 200_000}
    with closing(KafkaConsumer(**limited.kafka_python("python"), **fetching)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        got = 0
        while got < count:
            got += sum(len(records) for records in consumer.poll(1_000).values())
            assert monotonic() - started < PATIENCE_S
    assert monotonic() - started > (count * len(VALUE) / MB - FREE_S) * 0.8
    assert any("FetchResponse throttled by broker" in line for line in caplog.messages)


def test_the_time_of_requests(limited: Limited) -> None:
    """A client that asks without a pause is throttled; another client is not."""
    limited.set_quota({"client-id": "busy"}, request_percentage=0.01)

    def throttle_times(client_id: str) -> list[timedelta]:
        fields = {"client_software_name": "test", "client_software_version": "1"}
        with RawClient(limited.bootstrap("PLAINTEXT"), client_id=client_id) as client:
            return [client.ask(Api.API_VERSIONS, 3, **fields).throttle_time for _ in range(20)]

    with ThreadPoolExecutor(2) as pool:
        busy, other = pool.map(throttle_times, ("busy", "other"))
    assert max(busy) > timedelta(0)
    assert max(other) == timedelta(0)
