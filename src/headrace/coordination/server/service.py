"""Holds what all connections of a served tree share: the tree's host, the sessions and the counters. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.coordination.server.logins import Logins
from headrace.coordination.server.sessions import Sessions
from headrace.coordination.tree.host import TreeHost
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer

if TYPE_CHECKING:
    from headrace.coordination.server.client_connection import ClientConnection

#: As in ZooKeeper, a session timeout is between 2 and 20 ticks, whatever the client requests.
DEFAULT_TICK_TIME_MS = 2_000


@dataclass(slots=True)
class Counts:
    """Frames received and sent since the start, and the time of the answers in ms."""

    received: int = 0
    sent: int = 0
    answered: int = 0
    latency_sum_ms: int = 0
    latency_max_ms: int = 0


@dataclass(slots=True, eq=False)
class TreeService:
    host: TreeHost
    clock: Clock
    timer: Timer
    sessions: Sessions
    version: str
    logins: Logins = field(default_factory=Logins)
    connections: dict[ClientConnection, None] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def of(
        cls,
        host: TreeHost,
        clock: Clock,
        timer: Timer,
        *,
        secret: bytes,
        tick_time_ms: int = DEFAULT_TICK_TIME_MS,
        version: str = "",
        logins: Logins | None = None,
    ) -> TreeService:
        """
        :param secret: the passwords of sessions are computed from it. With the same secret, clients can resume their
            sessions after a restart.
        :param version: the version of Headrace, for the four-letter words.
        :param logins: how clients log in; None: without a super user.
        """
        sessions = Sessions(
            host, clock, timer, secret=secret, min_timeout_ms=2 * tick_time_ms, max_timeout_ms=20 * tick_time_ms
        )
        return cls(host, clock, timer, sessions, version, logins or Logins())

    def stop(self) -> None:
        """Closes every connection. The sessions stay open for the next start."""
        self.sessions.stop()
        for connection in list(self.connections):
            connection.disconnect()
