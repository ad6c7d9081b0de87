"""Holds the open connections of a client: one per broker and purpose.

Requests with different purposes have different connections, so that they do not wait for each other. For example, a
heartbeat must not wait behind a Fetch that the broker holds. After a failure, an address is not tried again for
``reconnect.backoff.ms``, which doubles with each failure up to ``reconnect.backoff.max.ms``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.client.errors import AuthenticationFailed, BrokerUnreachable, ClientClosed
from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.retry import Backoff, Deadline
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from headrace.client.security.setup import security_of
from headrace.client.types import Node
from headrace.runtime.clock import Clock


class ConnectionPool:
    """The connections of one client."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        pause: Callable[[float, Deadline], Awaitable[None]],
        security: ConnectionSecurity | None = None,
        metrics: ConnectionMetrics | None = None,
    ) -> None:
        """
        :param pause: waits for a number of milliseconds, but at most until the deadline.
        :param security: of all connections; without it, what the options say.
        :param metrics: counts what the connections do.
        :raises ConfigError: if the options for security name a store that cannot be read.
        """
        self._config = config
        self._security = security_of(config) if security is None else security
        self._clock = clock
        self._pause = pause
        self._metrics = metrics
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._connections: dict[tuple[int, str], Connection] = {}
        self._locks: dict[tuple[int, str], asyncio.Lock] = {}
        #: For each address that failed: the number of failures in a row, and the time of the next attempt.
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        self.is_closed = False
        #: Called with each connection that is opened.
        self.on_open: Callable[[Connection], object] | None = None

    async def close(self) -> None:
        self.is_closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def drop(self, node_id: int, purpose: str) -> None:
        connection = self._connections.pop((node_id, purpose), None)
        if connection is not None:
            await connection.close()

    def raise_if_closed(self) -> None:
        if self.is_closed:
            raise ClientClosed("the client is closed")

    def least_loaded(self, nodes: Sequence[Node]) -> Node:
        """Chooses the connected broker with the fewest unanswered requests, if possible one that does not throttle.

        If no broker is connected, the first one that has not failed. If all have failed, the one that may be tried
        again first.
        """
        loads = [
            (connection.is_throttled, connection.in_flight, at)
            for at, node in enumerate(nodes)
            if (connection := self._open_to(node, "")) is not None
        ]
        if loads:
            return nodes[min(loads)[-1]]
        return min(nodes, key=lambda node: self._failures.get((node.host, node.port), (0, 0.0))[1])

    async def connect(self, node: Node, purpose: str, deadline: Deadline) -> Connection:
        """Returns an open connection to a broker. If there is none, tries once to connect, after the backoff.

        :raises BrokerUnreachable: if the attempt fails.
        :raises AuthenticationFailed: if the TLS handshake or the login fails.
        """
        key = (node.id, purpose)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self.raise_if_closed()
            connection = self._open_to(node, purpose)
            if connection is not None:
                return connection
            stale = self._connections.pop(key, None)
            if stale is not None:
                await stale.close()
            connection = await self._open(node, deadline)
            if self.is_closed:
                await connection.close()
                self.raise_if_closed()
            self._connections[key] = connection
            return connection

    def _open_to(self, node: Node, purpose: str) -> Connection | None:
        """Returns the open connection, if there is one, and if the broker still has the same address."""
        connection = self._connections.get((node.id, purpose))
        if connection is None or connection.is_closed or (connection.host, connection.port) != (node.host, node.port):
            return None
        return connection

    async def _open(self, node: Node, deadline: Deadline) -> Connection:
        address = (node.host, node.port)
        failures, not_before_ms = self._failures.get(address, (0, 0.0))
        await self._pause(not_before_ms - self._clock.monotonic_ms(), deadline)
        try:
            connection = await Connection.open(
                node.host,
                node.port,
                client_id=self._config.client_id,
                timeout_ms=self._config.request_timeout_ms,
                connect_timeout_ms=min(self._config.socket_connection_setup_timeout_ms, max(1, deadline.left_ms())),
                security=self._security,
                metrics=None if self._metrics is None else self._metrics.of_node(node.id),
            )
        except (BrokerUnreachable, AuthenticationFailed) as error:
            if self._metrics is not None and isinstance(error, AuthenticationFailed):
                self._metrics.rejected.record(1, self._clock.monotonic_ms())
            pause_ms = self._backoff.delay_ms(failures + 1)
            self._failures[address] = (failures + 1, self._clock.monotonic_ms() + pause_ms)
            raise
        self._failures.pop(address, None)
        if self._metrics is not None and self._security != PLAINTEXT:
            self._metrics.logged_in.record(1, self._clock.monotonic_ms())
        if self.on_open is not None:
            self.on_open(connection)
        return connection
