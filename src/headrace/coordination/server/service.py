"""Holds what all connections of a served tree share: the tree's host, the sessions and the counters. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from logging import WARNING, getLogger
from typing import TYPE_CHECKING

from headrace.coordination.server.logins import Logins
from headrace.coordination.server.sessions import Sessions
from headrace.coordination.tree.host import TreeHost
from headrace.peer_log import PeerLog
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer

if TYPE_CHECKING:
    from headrace.coordination.server.client_connection import ClientConnection

logger = getLogger(__name__)

#: As in ZooKeeper, a session timeout is between 2 and 20 ticks, whatever the client requests.
DEFAULT_TICK_TIME_MS = 2_000
#: ZooKeeper's maxClientCnxns: connections of one address.
DEFAULT_MAX_CONNECTIONS_PER_ADDRESS = 60
#: Connections that have not logged in, if the server requires it. The oldest one is closed for a new one: a broker logs
#: in within milliseconds, so strangers who fill the places do not keep it out.
MAX_WITHOUT_LOGIN = 60


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
    #: The log lines about clients that do something wrong.
    peer_log: PeerLog
    logins: Logins = field(default_factory=Logins)
    #: 0 for no limit.
    max_connections_per_address: int = 0
    #: The four-letter words that are answered.
    four_letter_words: frozenset[bytes] = frozenset()
    connections: dict[ClientConnection, None] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    #: The connections that must log in and have not, the oldest first.
    without_login: dict[ClientConnection, None] = field(default_factory=dict)
    _counts_by_address: Counter[str] = field(default_factory=Counter)

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
        max_connections_per_address: int = 0,
        four_letter_words: frozenset[bytes] = frozenset(),
    ) -> TreeService:
        """
        :param secret: the passwords of sessions are computed from it. With the same secret, clients can resume their
            sessions after a restart.
        :param version: the version of Headrace, for the four-letter words.
        :param logins: how clients log in; None: without a super user.
        :param four_letter_words: the four-letter words that are answered. They need no login.
        """
        sessions = Sessions(
            host, clock, timer, secret=secret, min_timeout_ms=2 * tick_time_ms, max_timeout_ms=20 * tick_time_ms
        )
        peer_log = PeerLog(logger, clock.monotonic_ms, level=WARNING)
        logins = logins or Logins()
        assert not (four_letter_words and logins.requires_super), "the words would tell strangers about the tree"
        return cls(
            host, clock, timer, sessions, version, peer_log, logins, max_connections_per_address, four_letter_words
        )

    def may_connect(self, address: str) -> bool:
        """Whether one more connection of an address is allowed."""
        limit = self.max_connections_per_address
        return limit == 0 or self._counts_by_address[address] < limit

    def add(self, connection: ClientConnection) -> None:
        self.connections[connection] = None
        self._counts_by_address[connection.address] += 1
        if self.logins.requires_super:
            while len(self.without_login) >= MAX_WITHOUT_LOGIN:
                next(iter(self.without_login)).disconnect()
            self.without_login[connection] = None

    def remove(self, connection: ClientConnection) -> None:
        del self.connections[connection]
        self.without_login.pop(connection, None)
        self._counts_by_address[connection.address] -= 1
        if not self._counts_by_address[connection.address]:
            del self._counts_by_address[connection.address]

    def stop(self) -> None:
        """Closes every connection. The sessions stay open for the next start."""
        self.sessions.stop()
        for connection in list(self.connections):
            connection.disconnect()
