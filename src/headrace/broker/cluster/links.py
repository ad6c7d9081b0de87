"""Keeps the connections to other brokers, for all that one broker asks another: fetches, markers, controlled shutdown.

There is one connection per broker and purpose. Purposes separate requests that must not wait for each other: a fetch
that its leader holds, and markers for the same broker. A connection is opened on first use, and again when it has ended
or the broker has moved to another address. After a failure an address is not tried for 50 ms, doubling up to a second.

No request is sent twice. When a connection breaks, the other broker may have done what was asked, and only the caller
knows whether asking again does harm. The controller's requests have their own queues (``controller_channel.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.client.errors import (
    AuthenticationFailed,
    BadResponse,
    BrokerUnreachable,
    KafkaTimeout,
    UnsupportedByBroker,
)
from headrace.client.pool import ConnectionPool
from headrace.client.retry import Deadline
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from headrace.client.types import Node
from headrace.protocol.api import Api
from headrace.runtime.clock import Clock

#: What :meth:`Links.ask` and a connection raise when there is no answer. The broker may be asked again later.
#: That holds for a failed login, too: the other broker may not have read this broker's user yet.
NoAnswer = (BrokerUnreachable, KafkaTimeout, BadResponse, UnsupportedByBroker, AuthenticationFailed)

Address = tuple[str, int]

#: How often :meth:`Links.ask_while_alive` checks whether the broker is still alive.
_CHECK_ALIVE_EVERY_S = 0.2


class Links:
    def __init__(
        self,
        address_of: Callable[[int], Address | None],
        clock: Clock,
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        """
        :param address_of: where a live broker listens for other brokers; None if no such broker is alive.
        :param security: of the connections (``link_security.py``).
        """
        self._address_of = address_of
        self._clock = clock
        self._connect_timeout_ms = connect_timeout_ms
        config = ClientConfig(
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            socket_connection_setup_timeout_ms=connect_timeout_ms,
        )
        self._pool = ConnectionPool(config, clock, _pause, security)

    async def ask(
        self, broker_id: int, api: Api, body: Mapping[str, object], *, timeout_ms: int, purpose: str = "ask"
    ) -> Any:
        """The answer, in the highest version that both brokers speak. The timeout includes connecting.

        :raises BrokerUnreachable: if there is no such broker or no connection to it, or the connection ends first.
        :raises KafkaTimeout: if the broker does not answer in time.
        :raises ClientClosed: after :meth:`close`.
        """
        deadline = Deadline(self._clock, timeout_ms)
        connection = await self._connect(broker_id, purpose, deadline)
        left_ms = max(1, deadline.left_ms())
        return await connection.send(api, connection.version_of(api), body, timeout_ms=left_ms)

    async def ask_while_alive(
        self, broker_id: int, api: Api, body: Mapping[str, object], *, timeout_ms: int, purpose: str
    ) -> Any:
        """As :meth:`ask`, but gives up when the cluster knows that the broker is gone: another broker leads its
        partitions by then, or soon. Otherwise a broker that hangs would delay the caller for the whole timeout.

        :raises BrokerUnreachable: if the broker cannot be reached, or is gone.
        :raises KafkaTimeout: if the broker does not answer in time.
        """
        asking = asyncio.ensure_future(self.ask(broker_id, api, body, timeout_ms=timeout_ms, purpose=purpose))
        try:
            while not (await asyncio.wait([asking], timeout=_CHECK_ALIVE_EVERY_S))[0]:
                if self._address_of(broker_id) is None:
                    raise BrokerUnreachable(f"broker {broker_id} is no longer registered")
            return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                await self.drop(broker_id, purpose)  # otherwise the next request would wait behind this one

    async def connect(self, broker_id: int, purpose: str, *, timeout_ms: int | None = None) -> Connection:
        """The open connection for a purpose. The caller must not close it: see :meth:`drop`.

        :raises BrokerUnreachable: if there is no such broker, or no connection to it.
        """
        wait_ms = self._connect_timeout_ms if timeout_ms is None else timeout_ms
        return await self._connect(broker_id, purpose, Deadline(self._clock, wait_ms))

    async def _connect(self, broker_id: int, purpose: str, deadline: Deadline) -> Connection:
        address = self._address_of(broker_id)
        if address is None:
            raise BrokerUnreachable(f"the address of broker {broker_id} is not known")
        return await self._pool.connect(Node(broker_id, *address), purpose, deadline)

    async def drop(self, broker_id: int, purpose: str) -> None:
        """Closes the connection for a purpose, if there is one."""
        await self._pool.drop(broker_id, purpose)

    async def close(self) -> None:
        """Closes all connections. Requests that wait for an answer raise BrokerUnreachable."""
        await self._pool.close()


async def _pause(wait_ms: float, deadline: Deadline) -> None:
    if wait_ms > 0:
        await asyncio.sleep(min(wait_ms, deadline.left_ms()) / 1000)
