"""What is to be told to other brokers, gathered while a request is under way: one request a broker at a time.

The busier the cluster, the more a request carries, and nothing waits for a timer. A broker that does not answer holds
up only what is for it, and that no longer than until it is known to be gone (:func:`ask_while_it_lives`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.client.errors import BrokerUnreachable
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

T = TypeVar("T")


#: How often it is looked whether the broker that is asked is still there.
_LOOK_EVERY_S = 0.2


async def ask_while_it_lives(
    broker: Broker, broker_id: int, api: Api, body: Mapping[str, object], *, timeout_ms: int, purpose: str
) -> Any:
    """``Links.ask``, given up when the cluster knows the broker to be gone: what is led by it is by then, or soon, led
    by another. One that hangs would else hold us up for the whole timeout.

    :raises BrokerUnreachable: if it is, or has become, not to be reached.
    :raises KafkaTimeout: if it does not answer in time.
    """
    assert broker.cluster is not None
    links = broker.cluster.links
    asking = asyncio.ensure_future(links.ask(broker_id, api, body, timeout_ms=timeout_ms, purpose=purpose))
    try:
        while not (await asyncio.wait([asking], timeout=_LOOK_EVERY_S))[0]:
            if broker_id not in broker.metadata.nodes:
                raise BrokerUnreachable(f"broker {broker_id} is gone")
        return asking.result()
    finally:
        if not asking.done():
            asking.cancel()
            await links.drop(broker_id, purpose)  # else what is asked next waits behind


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
        await cancel_and_wait(list(self._senders.values()))
