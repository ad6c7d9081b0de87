"""What is to be told to other brokers, gathered while a request is under way: one request a broker at a time.

The busier the cluster, the more a request carries, and nothing waits for a timer. A broker that does not answer holds
up only what is for it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from logging import getLogger
from typing import Generic, TypeVar

logger = getLogger(__name__)

T = TypeVar("T")


class Outbox(Generic[T]):
    def __init__(self, send: Callable[[int, list[T]], Awaitable[None]]) -> None:
        """``send`` is given a broker and all that has gathered for it. Whatever happens, it sees to each item."""
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
                    logger.exception("what was for broker %d is lost", broker_id)
        finally:
            del self._senders[broker_id]

    async def close(self) -> None:
        """Nothing is sent any more, and nobody is told."""
        self._waiting.clear()
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
