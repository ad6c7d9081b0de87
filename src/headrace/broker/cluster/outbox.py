"""Gathers items for other brokers: each broker gets one request at a time, with all items that have gathered for it.

The busier the cluster, the more items a request carries, and nothing waits for a timer. A broker that does not answer
delays only the items for that broker, until the cluster knows that the broker is gone (``Links.ask_while_alive``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from logging import getLogger
from typing import Generic, TypeVar

from headrace.event_loop import cancel_and_wait

logger = getLogger(__name__)

T = TypeVar("T")


class Outbox(Generic[T]):
    def __init__(self, send: Callable[[int, list[T]], Awaitable[None]]) -> None:
        """
        :param send: is called with a broker's id and all items that have gathered for it. It must complete each item,
            also if it fails.
        """
        self._send = send
        self._waiting: dict[int, list[T]] = defaultdict(list)
        self._senders: dict[int, asyncio.Task[None]] = {}

    def put(self, broker_id: int, item: T) -> None:
        self._waiting[broker_id].append(item)
        if broker_id not in self._senders:
            self._senders[broker_id] = asyncio.get_running_loop().create_task(self._send_all(broker_id))

    async def _send_all(self, broker_id: int) -> None:
        try:
            while items := self._waiting.pop(broker_id, None):
                try:
                    await self._send(broker_id, items)
                except Exception:
                    logger.exception("sending %d items to broker %d failed; they are dropped", len(items), broker_id)
        finally:
            del self._senders[broker_id]

    async def close(self) -> None:
        """Drops all items without completing them."""
        self._waiting.clear()
        await cancel_and_wait(list(self._senders.values()))
