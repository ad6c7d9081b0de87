"""Limits how many connections are made per second (KIP-612).

==========================================  =========================================================================
limit                                       above the limit
==========================================  =========================================================================
max.connection.creation.rate                The listener accepts the connection, and serves this connection and
listener.name.X.max.connection.creation     accepts the next one only after the throttle time. Further clients wait in
.rate                                       the kernel's backlog. Connections of brokers do not count towards the
                                            broker's limit if there is a listener for clients beside theirs.
connection_creation_rate of an ip           The connection is closed after the throttle time, without being served.
==========================================  =========================================================================

A throttle time is at most one window, as in Kafka. A connection that is refused because of its ip does not count
towards the other two limits. The rates of addresses are forgotten after an hour, and their number is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.quotas.client_quotas import Limit, QuotaTags
from headrace.broker.quotas.client_rates import MAX_RATES, UNUSED_MS, ClientRate, client_rates
from headrace.broker.quotas.rates import WindowedAverage, WindowedRate, Windows

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.runtime.clock import Clock

RATE = "max.connection.creation.rate"


class ListenerRate:
    """The rate of one listener, and how long its connections had to wait."""

    def __init__(self, windows: Windows) -> None:
        self.rate = WindowedRate(windows)
        self.throttle_times = WindowedAverage()
        #: The same for connections whose ip had made too many.
        self.ip_throttle_times = WindowedAverage()


class ConnectionRates:
    """The rates of new connections: of the broker, of each listener, and of addresses with a quota."""

    def __init__(self, quotas: ClientQuotas, config: BrokerConfig, clock: Clock, windows: Windows) -> None:
        self._quotas = quotas
        self._config = config
        self._now_ms = clock.monotonic_ms
        self._windows = windows
        self.broker = WindowedRate(windows)
        self.listeners: dict[str, ListenerRate] = {}
        self.ips = client_rates("Ip", windows)
        self._forgets_ms = 0
        config.on_any_change(self._settings_changed)
        self._settings_changed(frozenset({RATE}))

    def _settings_changed(self, names: frozenset[str]) -> None:
        if any(name.endswith(RATE) for name in names):
            self.broker.limit = self._config.int(RATE)
            for name, listener in self.listeners.items():
                listener.rate.limit = self._limit_of(name)

    def _limit_of(self, listener_name: str) -> float:
        """Without a setting of its own, a listener has the limit of the broker, as in Kafka."""
        return self._config.of_listener(listener_name).int(RATE)

    def of_listener(self, name: str) -> ListenerRate:
        listener = self.listeners.get(name)
        if listener is None:
            listener = self.listeners[name] = ListenerRate(self._windows)
            listener.rate.limit = self._limit_of(name)
        return listener

    def accepted(self, listener_name: str, *, is_protected: bool) -> int:
        """Counts a connection of a listener, and returns for how many milliseconds the listener has to pause.

        :param is_protected: whether the connection does not count towards the broker's limit.
        """
        now_ms = self._now_ms()
        listener = self.of_listener(listener_name)
        throttle_ms = listener.rate.charge(1, now_ms)
        if not is_protected:
            throttle_ms = max(throttle_ms, self.broker.charge(1, now_ms))
        if not throttle_ms:
            return 0
        throttle_ms = min(throttle_ms, self._windows.window_ms)
        listener.throttle_times.record(throttle_ms, now_ms)
        return throttle_ms

    def accepted_from(self, ip: str, listener_name: str, *, is_protected: bool) -> int:
        """Counts a connection of an address. Returns after how many milliseconds the connection must be closed; 0 if
        the address is within its limit."""
        limit = self._quotas.ip_limit(ip)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        rate = self._rate_of(ip, limit, now_ms).rate
        throttle_ms = rate.charge(1, now_ms)
        if not throttle_ms:
            return 0
        throttle_ms = min(throttle_ms, self._windows.window_ms)
        rate.add(-1, now_ms)
        listener = self.of_listener(listener_name)
        listener.rate.add(-1, now_ms)
        listener.ip_throttle_times.record(throttle_ms, now_ms)
        if not is_protected:
            self.broker.add(-1, now_ms)
        return throttle_ms

    def _rate_of(self, ip: str, limit: float, now_ms: int) -> ClientRate:
        if len(self.ips) >= MAX_RATES or now_ms >= self._forgets_ms:
            self.ips.forget(now_ms)
            self._forgets_ms = now_ms + UNUSED_MS // 12
        return self.ips.of(Limit(limit, QuotaTags("", ip)), now_ms)
