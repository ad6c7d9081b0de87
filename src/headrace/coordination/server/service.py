"""What all connections of a served tree share: the tree's host, the sessions, and what is counted. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.coordination.server.sessions import Sessions
from headrace.coordination.tree.host import TreeHost
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer

if TYPE_CHECKING:
    from headrace.coordination.server.client_connection import ClientConnection

#: As ZooKeeper has it: a session times out after 2 ticks at the least and 20 at the most, whatever its client wants.
DEFAULT_TICK_TIME_MS = 2_000


@dataclass(slots=True)
class Counts:
    """Since the start: frames in and out, and how long (in ms) answers took."""

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
    dialogs: dict[ClientConnection, None] = field(default_factory=dict)
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
    ) -> TreeService:
        """
        :param secret: the passwords of sessions are made from it. Clients come back to their sessions after a restart
            if it is the same as before.
        :param version: our own, for those who ask.
        """
        sessions = Sessions(
            host, clock, timer, secret=secret, min_timeout_ms=2 * tick_time_ms, max_timeout_ms=20 * tick_time_ms
        )
        return cls(host, clock, timer, sessions, version)

    def stop(self) -> None:
        """Every connection is closed; sessions stay as they are, for the next start."""
        self.sessions.stop()
        for dialog in list(self.dialogs):
            dialog.disconnect()
