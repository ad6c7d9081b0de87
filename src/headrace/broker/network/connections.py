"""Keeps the open connections of a broker, and enforces the limits on them.

===============================  ======================================================================================
limit                            above the limit
===============================  ======================================================================================
max.connections                  New clients wait in the kernel's backlog until a connection is closed, as in Kafka.
                                 Brokers do not wait: if there are several listeners, a connection to the inter-broker
                                 listener is accepted, and the connection that was idle for the longest time is closed.
listener.name.X.max.connections  New clients of that listener wait.
max.connections.per.ip           The new connection is closed.
max.connection.creation.rate,    New clients wait (``quotas/connection_rates.py``).
also of a listener
connection_creation_rate of      The new connection is not served, and is closed after a while.
an ip
connections.max.idle.ms          The idle connection is closed.
headrace.login.timeout.ms        A connection whose TLS handshake and login are not complete is closed.
headrace.max.unauthenticated     Of these connections, the oldest is closed: a client that is not hostile completes its
.connections                     login sooner.
===============================  ======================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import nsmallest
from logging import getLogger
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.network.connection import Connection
from headrace.broker.network.ip_limits import IpLimits
from headrace.broker.quotas.connection_rates import ConnectionRates
from headrace.peer_log import PeerLog
from headrace.protocol.spare_buffers import SpareBuffers
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer, TimerTask

if TYPE_CHECKING:
    from headrace.broker.thread_pool import RunBlocking

logger = getLogger(__name__)

_MAX_CONNECTIONS = "max.connections"
#: Buffers for large requests are freed when nobody has used them for about so long.
_TRIM_EVERY_MS = 1_000


class Connections:
    """All open connections of the broker, and the limits on them."""

    def __init__(
        self, config: BrokerConfig, timer: Timer, clock: Clock, rates: ConnectionRates, run_blocking: RunBlocking
    ) -> None:
        """
        :raises StartError: if max.connections.per.ip.overrides names a host that has no address.
        """
        #: The log lines about clients that do something wrong.
        self.peer_log = PeerLog(logger, clock.monotonic_ms)
        #: Buffers for large requests that no connection uses at present.
        self.spare_buffers = SpareBuffers(self._trim_later)
        self._trimming: TimerTask | None = None
        self._config = config
        self.rates = rates
        self._timer = timer
        #: Each connection with the timer task that checks whether the connection is idle.
        self._open: dict[Connection, TimerTask | None] = {}
        #: The connections that have not logged in, oldest first, with their timeouts. Some may have logged in already.
        self._unauthenticated: dict[Connection, TimerTask] = {}
        self._ip_limits = IpLimits(config, run_blocking)
        self._by_ip: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._on_room: list[Callable[[], None]] = []
        config.on_any_change(self._settings_changed)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def _trim_later(self) -> None:
        if self._trimming is None:
            self._trimming = self._timer.schedule(_TRIM_EVERY_MS, self._trim)

    def _trim(self) -> None:
        self._trimming = None
        if self.spare_buffers.trim():
            self._trim_later()

    # -- limits

    def has_room(self, listener_name: str) -> bool:
        """Whether the listener may accept another connection."""
        own = self._config.of_listener(listener_name)
        if own.name_of(_MAX_CONNECTIONS) != _MAX_CONNECTIONS and (
            self._by_listener[listener_name] >= own.int(_MAX_CONNECTIONS)
        ):
            return False
        return self._is_protected(listener_name) or len(self._open) < self._config.int(_MAX_CONNECTIONS)

    def _is_protected(self, listener_name: str) -> bool:
        """Whether connections to the listener are accepted although the broker has ``max.connections``."""
        listeners = self._config.listeners
        return listener_name == listeners.inter_broker and len(listeners.bound) > 1

    def when_there_is_room(self, callback: Callable[[], None]) -> None:
        """Calls back once, when a connection is closed or a limit changes."""
        self._on_room.append(callback)

    def _settings_changed(self, names: frozenset[str]) -> None:
        if any(name.endswith(_MAX_CONNECTIONS) for name in names):
            self._close_excess()
            self._try_again()

    def _try_again(self) -> None:
        waiting, self._on_room = self._on_room, []
        for callback in waiting:
            callback()

    def count_accepted(self, listener_name: str) -> int:
        """Counts a new connection, and returns for how many milliseconds its listener has to pause."""
        return self.rates.accepted(listener_name, is_protected=self._is_protected(listener_name))

    def count_accepted_from(self, ip: str, listener_name: str) -> int:
        """Counts a new connection of an address. Returns after how many milliseconds the connection must be closed; 0
        if the address is within its limit."""
        return self.rates.accepted_from(ip, listener_name, is_protected=self._is_protected(listener_name))

    def may_connect(self, ip: str) -> bool:
        return self._by_ip[ip] < self._ip_limits.of(ip)

    # -- connections

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._by_ip[connection.peer.rpartition(":")[0]] += 1
        self._by_listener[connection.listener_name] += 1
        self._schedule_idle_check(connection, self._config.int("connections.max.idle.ms"))
        if not connection.is_authenticated:
            self._expect_login(connection)
        self._close_excess()

    def remove(self, connection: Connection) -> None:
        for tasks in (self._open, self._unauthenticated):
            task = tasks.pop(connection, None)
            if task is not None:
                task.cancel()
        for counter, key in (
            (self._by_ip, connection.peer.rpartition(":")[0]),
            (self._by_listener, connection.listener_name),
        ):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]
        self._try_again()

    def _close_excess(self) -> None:
        """Closes connections for those of brokers, or because the limit is lower now: first those that were idle for
        the longest time, last those that have a request in progress."""
        excess = len(self._open) - self._config.int(_MAX_CONNECTIONS)
        if excess <= 0:
            return
        others = [one for one in self._open if not self._is_protected(one.listener_name)]
        for connection in nsmallest(excess, others, key=lambda one: (one.is_busy, one.last_active_ns)):
            connection.abort("there are more than max.connections")

    def _expect_login(self, connection: Connection) -> None:
        timeout_ms = self._config.int("headrace.login.timeout.ms")

        def check() -> None:
            if not connection.is_authenticated:
                connection.abort(f"not authenticated after {timeout_ms} ms (headrace.login.timeout.ms)")

        self._unauthenticated[connection] = self._timer.schedule(timeout_ms, check)
        limit = self._config.int("headrace.max.unauthenticated.connections")
        while len(self._unauthenticated) > limit:
            oldest = next(iter(self._unauthenticated))
            if oldest.is_authenticated:
                self._unauthenticated.pop(oldest).cancel()
            else:
                oldest.abort("too many clients that are not authenticated (headrace.max.unauthenticated.connections)")

    def _schedule_idle_check(self, connection: Connection, delay_ms: int) -> None:
        def check() -> None:
            max_idle_ms = self._config.int("connections.max.idle.ms")
            idle_ms = (perf_counter_ns() - connection.last_active_ns) // 1_000_000
            if connection.muted_by is not None:
                self._schedule_idle_check(connection, max_idle_ms)
            elif idle_ms >= max_idle_ms:
                connection.abort(f"idle for {max_idle_ms} ms (connections.max.idle.ms)")
            else:
                self._schedule_idle_check(connection, max_idle_ms - idle_ms)

        if delay_ms >= 0:
            self._open[connection] = self._timer.schedule(max(1, delay_ms), check)
