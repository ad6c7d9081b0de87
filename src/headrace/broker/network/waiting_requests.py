"""Lets clients take turns: holds what waits for each of many clients, and returns one item of each client in turn.

A client is a host and a client id, however many connections it has. So a client that sends with a thousand connections
at once delays the requests of another client by a few requests, and not by a thousand. A client that uses many client
ids has many turns; then the requests take turns by connection, because a connection has one request at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from headrace.broker.network.request import Request

T = TypeVar("T")


class WaitingByClient(Generic[T]):
    __slots__ = ("_by_client", "_turns", "count")

    def __init__(self) -> None:
        #: How many items wait. It is an attribute, because each request of the broker asks for it.
        self.count = 0
        #: No client's deque is empty.
        self._by_client: dict[tuple[str, str | None], deque[T]] = {}
        #: The clients in the order of their turns.
        self._turns: deque[tuple[str, str | None]] = deque()

    def put(self, request: Request, item: T) -> None:
        """Adds an item that waits for the client of a request."""
        self.count += 1
        client = (request.connection.host, request.client_id)
        waiting = self._by_client.get(client)
        if waiting is None:
            self._by_client[client] = deque((item,))
            self._turns.append(client)
        else:
            waiting.append(item)

    def take(self) -> T:
        """Removes the first item of the client whose turn it is. The caller knows that an item waits."""
        self.count -= 1
        client = self._turns.popleft()
        waiting = self._by_client[client]
        item = waiting.popleft()
        if waiting:
            self._turns.append(client)
        else:
            del self._by_client[client]
        return item
