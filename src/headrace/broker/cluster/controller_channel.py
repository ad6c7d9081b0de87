"""Sends the controller's requests to the brokers: each broker has a queue, a task and a connection.

A broker gets its requests one by one, in the order in which the controller sent them: the next request is sent when the
previous one is answered. If an answer does not come, because the connection ended or the time was up, the request is
sent again on a new connection after 100 ms, until it is answered or the broker is gone. So a broker may get a request
twice. The epochs in the request make the second one harmless.

A queue belongs to one registration of a broker. When the broker is gone, or has registered again with another epoch,
the requests for the earlier registration are dropped: the controller sends the new one all that it needs (KIP-380). A
broker that has only moved to another address keeps its queue.

The channel does not ask brokers for their versions (ApiVersions). These requests exist in fixed last versions, because
newer Kafka has removed them. And a broker that has just started answers no other request before it has received its
first UpdateMetadata (``request_queue.py``).

Responses to LeaderAndIsr and StopReplica go to the controller. An error in a response to UpdateMetadata is logged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from logging import getLogger
from typing import Any, NamedTuple

from headrace.broker.cluster.links import NoAnswer
from headrace.broker.control_messages import (
    Body,
    SharedMetadata,
    address_of,
    leader_and_isr_body,
    leader_and_isr_response,
    stop_replica_body,
    stop_replica_response,
)
from headrace.broker.metrics.cluster_counts import QueueMeter
from headrace.client.connection import Connection
from headrace.client.errors import BrokerUnreachable
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity
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


class _Outgoing(NamedTuple):
    request: Request
    shared: SharedMetadata | None
    since: float


class ControllerChannel:
    """Implements the controller's ``Channel``."""

    def __init__(
        self, *, listener: str, client_id: str, timeout_ms: int, security: ConnectionSecurity = PLAINTEXT
    ) -> None:
        """
        :param listener: the name of the listener that brokers use among each other.
        :param security: of the connections (``link_security.py``).
        :param timeout_ms: how long a broker may take to answer (``controller.socket.timeout.ms``).
        """
        self.listener = listener
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.security = security
        #: Is called with the responses to LeaderAndIsr and StopReplica.
        self.on_response: Callable[[Request, LeaderAndIsrResponse | StopReplicaResponse], None] = (
            lambda _request, _answer: None
        )
        self._queues: dict[int, _Queue] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._last_shared: SharedMetadata | None = None

    def set_brokers(self, live: Iterable[LiveBroker]) -> None:
        """Sets the brokers that get requests. The queues of all other brokers end."""
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
        """Appends a request to the queue of its broker. Drops the request if the broker is not registered any more."""
        queue = self._queues.get(request.broker_id)
        if queue is None or queue.broker.epoch != request.broker_epoch:
            label = _APIS[type(request)].label
            logger.info("%s to broker %d is dropped: the broker is no longer registered", label, request.broker_id)
            return
        queue.put(_Outgoing(request, self._shared(request), asyncio.get_running_loop().time()))

    def close(self) -> None:
        """Ends all queues and drops their requests. The channel can be used again afterwards."""
        for broker_id in list(self._queues):
            self._end(broker_id)
        self._last_shared = None

    async def wait_closed(self) -> None:
        """Waits until the connections of all ended queues are closed."""
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def meters(self) -> dict[int, QueueMeter]:
        """The counts of each broker's queue."""
        return {broker_id: queue.meter for broker_id, queue in self._queues.items()}

    @property
    def size(self) -> int:
        """The number of requests of all brokers that are not answered yet."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def _shared(self, request: Request) -> SharedMetadata | None:
        """The part of an UpdateMetadata that is the same for all brokers. The requests of one batch come in a row."""
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
    """The requests for one registration of a broker."""

    def __init__(self, channel: ControllerChannel, broker: LiveBroker, waiting: Iterable[_Outgoing]) -> None:
        self.broker = broker
        self.address = address_of(broker, channel.listener)
        #: The first request is sent, or waits to be sent again.
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
        """Sends a request until it is answered."""
        while True:
            try:
                self._answered(outgoing, await self._ask(outgoing))
                return
            except NoAnswer as error:
                self._failed(error)
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            except Exception:  # our mistake; if it ended the queue, the broker would never get a request again
                logger.exception("a request to broker %d is dropped: %s", self.broker.broker_id, outgoing.request)
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
            raise BrokerUnreachable(f"broker {self.broker.broker_id} has no listener {self._channel.listener}")
        timeout_ms = self._channel.timeout_ms
        self._connection = await Connection.open(
            *self.address,
            client_id=self._channel.client_id,
            timeout_ms=timeout_ms,
            connect_timeout_ms=min(timeout_ms, _CONNECT_TIMEOUT_MS),
            learns_versions=False,
            security=self._channel.security,
        )
        if not self._is_reachable:
            self._is_reachable = True
            logger.info("broker %d can be reached again", self.broker.broker_id)
        return self._connection

    def _body(self, outgoing: _Outgoing, version: int) -> Body:
        match outgoing.request:
            case LeaderAndIsr() as request:
                return leader_and_isr_body(request, self._channel.listener)
            case StopReplica() as request:
                return stop_replica_body(request)
            case UpdateMetadata() as request:
                assert outgoing.shared is not None
                return outgoing.shared.body(request, version)

    def _answered(self, outgoing: _Outgoing, response: Any) -> None:
        self._sent += 1
        self._waited_ms += (asyncio.get_running_loop().time() - outgoing.since) * 1000
        match outgoing.request:
            case LeaderAndIsr() as request:
                self._channel.on_response(request, leader_and_isr_response(request, response))
            case StopReplica() as request:
                self._channel.on_response(request, stop_replica_response(response))
            case UpdateMetadata():
                if response.error_code != ErrorCode.none:
                    logger.warning("UpdateMetadata to broker %d: %s", self.broker.broker_id, response.error_code.name)

    def _failed(self, error: Exception) -> None:
        if self._is_reachable:
            self._is_reachable = False
            logger.warning("broker %d cannot be reached, trying again: %s", self.broker.broker_id, error)
