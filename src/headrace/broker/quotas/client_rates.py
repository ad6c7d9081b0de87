"""Keeps what the clients with quotas have used: one rate per entity, shared by all connections of the entity.

A rate is made at the first request that its quota limits. A rate that nothing was recorded in for an hour is forgotten,
as in Kafka. The number of rates is bounded, too: under the quota of a default client every client id has its own rate,
and a client may invent client ids. If there are too many rates, those that were used longest ago are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Generic, Protocol, TypeVar

from headrace.broker.quotas.client_quotas import Limit, QuotaTags
from headrace.broker.quotas.rates import TokenBucket, WindowedAverage, WindowedRate, Windows

UNUSED_MS = 3_600_000
#: How many rates there are per key at most.
MAX_RATES = 10_000


class Throttled(Protocol):
    """Something because of which a connection is muted."""

    #: The kind as Kafka's metrics name it.
    kind: str

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """Notes that a connection is muted."""


class Measured(Throttled, Protocol):
    """The use of one entity."""

    tags: QuotaTags
    #: For how long its connections were muted; None if they never were.
    throttle_times: WindowedAverage | None

    @property
    def last_ms(self) -> int:
        """The time of the last recorded value."""

    def set_limit(self, limit: float) -> None: ...


M = TypeVar("M", bound=Measured)


class ClientRate:
    """The rate of an entity."""

    __slots__ = ("kind", "rate", "tags", "throttle_times", "units")

    def __init__(self, kind: str, tags: QuotaTags, rate: WindowedRate, units: int) -> None:
        #: The kind as Kafka's metrics name it.
        self.kind = kind
        self.tags = tags
        self.rate = rate
        #: What is recorded for a limit of 1 per second.
        self.units = units
        self.throttle_times: WindowedAverage | None = None

    @property
    def last_ms(self) -> int:
        return self.rate.last_ms

    def set_limit(self, limit: float) -> None:
        if self.rate.limit != limit * self.units:
            self.rate.limit = limit * self.units

    def per_second(self, now_ms: int) -> float:
        return self.rate.per_second(now_ms) / self.units

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        _note(self, throttle_ms, now_ms)


class ClientTokens:
    """The tokens of an entity, and how fast it takes them."""

    __slots__ = ("bucket", "kind", "rate", "tags", "throttle_times")

    def __init__(self, kind: str, tags: QuotaTags, bucket: TokenBucket, rate: WindowedRate) -> None:
        self.kind = kind
        self.tags = tags
        self.bucket = bucket
        self.rate = rate
        self.throttle_times: WindowedAverage | None = None

    @property
    def last_ms(self) -> int:
        return self.bucket.last_ms

    def set_limit(self, limit: float) -> None:
        self.bucket.limit = limit

    def take(self, count: int, now_ms: int) -> None:
        self.bucket.take(count, now_ms)
        self.rate.add(count, now_ms)

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        _note(self, throttle_ms, now_ms)


def _note(measured: Measured, throttle_ms: int, now_ms: int) -> None:
    if measured.throttle_times is None:
        measured.throttle_times = WindowedAverage()
    measured.throttle_times.record(throttle_ms, now_ms)


class ClientRates(Generic[M]):
    """The use of all entities, of one kind."""

    def __init__(self, make: Callable[[QuotaTags, float, int], M]) -> None:
        """
        :param make: makes what measures an entity, given its tags, its limit and the time.
        """
        self._make = make
        self._by_tags: dict[QuotaTags, M] = {}

    def __len__(self) -> int:
        return len(self._by_tags)

    def __iter__(self) -> Iterator[M]:
        """A copy, for use on another thread."""
        return iter(list(self._by_tags.values()))

    def of(self, limit: Limit, now_ms: int) -> M:
        """Returns what measures the entity of a limit, with this limit from now on."""
        measured = self._by_tags.get(limit.entity)
        if measured is None:
            measured = self._by_tags[limit.entity] = self._make(limit.entity, limit.value, now_ms)
        else:
            measured.set_limit(limit.value)
        return measured

    def forget(self, now_ms: int) -> bool:
        """Forgets unused rates, and some more if there are too many. Returns whether there were any: then the
        callers have to ask for their rates again."""
        unused = [tags for tags, each in self._by_tags.items() if now_ms - each.last_ms >= UNUSED_MS]
        for tags in unused:
            del self._by_tags[tags]
        has_too_many = len(self._by_tags) >= MAX_RATES
        if has_too_many:
            for each in nsmallest(MAX_RATES // 4, self._by_tags.values(), key=lambda one: one.last_ms):
                del self._by_tags[each.tags]
        return bool(unused) or has_too_many


def client_rates(kind: str, windows: Windows, units: int = 1) -> ClientRates[ClientRate]:
    """
    :param units: what is recorded for a limit of 1 per second.
    """

    def make(tags: QuotaTags, limit: float, now_ms: int) -> ClientRate:
        rate = WindowedRate(windows, limit * units)
        rate.add(0, now_ms)  # so that a new rate is not taken for an unused one
        return ClientRate(kind, tags, rate, units)

    return ClientRates(make)


def mutation_tokens(kind: str, windows: Windows) -> ClientRates[ClientTokens]:
    def make(tags: QuotaTags, limit: float, now_ms: int) -> ClientTokens:
        return ClientTokens(kind, tags, TokenBucket(windows, limit, now_ms), WindowedRate(windows))

    return ClientRates(make)
