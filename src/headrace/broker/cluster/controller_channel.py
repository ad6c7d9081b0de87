"""What the controller tells the brokers, on its way to them: a queue, a task and a connection for each.

A broker gets its requests one by one, in the order in which they were sent: the next goes out when the one before is
answered. A request whose answer does not come, because the connection ended or its time was up, goes out again on a new
connection after 100 ms, and so on until it is answered or the broker is gone. So a broker may get a request twice; the
epochs in it make the second one harmless.

A queue belongs to one life of a broker. When the broker is gone, or has come back with another epoch, what was meant
for the one before is dropped: the controller tells the new one all that it needs to know (KIP-380). One that only moved
to another address keeps what it has not been told yet.

Nobody is asked first what it speaks: these requests have their last versions, as Kafka has none of them any more, and a
broker that has just started answers nothing else before it was told (``request_queue.py``).

Answers to LeaderAndIsr and StopReplica go to the controller; of those to UpdateMetadata an error is logged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from logging import getLogger
from typing import Any, NamedTuple

from headrace.broker.cluster.links import NoAnswer
from headrace.broker.cluster.wire import (
    Body,
    SharedMetadata,
    address_of,
    leaders_answer,
    leaders_body,
    stop_answer,
    stop_body,
)
from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    Request,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from headrace.controller.decisions.context import LiveBroker
from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import ErrorCode

logger = getLogger(__name__)

RETRY_BACKOFF_MS = 100
_CONNECT_TIMEOUT_MS = 10_000

_APIS: dict[type[Request], Api] = {
    LeaderAndIsr: Api.LEADER_AND_ISR,
    UpdateMetadata: Api.UPDATE_METADATA,
    StopReplica: Api.STOP_REPLICA,
}


class QueueMeter(NamedTuple):
    """A broker's queue as metrics show it."""

    size: int
    sent: int
    #: How long those that were sent had waited, all together.
    waited_ms: float


class _Outgoing(NamedTuple):
    request: Request
    shared: SharedMetadata | None
    since: float


class ControllerChannel:
    """The Channel of the controller."""

    def __init__(self, *, listener: str, client_id: str, timeout_ms: int) -> None:
        """
        :param listener: the name of the listener at which brokers talk to each other.
        :param timeout_ms: how long a broker may take to answer (``controller.socket.timeout.ms``).
        """
        self.listener = listener
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        #: Is called with the answers of LeaderAndIsr and StopReplica: the controller's ``answered``.
        self.on_answer: Callable[[Request, LeaderAndIsrResponse | StopReplicaResponse], None] = (
            lambda _request, _answer: None
        )
        self._queues: dict[int, _Queue] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._last_shared: SharedMetadata | None = None

    def set_brokers(self, live: Iterable[LiveBroker]) -> None:
        """The brokers to talk to. The queues of all others end; see the module for one that has changed."""
        wanted = {broker.broker_id: broker for broker in live}
        for broker_id in self._queues.keys() - wanted.keys():
            self._end(broker_id)
        for broker_id, broker in wanted.items():
            queue = self._queues.get(broker_id)
            if queue is not None and queue.broker.epoch == broker.epoch:
                if queue.address == address_of(broker, self.listener):
                    continue
                self._end(broker_id)
                self._queues[broker_id] = _Queue(self, broker, queue.waiting)
            else:
                self._end(broker_id)
                self._queues[broker_id] = _Queue(self, broker, ())

    def send(self, request: Request) -> None:
        """Behind all that its broker was sent before. Dropped if it is meant for none of the brokers."""
        queue = self._queues.get(request.broker_id)
        if queue is None or queue.broker.epoch != request.broker_epoch:
            logger.info("%s to broker %d: it is gone", _APIS[type(request)].label, request.broker_id)
            return
        queue.put(_Outgoing(request, self._shared(request), asyncio.get_running_loop().time()))

    def close(self) -> None:
        """All queues end, and what is in them is dropped. It can be used again afterwards."""
        for broker_id in list(self._queues):
            self._end(broker_id)
        self._last_shared = None

    async def wait_closed(self) -> None:
        """Until the connections of all queues that have ended are closed."""
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def meters(self) -> dict[int, QueueMeter]:
        """By broker."""
        return {broker_id: queue.meter for broker_id, queue in self._queues.items()}

    @property
    def size(self) -> int:
        """How many requests are not answered yet, of all brokers."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def _shared(self, request: Request) -> SharedMetadata | None:
        """The brokers' UpdateMetadata of one batch come one after the other."""
        if not isinstance(request, UpdateMetadata):
            return None
        if self._last_shared is None or not self._last_shared.fits(request):
            self._last_shared = SharedMetadata(request)
        return self._last_shared

    def _end(self, broker_id: int) -> None:
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            queue.task.cancel()
            self._ending.add(queue.task)
            queue.task.add_done_callback(self._ending.discard)


