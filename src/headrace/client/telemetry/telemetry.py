"""Sends a client's telemetry requests, on the client's event loop.

Nothing happens until a broker says in ApiVersions that it supports GetTelemetrySubscriptions. Then a task asks for the
subscription, and pushes what it wants. The task uses a connection that the client has anyway, and stays with it as long
as it is open. A failure is a log line at the level DEBUG, and never an error of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from logging import getLogger
from math import inf
from types import ModuleType
from uuid import UUID

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import HeadraceError, KafkaTimeout, UnsupportedByBroker
from headrace.client.metrics.registry import MetricsRegistry
from headrace.client.telemetry.points import PointCollector
from headrace.client.telemetry.reporter import TelemetryReporter, TelemetryState
from headrace.client.telemetry.subscription import Subscription
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api
from headrace.protocol.compression import compress
from headrace.protocol.kio import ErrorCode
from headrace.protocol.records import Codec

logger = getLogger(__name__)

#: How long the last push may delay the closing of a client.
_LAST_PUSH_S = 1.0


class Telemetry:
    """The telemetry of one client."""

    def __init__(
        self,
        cluster: Cluster,
        registry: MetricsRegistry,
        labels: Callable[[], Mapping[str, str]] = dict,
        *,
        reporter: TelemetryReporter | None = None,
    ) -> None:
        """
        :param labels: returns the labels of the client itself, such as ``group_id``.
        """
        self._cluster = cluster
        self._registry = registry
        self._clock = registry.clock
        self._labels = labels
        self._reporter = reporter or TelemetryReporter()
        self._points = PointCollector(registry.started_wall_ms)
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._encoder: ModuleType | None = None
        self._has_id = asyncio.Event()
        self._is_on = cluster.config.enable_metrics_push
        if self._is_on:
            cluster.on_connect(self._connected)

    def _connected(self, connection: Connection) -> None:
        if self._task is None and Api.GET_TELEMETRY_SUBSCRIPTIONS in connection.versions:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="telemetry of a client")
            self._task.add_done_callback(_report_bug)

    async def client_instance_id(self, timeout_ms: float | None = None) -> UUID:
        """Returns the id that a broker has given to this client, for telemetry. The client is connected.

        :raises ValueError: if ``enable.metrics.push`` is off.
        :raises UnsupportedByBroker: if no broker that the client is connected to supports telemetry.
        :raises KafkaTimeout: if no broker gives the client an id in time.
        """
        if not self._is_on:
            raise ValueError("a client has an instance id only with the option enable_metrics_push=True")
        if self._task is None:
            raise UnsupportedByBroker(message="the broker does not support telemetry (GetTelemetrySubscriptions)")
        timeout_ms = self._cluster.config.api_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._has_id.wait()
        except TimeoutError:
            raise KafkaTimeout(f"no broker gave this client an instance id within {timeout_ms:.0f} ms") from None
        return self._reporter.client_instance_id

    async def close(self) -> None:
        """Pushes once more, if a broker wants metrics. Call it while the connections are still open."""
        if self._task is not None:
            await cancel_and_wait([self._task])
        connection = self._connection
        can_push = connection is not None and not connection.is_closed and not connection.is_throttled
        if can_push and self._reporter.begin_termination():
            assert connection is not None
            self._reporter.begin_request()
            try:
                async with asyncio.timeout(_LAST_PUSH_S):
                    if self._encoder is None:
                        self._encoder = await asyncio.to_thread(_import_encoder)
                    await self._push(connection, self._encoder, is_last=True)
            except (HeadraceError, TimeoutError, ImportError) as error:
                logger.debug("the last metrics were not pushed: %s", error)
            except RuntimeError as error:  # The program ends, so there are no threads any more.
                logger.debug("the last metrics were not pushed: %s", error)
        self._reporter.end()
        self._is_on = False

    # -- the task

    async def _run(self) -> None:
        reporter = self._reporter
        while (wait_ms := reporter.wait_ms(self._clock.monotonic_ms())) < inf:
            await asyncio.sleep(wait_ms / 1000)
            state = reporter.begin_request()
            try:
                connection = await self._connect()
                if state is TelemetryState.SUBSCRIPTION_IN_PROGRESS:
                    await self._subscribe(connection)
                else:
                    assert self._encoder is not None, "no push without an encoder"
                    code = await self._push(connection, self._encoder)
                    reporter.pushed(code, self._clock.monotonic_ms())
            except HeadraceError as error:
                logger.debug("a telemetry request failed: %s", error)
                self._connection = None
                is_unsupported = isinstance(error, UnsupportedByBroker)
                reporter.failed(self._clock.monotonic_ms(), is_unsupported=is_unsupported)

    async def _connect(self) -> Connection:
        connection = self._connection
        if connection is None or connection.is_closed or connection.is_throttled:
            connection = await self._cluster.connection()
            connection.version_of(Api.PUSH_TELEMETRY)
            self._connection = connection
        return connection

    async def _subscribe(self, connection: Connection) -> None:
        before = self._reporter.subscription
        answer = await connection.ask(
            Api.GET_TELEMETRY_SUBSCRIPTIONS, client_instance_id=self._reporter.client_instance_id
        )
        self._reporter.subscribed(answer, self._clock.monotonic_ms())
        subscription = self._reporter.subscription
        if subscription is None:
            return
        self._has_id.set()
        if before is not None and before.is_delta != subscription.is_delta:
            self._points.reset()
        if subscription.prefixes and self._encoder is None:
            await self._load_encoder()

    async def _load_encoder(self) -> None:
        try:
            self._encoder = await asyncio.to_thread(_import_encoder)
        except ImportError as error:
            self._reporter.disable(f"the package opentelemetry-proto is missing ({error})")

    async def _push(self, connection: Connection, encoder: ModuleType, *, is_last: bool = False) -> ErrorCode:
        subscription = self._reporter.subscription
        assert subscription is not None
        codec, data = self._encoded(subscription, encoder)
        answer = await connection.ask(
            Api.PUSH_TELEMETRY,
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=is_last,
            compression_type=codec.value,
            metrics=data,
        )
        if answer.error_code is not ErrorCode.none:
            self._points.refused()
        return ErrorCode(answer.error_code)

    def _encoded(self, subscription: Subscription, encoder: ModuleType) -> tuple[Codec, bytes]:
        wall_ms = self._clock.wall_ms()
        points = self._points.collect(self._registry.read(), subscription, wall_ms)
        data: bytes = encoder.encode(points, self._labels(), wall_ms, is_delta=subscription.is_delta)
        return subscription.codec, compress(subscription.codec, data)


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a bug in this client has stopped its telemetry: %r", error)


def _import_encoder() -> ModuleType:
    from headrace.client.telemetry import otlp

    return otlp
