"""Answers the telemetry requests of clients (KIP-714), by Kafka's rules.

A client asks for its subscription (GetTelemetrySubscriptions), and then pushes its metrics at the interval of the
subscription (PushTelemetry). This module decides and counts. It does no I/O: the handlers decode the metrics on a
thread (``otlp.py``), and the metrics endpoint reads the stored series (``series.py``).

What a client can make a broker store is bounded: the number of instances (``instances.py``), of series
(``headrace.telemetry.max.series``), and the sizes of a push before and after decompression.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headrace.broker.telemetry.instances import MAX_TEXT, ClientInstance, ClientInstances, TelemetryClient
from headrace.coordination.znodes import encode_uuid, random_uuid
from headrace.protocol.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from headrace.protocol.records import Codec

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.telemetry.points import Point
    from headrace.broker.telemetry.series import SeriesStore
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.runtime.clock import Clock
    from headrace.runtime.timer import Timer

#: Java's Uuid.RESERVED: no instance has these ids. kio reads the id 0 as None.
_RESERVED_IDS = frozenset({None, UUID(int=0), UUID(int=1)})
#: After these errors a client asks for its subscription at once.
_ASKS_AT_ONCE_AFTER = frozenset({ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type})
_SWEEP_EVERY_MS = 30_000


class TelemetryCounts:
    """Counters for the requests of all clients since the broker started."""

    def __init__(self) -> None:
        self.pushes = 0
        self.throttled = 0
        self.unknown_subscriptions = 0
        #: Pushes whose metrics could not be decoded, or were too large.
        self.failed_pushes = 0


class Telemetry:
    def __init__(self, config: BrokerConfig, clock: Clock, timer: Timer, subscriptions: Subscriptions) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._is_sweep_scheduled = False
        self._subscriptions = subscriptions
        self.instances = ClientInstances(subscriptions)
        self.counts = TelemetryCounts()

    @cached_property
    def series(self) -> SeriesStore:
        """The metrics that clients have pushed. Most brokers have none, and do not load the module."""
        from headrace.broker.telemetry.series import SeriesStore

        return SeriesStore(lambda: self._config.int("headrace.telemetry.max.series"))

    @property
    def is_offered(self) -> bool:
        """Whether the broker tells clients that it takes their metrics.

        With a metrics endpoint, a subscription that is made later reaches the clients that are connected already.
        """
        return bool(self._config.str("headrace.metrics.listener")) or any(self._subscriptions)

    @property
    def max_bytes(self) -> int:
        return self._config.int("telemetry.max.bytes")

    def subscribe(self, instance_id: UUID | None, client_id: str | None, client: TelemetryClient) -> ClientInstance:
        """Returns the instance of a client that asks for its subscription. A client without an id gets one.

        :raises ThrottlingQuotaExceeded: if the client asks before its push interval is over.
        """
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(instance_id or self._new_id(), client_id, client, now_ms)
        if not instance.may_get(now_ms, asks_at_once=instance.last_error in _ASKS_AT_ONCE_AFTER):
            self.counts.throttled += 1
            raise ThrottlingQuotaExceeded("the client asks for its subscription before its push interval is over")
        instance.last_error = ErrorCode.none
        return instance

    def check_push(
        self,
        instance_id: UUID | None,
        client_id: str | None,
        client: TelemetryClient,
        push: PushedMetrics,
    ) -> ClientInstance:
        """Returns the instance of a client that may push these metrics.

        :raises KafkaError: if the client may not.
        """
        if instance_id in _RESERVED_IDS:
            raise InvalidRequest("the client instance id is missing or reserved")
        assert instance_id is not None
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(instance_id, client_id, client, now_ms)
        try:
            self._check(instance, push, now_ms)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = push.terminating
        return instance

    def _check(self, instance: ClientInstance, push: PushedMetrics, now_ms: int) -> None:
        if instance.is_terminating:
            raise InvalidRequest("the client has pushed for the last time before")
        if not instance.may_push(now_ms) and not push.terminating:
            self.counts.throttled += 1
            raise ThrottlingQuotaExceeded("the client pushes before its push interval is over")
        if push.subscription_id != instance.subscription_id:
            self.counts.unknown_subscriptions += 1
            raise UnknownSubscriptionId(
                f"subscription id {push.subscription_id} is outdated; send GetTelemetrySubscriptions again"
            )
        if push.compression_type not in set(Codec):
            raise UnsupportedCompressionType(f"there is no compression type {push.compression_type}")
        if len(push.metrics) > self.max_bytes:
            raise TelemetryTooLarge(f"{len(push.metrics)} bytes are more than telemetry.max.bytes ({self.max_bytes})")

    def accept(self, instance: ClientInstance, points: list[Point]) -> None:
        """Stores the metrics of a push."""
        self.counts.pushes += 1
        instance.last_error = ErrorCode.none
        if instance.instance_id in self.instances:  # otherwise it was removed while its metrics were decoded
            self.series.update(instance, points)

    def reject(self, instance: ClientInstance, error: KafkaError) -> KafkaError:
        """Notes that the metrics of a push cannot be used, and returns the error for the client."""
        self.counts.failed_pushes += 1
        answer = error if isinstance(error, TelemetryTooLarge) else InvalidRecord(str(error))
        instance.last_error = answer.code
        return answer

    def _schedule_sweep(self) -> None:
        """Looks for silent clients from time to time, while there are clients."""
        if len(self.instances) and not self._is_sweep_scheduled:
            self._is_sweep_scheduled = True
            self._timer.schedule(_SWEEP_EVERY_MS, self._sweep)

    def _sweep(self) -> None:
        """Removes the clients that have been silent for too long, with their metrics."""
        self._is_sweep_scheduled = False
        for instance in self.instances.expire(self._clock.monotonic_ms()):
            self.series.forget(instance.instance_id)
        self._schedule_sweep()

    def _instance(
        self, instance_id: UUID, client_id: str | None, client: TelemetryClient, now_ms: int
    ) -> ClientInstance:
        attributes = _attributes(instance_id, client_id, client)
        instance, removed = self.instances.of(instance_id, attributes, client, now_ms)
        if removed is not None:
            self.series.forget(removed.instance_id)
        self._schedule_sweep()
        return instance

    def _new_id(self) -> UUID:
        while (instance_id := random_uuid()) in self.instances:
            pass
        return instance_id


class PushedMetrics(NamedTuple):
    """The content of a PushTelemetry request."""

    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes


def _attributes(instance_id: UUID, client_id: str | None, client: TelemetryClient) -> Mapping[str, str | None]:
    software_name, software_version = client.client_software
    return {
        "client_instance_id": encode_uuid(instance_id),
        "client_id": None if client_id is None else client_id[:MAX_TEXT],
        "client_software_name": software_name[:MAX_TEXT],
        "client_software_version": software_version[:MAX_TEXT],
        "client_source_address": client.host,
        "client_source_port": client.peer.rpartition(":")[2],
    }