class _Queue:
    """One life of a broker."""

    def __init__(self, channel: ControllerChannel, broker: LiveBroker, waiting: Iterable[_Outgoing]) -> None:
        self.broker = broker
        self.address = address_of(broker, channel.listener)
        #: The first is under way, unless it is to be sent again.
        self.waiting = deque(waiting)
        self._channel = channel
        self._connection: Connection | None = None
        self._is_reachable = True
        self._sent = 0
        self._waited_ms = 0.0
        self._wake = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"controller to broker {broker.broker_id}")

    @property
    def meter(self) -> QueueMeter:
        return QueueMeter(len(self.waiting), self._sent, self._waited_ms)

    def put(self, outgoing: _Outgoing) -> None:
        self.waiting.append(outgoing)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                while not self.waiting:
                    self._wake.clear()
                    await self._wake.wait()
                await self._deliver(self.waiting[0])
                self.waiting.popleft()
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _deliver(self, outgoing: _Outgoing) -> None:
        """Until it is answered."""
        while True:
            try:
                self._answered(outgoing, await self._ask(outgoing))
                return
            except NoAnswer as error:
                self._failed(error)
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            except Exception:  # our mistake; but if it ended the queue, the broker would never hear of anything again
                logger.exception("telling broker %d failed: %s", self.broker.broker_id, outgoing.request)
                return

    async def _ask(self, outgoing: _Outgoing) -> Any:
        connection = await self._open_connection()
        api = _APIS[type(outgoing.request)]
        version = versions_of(api)[-1]
        body = self._body(outgoing, version)
        return await connection.send(api, version, body, timeout_ms=self._channel.timeout_ms)

    async def _open_connection(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self.address is None:
            raise BrokerUnreachable(f"it has no listener {self._channel.listener}")
        timeout_ms = self._channel.timeout_ms
        self._connection = await Connection.open(
            *self.address,
            client_id=self._channel.client_id,
            timeout_ms=timeout_ms,
            connect_timeout_ms=min(timeout_ms, _CONNECT_TIMEOUT_MS),
            learns_versions=False,
        )
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("broker %d can be reached again", self.broker.broker_id)
        return self._connection

    def _body(self, outgoing: _Outgoing, version: int) -> Body:
        match outgoing.request:
            case LeaderAndIsr() as request:
                return leaders_body(request, self._channel.listener)
            case StopReplica() as request:
                return stop_body(request)
            case UpdateMetadata() as request:
                assert outgoing.shared is not None
                return outgoing.shared.body(request, version)

    def _answered(self, outgoing: _Outgoing, response: Any) -> None:
        self._sent += 1
        self._waited_ms += (asyncio.get_running_loop().time() - outgoing.since) * 1000
        match outgoing.request:
            case LeaderAndIsr() as request:
                self._channel.on_answer(request, leaders_answer(request, response))
            case StopReplica() as request:
                self._channel.on_answer(request, stop_answer(response))
            case UpdateMetadata():
                if response.error_code != ErrorCode.none:
                    logger.warning("UpdateMetadata to broker %d: %s", self.broker.broker_id, response.error_code.name)

    def _failed(self, error: Exception) -> None:
        if self._is_reachable:
            self._is_reachable = False
            logger.warning("broker %d cannot be told: %s; trying again", self.broker.broker_id, error)
