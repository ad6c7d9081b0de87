"""Defines the loads of ``limits.py`` and what they measure: clients with a quota, and a client without a quota.

Both brokers measure a rate over eleven windows of a second. A client that begins as fast as it may uses ten seconds'
worth of its quota in the first second, waits until this second counts no more, and begins again: a burst about every
twelve seconds. How many bursts a span of 22 s has depends on the moment at which the span begins, so the rate over such
a span says little: Apache Kafka let a consumer with a quota of 2 MB/s have between 1.3 and 2.1 MB/s. So the clients
here begin at the rate of their quota, and try to have more only when all windows are used. From then on there are no
bursts.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import loads
from confluent_kafka import Consumer, Producer, TopicPartition
from loads import Latency
from servers import Server, java

VALUE_BYTES = 10_000
MB = 1_000_000
#: The time that all windows cover, with the current one.
SPAN_SECONDS = 11
#: A client does not try to exceed its quota for this time.
_PACED_SECONDS = 15
LIMITED = "limited"


def set_quotas(server: Server, entity: str, limits: Mapping[str, float]) -> None:
    """Sets quotas by Kafka's own tool.

    :param entity: options of the tool, such as ``--entity-type clients --entity-default``.
    """
    added = ",".join(f"{key}={limit:.0f}" for key, limit in limits.items())
    command = java(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", server.address, "--alter", "--add-config", added, *entity.split()),
        options=("-Xmx256m",),
    )
    subprocess.run(command, check=True, capture_output=True, timeout=120)


class _Counting:
    """A client on a thread that counts bytes until it is stopped."""

    def __init__(self, quota_bytes: int) -> None:
        """
        :param quota_bytes: the quota per second. The client does not have more until all windows are used.
        """
        self.size_bytes = 0
        self._quota_bytes = quota_bytes
        self._began = time.perf_counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Counting:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _run(self) -> None:
        raise NotImplementedError

    def _is_ahead(self, size_bytes: int) -> bool:
        """Whether so much is more than the quota since the client has begun."""
        elapsed = time.perf_counter() - self._began
        return elapsed < _PACED_SECONDS and size_bytes > self._quota_bytes * elapsed

    def rate(self, seconds: float) -> float:
        """The bytes per second during this time."""
        before, started = self.size_bytes, time.perf_counter()
        time.sleep(seconds)
        return (self.size_bytes - before) / (time.perf_counter() - started)


class LimitedProducer(_Counting):
    """Sends records of 10 kB as fast as it may, and counts what was acknowledged."""

    def __init__(self, server: Server, topic: str, quota_bytes: int, client_id: str = LIMITED) -> None:
        super().__init__(quota_bytes)
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap.servers": server.address,
            "client.id": client_id,
            "acks": "all",
            "batch.size": 200_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500,
        }

    def _run(self) -> None:
        producer, value, sent_bytes = Producer(self._settings), b"x" * VALUE_BYTES, 0

        def acked(error: object, _message: object) -> None:
            if error is None:
                self.size_bytes += VALUE_BYTES

        while not self._stopped.is_set():
            if self._is_ahead(sent_bytes):
                producer.poll(0.005)
                continue
            try:
                producer.produce(self._topic, value, on_delivery=acked)
                sent_bytes += VALUE_BYTES
            except BufferError:
                producer.poll(0.005)
            producer.poll(0)
        producer.purge()
        producer.flush(10)


class LimitedConsumer(_Counting):
    """Reads a topic as fast as it may, and again if it comes to its end.

    The larger a Fetch is, the more of the quota stays unused: a Fetch that is not allowed as a whole is answered with
    nothing. Here a Fetch is a tenth of the quota per second.
    """

    def __init__(self, server: Server, topic: str, quota_bytes: int, client_id: str = LIMITED) -> None:
        super().__init__(quota_bytes)
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap.servers": server.address,
            "client.id": client_id,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 200_000,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 500,
            "fetch.queue.backoff.ms": 5,
        }

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        start = [TopicPartition(self._topic, 0, 0)]
        consumer.assign(start)
        end = consumer.get_watermark_offsets(start[0], timeout=30)[1]
        while not self._stopped.is_set():
            if self._is_ahead(self.size_bytes):
                time.sleep(0.005)
                continue
            for message in consumer.consume(100, 0.05):
                if message.error() is None:
                    self.size_bytes += len(message.value() or b"")
                    if message.offset() == end - 1:
                        consumer.assign(start)
        consumer.close()


def fill(server: Server, topic: str, size_bytes: int) -> None:
    loads.create_topic(server, topic, 1)
    settings = {"bootstrap.servers": server.address, "client.id": "filler", "linger.ms": 5, "batch.size": 100_000}
    producer = Producer(settings)
    for _ in range(size_bytes // VALUE_BYTES):
        producer.produce(topic, b"x" * VALUE_BYTES)
        producer.poll(0)
    assert producer.flush(120) == 0


def held_rate(client: _Counting, seconds: float) -> float:
    """The bytes per second to which a client is held, after the first windows."""
    with client:
        time.sleep(_PACED_SECONDS)
        return client.rate(seconds)


@contextmanager
def limited_clients(
    server: Server, produced: str, consumed: str, quota_bytes: int
) -> Iterator[tuple[_Counting, _Counting]]:
    """A producer and a consumer with the same quota, after the first windows."""
    with (
        LimitedProducer(server, produced, quota_bytes) as producer,
        LimitedConsumer(server, consumed, quota_bytes) as consumer,
    ):
        time.sleep(_PACED_SECONDS)
        yield producer, consumer


def free_client(server: Server, topic: str, seconds: float) -> Latency:
    """One record acknowledged after the other, on a connection without a quota."""
    latencies: list[Latency] = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        latencies.append(loads.one_record_acked(server, topic, 500))
        time.sleep(0.1)
    latencies.sort(key=lambda latency: latency.p99_ms)
    return latencies[len(latencies) // 2]
