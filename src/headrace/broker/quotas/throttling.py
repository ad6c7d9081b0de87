"""Counts what clients use, and says for how long a connection is muted (KIP-219).

Each answer is counted once, just before it is sent:

=======================  =========================================================  ===============================
quota                    what is counted                                            not counted
=======================  =========================================================  ===============================
producer_byte_rate       the bytes of a Produce request                             –
consumer_byte_rate       the bytes of the answer to a Fetch                         Fetch requests of followers
request_percentage       the time that the request took on the event loop, on       requests of other brokers,
                         network threads and on threads for records and files.      Produce with acks=0: their time
                         100 is one thread for all of the time.                     is counted as exempt
=======================  =========================================================  ===============================

If a rate is above its limit, the answer is sent at once with the throttle time, and the connection receives nothing for
that time. A Fetch is answered without records then, and its bytes are not counted. There is one exception, which Kafka
does not make: a batch that is larger than all that the quota allows in its windows is sent if nothing else was sent in
the windows. In Kafka the consumer would never receive it.

A connection keeps its limits (:class:`ClientLimits`), and looks them up again only if the quotas have changed or if a
request has another client id. So a request within its limits costs a few additions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.quotas.client_rates import MAX_RATES, UNUSED_MS, ClientRate, ClientRates, client_rates
from headrace.broker.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from headrace.broker.quotas.rates import WindowedRate, Windows
from headrace.protocol.api import CONTROL_APIS, Api
from headrace.protocol.errors import ErrorCode
from headrace.runtime.timer import Timer, TimerTask

if TYPE_CHECKING:
    from headrace.broker.network.request import Request
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.protocol.wire.encoder import Message
    from headrace.protocol.wire.server_codec import EncodedReply
    from headrace.runtime.clock import Clock
    from headrace.security.principal import Principal

#: Time is counted in nanoseconds: one per cent of a thread.
NS_PER_PERCENT = 10_000_000
#: Requests of other brokers. Kafka does not count their time towards quotas.
_EXEMPT = CONTROL_APIS | {Api.WRITE_TXN_MARKERS}
_FORGET_EVERY_MS = UNUSED_MS // 12


class ClientLimits:
    """The rates that limit one connection. None: there is no limit."""

    __slots__ = ("client_id", "fetch", "network_ns", "principal", "produce", "request", "version")

    def __init__(self, version: int, principal: Principal, client_id: str | None) -> None:
        #: The version of the quotas.
        self.version = version
        self.principal = principal
        self.client_id = client_id
        self.produce: ClientRate | None = None
        self.fetch: ClientRate | None = None
        self.request: ClientRate | None = None
        #: How long bytes moved through the socket since the last answer was counted. The next answer counts it.
        self.network_ns = 0


class Throttling:
    """The quotas of all clients, and what the clients use."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, timer: Timer, windows: Windows) -> None:
        #: Callers test ``quotas.any_client`` first.
        self.quotas = quotas
        self._timer = timer
        self._now_ms = clock.monotonic_ms
        self._windows = windows
        self._time_quotas = quotas.tables[REQUEST_PERCENTAGE]
        self.produce = client_rates("Produce", windows)
        self.fetch = client_rates("Fetch", windows)
        self.request = client_rates("Request", windows, NS_PER_PERCENT)
        self._exempt = WindowedRate(windows)
        self._forgetting: TimerTask | None = None

    # -- limits

    def limits_of(self, request: Request) -> ClientLimits:
        connection = request.connection
        limits = connection.limits
        if (
            limits is None
            or limits.version != self.quotas.version
            or limits.client_id != request.client_id
            or limits.principal is not connection.principal
        ):
            limits = connection.limits = self._look_up(connection.principal, request.client_id)
        return limits

    def _look_up(self, principal: Principal, client_id: str | None) -> ClientLimits:
        user, client = principal.name, client_id or ""
        produce = self._rate_of(self.produce, PRODUCER_BYTE_RATE, user, client)
        fetch = self._rate_of(self.fetch, CONSUMER_BYTE_RATE, user, client)
        request = self._rate_of(self.request, REQUEST_PERCENTAGE, user, client)
        limits = ClientLimits(self.quotas.version, principal, client_id)
        limits.produce, limits.fetch, limits.request = produce, fetch, request
        if self._forgetting is None:
            self._forgetting = self._timer.schedule(_FORGET_EVERY_MS, self._forget)
        return limits

    def _rate_of(self, rates: ClientRates[ClientRate], key: str, user: str, client_id: str) -> ClientRate | None:
        limit = self.quotas.limit(key, user, client_id)
        if limit is None:
            return None
        now_ms = self._now_ms()
        if len(rates) >= MAX_RATES and rates.forget(now_ms):
            self.quotas.look_up_again()
        return rates.of(limit, now_ms)

    def _forget(self) -> None:
        now_ms, kinds = self._now_ms(), (self.produce, self.fetch, self.request)
        has_forgotten = [rates.forget(now_ms) for rates in kinds]
        if any(has_forgotten):
            self.quotas.look_up_again()
        is_needed = any(len(rates) for rates in kinds)
        self._forgetting = self._timer.schedule(_FORGET_EVERY_MS, self._forget) if is_needed else None

    # -- counting

    def charge(self, request: Request, reply: Message | EncodedReply | None) -> None:
        """Counts an answer, and notes in the request for how long its connection has to be muted."""
        if request.is_charged or request.is_login:
            return
        request.is_charged = True
        limits = self.limits_of(request)
        now_ms = self._now_ms()
        if request.api is Api.PRODUCE:
            if limits.produce is not None:
                throttle_ms = limits.produce.charge(request.size_bytes, now_ms)
                if throttle_ms:
                    request.throttle(throttle_ms, limits.produce, now_ms)
            is_exempt = request.body.acks == 0
        else:
            is_exempt = request.is_from_follower or (request.api in _EXEMPT and not _is_denied(reply))
        if self._time_quotas.any:
            self._charge_time(request, limits, is_exempt, now_ms)

    def _charge_time(self, request: Request, limits: ClientLimits, is_exempt: bool, now_ms: int) -> None:
        used_ns = perf_counter_ns() - request.running_since + request.busy_ns + request.thread_ns + limits.network_ns
        limits.network_ns = 0
        if is_exempt:
            self._exempt.add(used_ns, now_ms)
        elif limits.request is not None:
            throttle_ms = limits.request.charge(used_ns, now_ms)
            if throttle_ms:
                # One request may take very long. Kafka does not mute a connection for longer than a window for that.
                request.throttle(min(throttle_ms, self._windows.window_ms), limits.request, now_ms)

    def charge_fetch(self, request: Request, size_bytes: int) -> bool:
        """Counts the answer to a consumer's Fetch. Returns whether the answer has to be empty."""
        request.is_charged = True
        limits = self.limits_of(request)
        now_ms = self._now_ms()
        if self._time_quotas.any:
            self._charge_time(request, limits, False, now_ms)
        is_empty = request.throttle_ms > 0
        fetch = limits.fetch
        if fetch is not None:
            throttle_ms = fetch.charge(size_bytes, now_ms)
            if throttle_ms:
                is_empty = is_empty or fetch.rate.total != size_bytes
                request.throttle(throttle_ms, fetch, now_ms)
            if is_empty:
                fetch.add(-size_bytes, now_ms)
        return is_empty

    def max_fetch_bytes(self, request: Request) -> float:
        """Returns how many bytes a Fetch may have that is not throttled in any case."""
        fetch = self.limits_of(request).fetch
        return inf if fetch is None else fetch.rate.free

    def exempt_percentage(self, now_ms: int) -> float:
        """Returns how much of a thread's time exempt requests take. Another thread may call it."""
        return self._exempt.per_second(now_ms) / NS_PER_PERCENT

    # -- muting

    def mute(self, request: Request, unmute: Callable[[], None]) -> TimerTask:
        """Calls ``unmute`` when the throttle time of a request is over."""
        assert request.throttled_by is not None
        now_ms = self._now_ms()
        request.throttled_by.throttled(request.throttle_ms, now_ms)
        return self._timer.schedule(request.unmute_ms - now_ms, unmute)


def _is_denied(reply: Message | EncodedReply | None) -> bool:
    """Whether a client without rights has sent a request of a broker. Such a request is not exempt."""
    if not isinstance(reply, dict):
        return False
    codes = [reply.get("error_code")]
    for marker in reply.get("markers", ()):
        codes += [part["error_code"] for topic in marker["topics"] for part in topic["partitions"]]
    return ErrorCode.cluster_authorization_failed in codes
