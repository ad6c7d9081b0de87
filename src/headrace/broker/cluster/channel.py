"""What the controller tells the brokers, on its way to them.

Being made: the interface is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.controller.context import LiveBroker
from headrace.controller.requests import Request


class BrokerChannel:
    """The Channel of ``controller/controller.py``."""

    def __init__(self, *, listener: str, client_id: str, timeout_ms: int) -> None:
        """
        :param listener: the name of the listener at which brokers talk to each other.
        """
        self._listener = listener
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        #: Is called with the answers of LeaderAndIsr and StopReplica: the controller's ``answered``.
        self.on_answer: Callable[[Request, Any], None] = lambda _request, _answer: None

    def set_brokers(self, live: Iterable[LiveBroker]) -> None:
        """The brokers to talk to: queues of all others end; one with another epoch or address gets a new queue."""
        raise NotImplementedError

    def send(self, request: Request) -> None:
        """Behind all that its broker was sent before. Nothing happens if it is not one of the brokers."""
        raise NotImplementedError

    def close(self) -> None:
        """All queues end; what is in them is dropped. May be used again afterwards."""
        raise NotImplementedError

    async def wait_closed(self) -> None:
        """Until all sockets are closed after :meth:`close`."""
        raise NotImplementedError
