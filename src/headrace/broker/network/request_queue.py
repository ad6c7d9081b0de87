"""The one queue between the connections and the handlers.

The seeds' reactor (mission B) is: network threads read requests and put them into a shared, bounded queue; handler
threads take them out; each network thread has a queue of responses. Here one event loop does the work of all those
threads, but the queue stays, because it is where two promises are kept:

- control requests (LeaderAndIsr, StopReplica, ...) pass every data request that waits, and so can void it;
- no more than ``queued.max.requests`` wait: a connection whose request finds the queue full is not read further until
  there is room, so memory stays bounded however many clients push.

Until a broker knows of its cluster it has nothing to say to clients. An answer without brokers makes some of them drop
all connections that they have, to brokers that are well; a Produce that is refused by a broker that has come back is
overtaken by a later one to the new leader, by mistake of a client that counts the first as acknowledged then. So data
requests are held at first, ApiVersions too: a client sends nothing else before that is answered.

Requests come from :class:`~headrace.broker.network.connection.Connection`, one at a time each, so the responses of one
connection are in request order without a queue of their own. A turn of the loop takes at most ``TURN`` requests: then
sockets are read again, and a control request that has just arrived passes those that are left.
"""

from collections import deque
from collections.abc import Callable

from headrace.broker.network.request import Request

TURN = 64


class RequestQueue:
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
        self._data: deque[Request] = deque()
        self._waiting_for_room: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_held = False

    def __len__(self) -> int:
        return len(self._control) + len(self._data)

    def put(self, request: Request, on_room: Callable[[], None]) -> bool:
        """Whether there was room. If not, ``on_room`` is called once there is, and the caller puts again."""
        if request.api.is_control:
            self._control.append(request)
        elif len(self._data) < self._limit():
            self._data.append(request)
        else:
            self._waiting_for_room.append(on_room)
            return False
        self._schedule()
        return True

    def hold(self) -> None:
        """From now on only control requests are handled."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._control or (self._data and not self._is_held)):
            self._is_scheduled = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        for _ in range(TURN):
            if self._control:
                self._handle(self._control.popleft())
            elif self._data and not self._is_held:
                self._handle(self._data.popleft())
            else:
                break
        while self._waiting_for_room and len(self._data) < self._limit():
            self._waiting_for_room.popleft()()
        self._schedule()
