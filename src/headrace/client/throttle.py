"""Waits for the time that a broker asks for when a client exceeds its quota (KIP-219).

A broker answers at once, says in ``throttle_time_ms`` how long it will read no more from the connection, and then reads
no more for that long. A client that sends meanwhile gains nothing, and its requests would time out. So a connection
keeps its requests back until the time is over. Other connections go on.

Older versions of a request are from before KIP-219: brokers of that time waited first and answered then, so
``throttle_time_ms`` is over when the answer arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any

from headrace.protocol.api import Api
from headrace.protocol.wire.client_codec import body_at

Parts = list[bytes | bytearray | memoryview]

#: The first version whose client waits, where it is not 0.
_FIRST_VERSIONS = {
    Api.PRODUCE: 6, Api.FETCH: 8, Api.LIST_OFFSETS: 3, Api.METADATA: 6, Api.OFFSET_COMMIT: 4, Api.OFFSET_FETCH: 4,
    Api.FIND_COORDINATOR: 2, Api.JOIN_GROUP: 3, Api.HEARTBEAT: 2, Api.LEAVE_GROUP: 2, Api.SYNC_GROUP: 2,
    Api.DESCRIBE_GROUPS: 2, Api.LIST_GROUPS: 2, Api.API_VERSIONS: 2, Api.CREATE_TOPICS: 3, Api.DELETE_TOPICS: 2,
    Api.DELETE_RECORDS: 1, Api.INIT_PRODUCER_ID: 1, Api.ADD_PARTITIONS_TO_TXN: 1, Api.ADD_OFFSETS_TO_TXN: 1,
    Api.END_TXN: 1, Api.TXN_OFFSET_COMMIT: 1, Api.DESCRIBE_ACLS: 1, Api.CREATE_ACLS: 1, Api.DELETE_ACLS: 1,
    Api.DESCRIBE_CONFIGS: 2, Api.ALTER_CONFIGS: 1, Api.ALTER_REPLICA_LOG_DIRS: 1, Api.DESCRIBE_LOG_DIRS: 1,
    Api.CREATE_PARTITIONS: 1, Api.CREATE_DELEGATION_TOKEN: 1, Api.RENEW_DELEGATION_TOKEN: 1,
    Api.EXPIRE_DELEGATION_TOKEN: 1, Api.DESCRIBE_DELEGATION_TOKEN: 1, Api.DELETE_GROUPS: 1,
}  # fmt: skip
#: APIs whose answers are read by hand. Their bodies begin with the throttle time.
_READ_BY_HAND = frozenset({Api.FETCH, Api.DESCRIBE_TRANSACTIONS})
_INT32 = Struct(">i")


def must_wait(api: Api, version: int) -> bool:
    """Whether a client that gets an answer of this version waits for its throttle time."""
    return version >= _FIRST_VERSIONS.get(api, 0)


def raw_throttle_ms(api: Api, version: int, frame: memoryview) -> int:
    """Returns the throttle time of an answer that is not decoded; 0 if the frame is too short to have one."""
    if api not in _READ_BY_HAND:
        return 0
    try:
        (throttle_ms,) = _INT32.unpack_from(frame, body_at(api, version, frame))
    except (StructError, IndexError, ValueError):
        return 0
    return int(throttle_ms)


class Throttle:
    """The time in which one connection sends nothing, and the requests that wait for its end."""

    __slots__ = ("_held", "_loop", "_timer", "_unanswered", "_until", "_write", "is_on")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, unanswered: MutableMapping[int, Any], write: Callable[[Parts], None]
    ) -> None:
        """
        :param unanswered: the requests that wait for answers, by correlation id.
        :param write: writes a request at the end of the time.
        """
        self._loop = loop
        self._unanswered = unanswered
        self._write = write
        self.is_on = False
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[tuple[int, Parts]] = []

    def begin(self, throttle_ms: float) -> None:
        """Waits until this time from now on is over, or longer if an earlier answer has asked for that."""
        until = self._loop.time() + throttle_ms / 1000
        if until > self._until:
            self.cancel()
            self._until = until
            self._timer = self._loop.call_at(until, self._end)
        self.is_on = True

    def left_ms(self) -> float:
        return max(0.0, (self._until - self._loop.time()) * 1000)

    def hold(self, correlation_id: int, parts: Parts) -> None:
        """Keeps a request until the end of the time."""
        self._held.append((correlation_id, parts))

    def drop(self, correlation_id: int) -> bool:
        """Drops a request that was kept. Returns False if there is none: the request was sent before."""
        count = len(self._held)
        self._held = [one for one in self._held if one[0] != correlation_id]
        return len(self._held) < count

    def cancel(self) -> None:
        """Writes nothing any more, because the connection ends."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self.is_on = False
        held, self._held = self._held, []
        for correlation_id, parts in held:
            request = self._unanswered.get(correlation_id)
            if request is not None and request.answer.done():
                del self._unanswered[correlation_id]  # The caller was cancelled, so nobody needs the answer.
            else:
                self._write(parts)
