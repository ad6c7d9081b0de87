"""Connections to the other brokers, for whatever one broker asks another: fetchers, markers, controlled shutdown.

One connection a broker and purpose. A purpose keeps apart what must not wait for each other: a fetch that is held at
its leader, and markers that go to the same broker. A connection is opened when it is first wanted, and again when it
has ended or the broker has moved to another address; an address that failed is left alone for 50 ms, doubling up to a
second.

Nothing is sent twice: what was sent when a connection broke may have been done, and only who asked knows whether asking
again does harm. The controller's requests have queues of their own (``channel.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.client.errors import BadResponse, BrokerUnreachable, KafkaTimeout, UnsupportedByBroker
from headrace.client.pool import ConnectionPool
from headrace.client.retry import Deadline
from headrace.client.types import Node
from headrace.protocol.api import Api
from headrace.runtime.clock import Clock

#: What :meth:`Links.ask` and a connection raise when there is no answer to be had: the broker may be asked again later.
NoAnswer = (BrokerUnreachable, KafkaTimeout, BadResponse, UnsupportedByBroker)

Address = tuple[str, int]


class Links:
    def __init__(
        self,
        address_of: Callable[[int], Address | None],
        clock: Clock,
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        """
        :param address_of: where a broker listens for other brokers; None if it is not known.
        """
        self._address_of = address_of
        self._clock = clock
        self._connect_timeout_ms = connect_timeout_ms
        config = ClientConfig(
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            socket_connection_setup_timeout_ms=connect_timeout_ms,
        )
        self._pool = ConnectionPool(config, clock, _pause)

    async def ask(
        self, broker_id: int, api: Api, body: Mapping[str, object], *, timeout_ms: int, purpose: str = "ask"
    ) -> Any:
        """The answer, in the highest version that both speak. Connecting counts in its time.

        :raises BrokerUnreachable: if there is no such broker or no way to it, or the connection ends first.
        :raises KafkaTimeout: if it does not answer in time.
        :raises ClientClosed: after :meth:`close`.
        """
        deadline = Deadline(self._clock, timeout_ms)
        connection = await self._connect(broker_id, purpose, deadline)
        left_ms = max(1, deadline.left_ms())
        return await connection.send(api, connection.version_of(api), body, timeout_ms=left_ms)

    async def connect(self, broker_id: int, purpose: str, *, timeout_ms: int | None = None) -> Connection:
        """The open connection of that purpose. It is not to be closed by whoever uses it: see :meth:`drop`.

        :raises BrokerUnreachable: if there is no such broker, or no way to it.
        """
        wait_ms = self._connect_timeout_ms if timeout_ms is None else timeout_ms
        return await self._connect(broker_id, purpose, Deadline(self._clock, wait_ms))

    async def _connect(self, broker_id: int, purpose: str, deadline: Deadline) -> Connection:
        address = self._address_of(broker_id)
        if address is None:
            raise BrokerUnreachable(f"the address of broker {broker_id} is not known")
        return await self._pool.connect(Node(broker_id, *address), purpose, deadline)

    async def drop(self, broker_id: int, purpose: str) -> None:
        """Ends a connection that is no longer wanted, if there is one."""
        await self._pool.drop(broker_id, purpose)

    async def close(self) -> None:
        """Ends them all; whoever waits for an answer gets BrokerUnreachable."""
        await self._pool.close()


async def _pause(wait_ms: float, deadline: Deadline) -> None:
    if wait_ms > 0:
        await asyncio.sleep(min(wait_ms, deadline.left_ms()) / 1000)
