"""Defines the loads of ``broker.py`` and what they measure."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from servers import NOTHING, Server, admin, java

PARTITIONS = 4
RECORD_BYTES = 100
HANDED_OVER = 1000
_MOST_QUEUED = 900_000


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


class Measured(Protocol):
    """A broker, or several."""

    @property
    def address(self) -> str: ...

    @property
    def cpu_seconds(self) -> float: ...


@dataclass
class Rate:
    per_second: float
    broker_cpu_seconds: float


@dataclass
class Latency:
    p50_ms: float
    p99_ms: float


def create_topic(server: Server, name: str, partitions: int = PARTITIONS) -> None:
    client = admin(server)
    for future in client.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(timeout=120)


def delete_topic(server: Server, name: str) -> None:
    client = admin(server)
    for future in client.delete_topics([name]).values():
        future.result(timeout=60)


def produce(server: Measured, topic: str, count: int) -> Rate:
    """librdkafka, acks=all, records of 100 bytes over the partitions in turn.

    The producer gets a thousand records per call, because one Python call per record is slower than either broker.
    """
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            **getattr(server, "client_settings", {}),
        }
    )
    batch = [{"value": b"x" * RECORD_BYTES} for _ in range(HANDED_OVER)]
    producer.list_topics(topic, timeout=30)
    cpu, started = server.cpu_seconds, time.perf_counter()
    for first in range(0, count, HANDED_OVER):
        while len(producer) > _MOST_QUEUED:
            producer.poll(0.001)
        messages = batch[: count - first]
        queued = producer.produce_batch(topic, messages, partition=first // HANDED_OVER % PARTITIONS)
        assert queued == len(messages), f"{queued} of {len(messages)} records were taken"
    left = producer.flush(120)
    assert left == 0, f"{left} records were not acknowledged"
    elapsed = time.perf_counter() - started
    return Rate(count / elapsed, server.cpu_seconds - cpu)


def consume(server: Server, topic: str, count: int, settings: Mapping[str, object] = NOTHING) -> Rate:
    """
    :param settings: further settings of the consumer.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 200_000,
            **settings,
            **server.client_settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    cpu, started, got = server.cpu_seconds, time.perf_counter(), 0
    while got < count:
        messages = consumer.consume(50_000, timeout=30)
        assert messages, f"only {got} of {count} records came"
        got += len(messages)
    elapsed = time.perf_counter() - started
    consumer.close()
    return Rate(got / elapsed, server.cpu_seconds - cpu)


def one_record_a_request(server: Server, topic: str, count: int) -> Rate:
    """Apache's own producer-perf-test with ``batch.size=1``: as many requests as records."""
    command = java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={server.address}", "batch.size=1", "acks=all", "linger.ms=0"),
        options=("-Xmx512m",),
    )
    cpu = server.cpu_seconds
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    rate = re.findall(r"records sent, ([0-9.]+) records/sec", output)[-1]
    return Rate(float(rate), (server.cpu_seconds - cpu) / count * 1e6)


def one_record_acked(server: HasPort, topic: str, count: int) -> Latency:
    """Measures the time from one Produce request to its answer, one after the other, on a bare socket."""
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        return acks_on(sock, topic, count)


def acks_on(sock: socket.socket, topic: str, count: int) -> Latency:
    """The same on a connection that is open, with TLS or without."""
    request = _produce_request(topic)
    times: list[float] = []
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(count):
        started = time.perf_counter()
        sock.sendall(request)
        (size,) = struct.unpack(">i", _exactly(sock, 4))
        _exactly(sock, size)
        times.append(time.perf_counter() - started)
    times.sort()
    return Latency(times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3)


def _produce_request(topic: str) -> bytes:
    """Produce v7, acks=all, one batch of one record of 100 bytes."""
    from headrace.protocol.batch_building import build_batch
    from headrace.protocol.record_body import Record

    batch = build_batch([Record(0, int(time.time() * 1000), None, b"x" * RECORD_BYTES, ())])
    name = topic.encode()
    body = struct.pack(">hhi", -1, -1, 30_000)  # no transactional id, acks, timeout
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    header = struct.pack(">hhih", 0, 7, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data
