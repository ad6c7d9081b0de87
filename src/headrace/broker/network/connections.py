"""Keeps the open connections of a broker, and enforces the limits on them.

If the broker has ``max.connections`` connections on all its listeners, new clients wait in the kernel's backlog until a
connection is closed, as in Kafka. A connection above ``max.connections.per.ip`` is closed at once. A connection that
has been idle for ``connections.max.idle.ms`` is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter_ns

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.network.connection import Connection
from headrace.runtime.timer import Timer, TimerTask


class Connections:
    """All open connections of the broker, and the limits on them."""

    def __init__(self, config: BrokerConfig, timer: Timer) -> None:
        self._config = config
        self._timer = timer
        #: Each connection with the timer task that checks whether the connection is idle.
        self._open: dict[Connection, TimerTask | None] = {}
        self._by_ip: Counter[str] = Counter()
        self._on_room: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._config.int("max.connections")

    def when_there_is_room(self, callback: Callable[[], None]) -> None:
        """Calls back once, when a connection is closed."""
        self._on_room.append(callback)

    def may_connect(self, ip: str) -> bool:
        return self._by_ip[ip] < self._limit_for(ip)

    def _limit_for(self, ip: str) -> int:
        for override in self._config.str("max.connections.per.ip.overrides").split(","):
            host, _, limit = override.rpartition(":")
            if host == ip:
                return int(limit)
        return self._config.int("max.connections.per.ip")

    def add(self, connection: Connection) -> None:
        self._open[connection] = None
        self._by_ip[connection.peer.rpartition(":")[0]] += 1
        self._schedule_idle_check(connection, self._config.int("connections.max.idle.ms"))

    def remove(self, connection: Connection) -> None:
        idle = self._open.pop(connection, None)
        if idle is not None:
            idle.cancel()
        ip = connection.peer.rpartition(":")[0]
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
        waiting, self._on_room = self._on_room, []
        for callback in waiting:
            callback()

    def _schedule_idle_check(self, connection: Connection, delay_ms: int) -> None:
        def check() -> None:
            max_idle_ms = self._config.int("connections.max.idle.ms")
            idle_ms = (perf_counter_ns() - connection.last_active_ns) // 1_000_000
            if idle_ms >= max_idle_ms:
                connection.abort(f"idle for {idle_ms} ms (connections.max.idle.ms)")
            else:
                self._schedule_idle_check(connection, max_idle_ms - idle_ms)

        if delay_ms >= 0:
            self._open[connection] = self._timer.schedule(max(1, delay_ms), check)
