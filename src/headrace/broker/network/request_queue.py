"""The queue between the connections and the handlers.

Kafka has network threads that put requests into a shared, bounded queue, handler threads that take requests out of it,
and a queue of responses per network thread. Here one event loop does the work of all these threads. The queue remains,
because it guarantees two things:

- Control requests (LeaderAndIsr, StopReplica, ...) are handled before all data requests that wait. So a data request
  sees the newest roles of its partitions.
- At most ``queued.max.requests`` requests wait. If the queue is full, a connection is not read further until there is
  room; clients take turns for the room, too. So the memory stays bounded, whatever the number of clients.

A broker that has just started holds data requests until it knows the other brokers of its cluster. If it answered
Metadata without brokers, some clients would close all their connections, also those to healthy brokers. If it refused a
Produce because it does not lead the partition yet, the client would send the batch again to the new leader; some
clients then send a later batch first, and take the earlier batch for acknowledged. ApiVersions is held, too: a client
sends no other request before ApiVersions is answered.

Requests of a login are not held: the controller has to log in before it can send the first control request, and a login
never waits for other brokers. Logins and data requests are handled in turn, so neither a flood of logins nor a flood of
data delays the other.

A connection puts one request at a time into the queue. So the answers of a connection are in the order of its requests,
without a queue of responses. If many data requests wait, clients take turns (``waiting_requests.py``). Turns cost half
a microsecond per request, so the first few requests are handled in the order of their arrival. One turn of the loop
handles at most ``REQUESTS_PER_TURN`` requests. Then the loop reads the sockets again: a control request, or a request
of another client, that has just arrived need not wait for all requests that are left.
"""

from collections import deque
from collections.abc import Callable

from headrace.broker.network.request import Request
from headrace.broker.network.waiting_requests import WaitingByClient

REQUESTS_PER_TURN = 16
#: The number of data requests that wait in the order of their arrival. The others wait by client.
FEW_REQUESTS = 4


class RequestQueue:
    """Hands requests to the dispatcher, control requests first."""

    def __init__(
        self,
        limit: Callable[[], int],
        handle: Callable[[Request], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._limit = limit
        self._handle = handle
        self._call_soon = call_soon
        self._control: deque[Request] = deque()
        self._logins: deque[Request] = deque()
        #: The data requests that are handled first, and those that arrived while these few were waiting.
        self._data: deque[Request] = deque()
        self._more_data: WaitingByClient[Request] = WaitingByClient()
        #: Whether the last request of these two was a data request.
        self._is_login_next = True
        self._waiting_for_room: WaitingByClient[Callable[[], None]] = WaitingByClient()
        self._is_scheduled = False
        self._is_held = False

    def __len__(self) -> int:
        return len(self._control) + len(self._logins) + len(self._data) + self._more_data.count

    def put(self, request: Request, on_room: Callable[[], None]) -> bool:
        """Adds a request; returns whether there was room. If not, ``on_room`` is called when there is room, and the
        caller has to put the request again."""
        if request.is_login:
            self._logins.append(request)
        elif request.api.is_control:
            self._control.append(request)
        elif len(self._data) + self._more_data.count < self._limit():
            if len(self._data) < FEW_REQUESTS and not self._more_data.count:
                self._data.append(request)
            else:
                self._more_data.put(request, request)
        else:
            self._waiting_for_room.put(request, on_room)
            return False
        self._schedule()
        return True

    def hold(self) -> None:
        """Handles only control requests and logins from now on."""
        self._is_held = True

    def release(self) -> None:
        """Handles all requests again."""
        self._is_held = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._control or self._logins or self._has_data()):
            self._is_scheduled = True
            self._call_soon(self._take_turn)

    def _has_data(self) -> bool:
        """Whether a data request may be handled."""
        return bool(self._data or self._more_data.count) and not self._is_held

    def take_turn(self) -> None:
        """Handles requests now, if there are some. Requests that were just put need not wait for the loop's next
        iteration."""
        if self._is_scheduled:
            self._take_turn()

    def _take_turn(self) -> None:
        self._is_scheduled = False
        for _ in range(REQUESTS_PER_TURN):
            has_data = (self._data or self._more_data.count) and not self._is_held
            if self._control:
                self._handle(self._control.popleft())
            elif self._logins and (self._is_login_next or not has_data):
                self._is_login_next = False
                self._handle(self._logins.popleft())
            elif has_data:
                self._is_login_next = True
                self._handle(self._data.popleft() if self._data else self._more_data.take())
            else:
                break
        while self._waiting_for_room.count and len(self._data) + self._more_data.count < self._limit():
            self._waiting_for_room.take()()
        self._schedule()
