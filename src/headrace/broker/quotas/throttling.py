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
from headrace.broker.quotas.rates import MAX_THROTTLE_MS, NS_PER_MS, WindowedRate, Windows
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
#: Each request needs it. Reading a member of an Enum takes longer than the comparison.
_PRODUCE = Api.PRODUCE


class ClientLimits:
    """The rates that limit one connection. None: there is no limit."""

    __slots__ = (
        "client_id", "fetch", "network_ns", "produce", "produce_rate", "receiving_since", "request", "request_rate",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        version: int,
        client_id: str | None,
        produce: ClientRate | None,
        fetch: ClientRate | None,
        request: ClientRate | None,
    ) -> None:
        #: The version of the quotas.
        self.version = version
        self.client_id = client_id
        self.produce = produce
        self.fetch = fetch
        self.request = request
        #: The rates that nearly every request is counted in.
        self.produce_rate = None if produce is None else produce.rate
        self.request_rate = None if request is None else request.rate
        #: How long bytes moved through the socket since the last answer was counted. The next answer counts it.
        self.network_ns = 0
        #: When a channel without encryption began to receive the request that is counted next; 0 after that.
        self.receiving_since = 0

    def received_part(self) -> None:
        """Counts the time of receiving, if the request is not complete yet."""
        if self.receiving_since:
            self.network_ns += perf_counter_ns() - self.receiving_since
            self.receiving_since = 0


class Throttling:
    """The quotas of all clients, and what the clients use."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, timer: Timer, windows: Windows) -> None:
        #: Callers test ``quotas.any_client`` first.
        self.quotas = quotas
        self._timer = timer
        self._now_ms = clock.monotonic_ms
        #: None if the moments of a request are of this clock; they are not in a test that moves the clock.
        self._now_ns = None if clock.monotonic_ns is perf_counter_ns else clock.monotonic_ns
        self._windows = windows
        self._time_quotas = quotas.tables[REQUEST_PERCENTAGE]
        self.produce = client_rates("Produce", windows)
        self.fetch = client_rates("Fetch", windows)
        self.request = client_rates("Request", windows, NS_PER_PERCENT)
        self._exempt = WindowedRate(windows)
        self._forgetting: TimerTask | None = None

    # -- limits

    def limits_of(self, request: Request) -> ClientLimits:
        """Returns the limits of a request's connection. A connection that logs in as somebody else forgets its own."""
        connection = request.connection
        limits = connection.limits
        if limits is None or limits.version != self.quotas.version or limits.client_id != request.client_id:
            limits = connection.limits = self._look_up(connection.principal, request.client_id)
        return limits

    def _look_up(self, principal: Principal, client_id: str | None) -> ClientLimits:
        user, client = principal.name, client_id or ""
        produce = self._rate_of(self.produce, PRODUCER_BYTE_RATE, user, client)
        fetch = self._rate_of(self.fetch, CONSUMER_BYTE_RATE, user, client)
        request = self._rate_of(self.request, REQUEST_PERCENTAGE, user, client)
        if self._forgetting is None:
            self._forgetting = self._timer.schedule(_FORGET_EVERY_MS, self._forget)
        return ClientLimits(self.quotas.version, client_id, produce, fetch, request)

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
        """Counts an answer, and notes in the request for how long its connection has to be muted.

        Every request comes here. So nothing is called while the client is within its limits: the lines that add to a
        rate do what ``WindowedRate.charge`` does.
        """
        limits = request.connection.limits
        if request.is_charged:
            if limits is not None:
                limits.receiving_since = 0
            return
        request.is_charged = True
        if limits is None or limits.version != self.quotas.version or limits.client_id != request.client_id:
            limits = self.limits_of(request)
        now_ns = request.answered_at if self._now_ns is None else self._now_ns()
        if request.api is _PRODUCE:
            rate = limits.produce_rate
            if rate is not None:
                if now_ns >= rate.change_ns:
                    rate.change_samples(now_ns)
                total = rate.total = rate.total + request.size_bytes
                rate.last_ns = now_ns
                if total > rate.free:
                    self._throttle(request, limits.produce, now_ns // NS_PER_MS)
            is_exempt = request.body.acks == 0
        else:
            is_exempt = request.is_from_follower or (request.api in _EXEMPT and not _is_denied(reply))
        rate = limits.request_rate
        if rate is None and not is_exempt:
            limits.receiving_since = 0
            return
        used_ns = request.answered_at - request.running_since + limits.network_ns
        limits.network_ns = 0
        if request.parked_at:
            used_ns += request.busy_ns + request.thread_ns
        if limits.receiving_since:
            used_ns += request.received_at - limits.receiving_since
            limits.receiving_since = 0
        if rate is None or is_exempt:
            if self._time_quotas.any:
                self._exempt.add(used_ns, now_ns // NS_PER_MS)
            return
        if now_ns >= rate.change_ns:
            rate.change_samples(now_ns)
        total = rate.total = rate.total + used_ns
        rate.last_ns = now_ns
        if total > rate.free:
            self._throttle(request, limits.request, now_ns // NS_PER_MS, self._windows.window_ms)

    def _throttle(self, request: Request, by: ClientRate | None, now_ms: int, most_ms: int = MAX_THROTTLE_MS) -> None:
        """Mutes the connection if the rate is above the limit. One request may take very long: Kafka does not mute a
        connection for longer than a window for that."""
        assert by is not None
        throttle_ms = by.rate.throttle_ms(now_ms)
        if throttle_ms:
            request.throttle(min(throttle_ms, most_ms), by, now_ms)

    def charge_fetch(self, request: Request, size_bytes: int) -> bool:
        """Counts the answer to a consumer's Fetch. Returns whether the answer has to be empty."""
        request.answered_at = perf_counter_ns()
        self.charge(request, None)
        is_empty = request.throttle_ms > 0
        fetch = self.limits_of(request).fetch
        if fetch is not None:
            now_ms = self._now_ms()
            throttle_ms = fetch.rate.charge(size_bytes, now_ms)
            if throttle_ms:
                is_empty = is_empty or fetch.rate.total != size_bytes
                request.throttle(throttle_ms, fetch, now_ms)
            if is_empty:
                fetch.rate.add(-size_bytes, now_ms)
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
