"""Counts what a producer does: per request, per batch, and per call of a slow method. Never per record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.metrics.method_times import MethodTimes
from headrace.client.metrics.registry import MetricsRegistry, Source
from headrace.client.metrics.sensor import Sensor
from headrace.client.metrics.table import PRODUCER, PRODUCER_TOPIC
from headrace.client.producer.batch import ProducerBatch

if TYPE_CHECKING:
    from headrace.client.metadata import Metadata
    from headrace.client.producer.buffer_pool import BufferPool
    from headrace.client.producer.in_flight_requests import InFlightRequests

#: The methods whose calls are measured.
_TIMED = (
    "memory_wait", "metadata_wait", "flush", "txn_init", "txn_begin", "txn_offsets", "txn_commit", "txn_abort",
)  # fmt: skip


class _TopicMetrics:
    """The sensors of one topic."""

    __slots__ = ("bytes", "compression", "errors", "records", "retries")

    def __init__(self, new: Callable[[], Sensor]) -> None:
        self.records, self.bytes, self.compression, self.retries, self.errors = (new() for _ in range(5))


class ProducerMetrics:
    """The sensors of one producer."""

    def __init__(self, registry: MetricsRegistry, connections: ConnectionMetrics | None = None) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._topics: dict[str, _TopicMetrics] = {}
        self._queue_time, self._request_records, self._splits = (registry.sensor() for _ in range(3))
        self.exhausted = registry.sensor()
        self.method_times = MethodTimes(registry, _TIMED)
        self._connections = connections or ConnectionMetrics(registry)

    def publish(self, metadata: Metadata, pool: BufferPool, in_flight: Mapping[int, InFlightRequests]) -> None:
        """Adds the metrics to the registry.

        :param in_flight: the Produce requests without a response, by broker.
        """
        sources: dict[str, Source] = {
            **self.method_times.sensors,
            **{name: self._of_all_topics(name) for name in _TopicMetrics.__slots__},
            "throttle": self._connections.throttle,
            "latency": self._connections.latencies,
            "request_records": self._request_records,
            "queue_time": self._queue_time,
            "splits": self._splits,
            "exhausted": self.exhausted,
            "in_flight": lambda: sum(one.count for one in list(in_flight.values())),
            "metadata_age": lambda: metadata.age_ms(self._clock.monotonic_ms()) / 1000,
            "buffer_total": lambda: pool.total_bytes,
            "buffer_available": lambda: pool.available_bytes,
            "waiting": lambda: pool.waiting,
        }
        self._registry.add("metrics", PRODUCER, sources)

    def _of_all_topics(self, name: str) -> Callable[[], Iterable[Sensor]]:
        return lambda: [getattr(topic, name) for topic in list(self._topics.values())]

    def _topic(self, name: str) -> _TopicMetrics:
        topic = self._topics.get(name)
        if topic is None:
            topic = _TopicMetrics(self._registry.sensor)
            sources = {sensor: getattr(topic, sensor) for sensor in _TopicMetrics.__slots__}
            self._registry.add("topic-metrics", PRODUCER_TOPIC, sources, topic=name)
            self._topics[name] = topic
        return topic

    def request_sent(self, batches: list[ProducerBatch]) -> None:
        now_ms = self._clock.monotonic_ms()
        records = 0
        for batch in batches:
            topic = self._topics.get(batch.topic) or self._topic(batch.topic)
            count, size_bytes = batch.record_count, batch.size_bytes
            records += count
            topic.records.record(count, now_ms)
            topic.bytes.record(size_bytes, now_ms)
            self._queue_time.record(now_ms - batch.created_ms, now_ms)
            if batch.compressed is not None and batch.records:
                topic.compression.record(len(batch.compressed) / len(batch.records), now_ms)
        self._request_records.record(records, now_ms)

    def sent_again(self, batch: ProducerBatch) -> None:
        self._topic(batch.topic).retries.record(batch.record_count, self._clock.monotonic_ms())

    def failed(self, batch: ProducerBatch) -> None:
        self._topic(batch.topic).errors.record(batch.record_count, self._clock.monotonic_ms())

    def split(self) -> None:
        self._splits.record(1, self._clock.monotonic_ms())
