"""Reads the values of the metrics of quotas.

There are series for the entities that a quota limits and that were used in the last hour, at most ``MAX_ENTITIES`` per
kind: those that were used last. Under the quota of a default client every client id is an entity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.metrics.values import Value, View, in_turns, steady
from headrace.security.sanitizer import sanitize

if TYPE_CHECKING:
    from headrace.broker.quotas.client_rates import ClientRate, ClientRates, ClientTokens, Measured
    from headrace.broker.quotas.connection_rates import ListenerRate
    from headrace.broker.quotas.enforcement import Enforcement

MAX_ENTITIES = 1_000
#: The kinds of quotas because of which connections are muted.
_KINDS = ("Produce", "Fetch", "Request", "ControllerMutation")

M = TypeVar("M", bound="Measured")


def _newest(rates: ClientRates[M]) -> list[M]:
    found = steady(lambda: list(rates))
    return nlargest(MAX_ENTITIES, found, key=lambda each: each.last_ms) if len(found) > MAX_ENTITIES else found


def _labels(measured: Measured) -> tuple[str, str, str]:
    return measured.kind, sanitize(measured.tags.user), measured.tags.client_id


def client_rates(
    *choose: Callable[[Enforcement], ClientRates[ClientRate]],
) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        now_ms = view.sources.clock.monotonic_ms()
        for rates in choose:
            for each in in_turns(_newest(rates(view.sources.enforcement))):
                yield _labels(each), each.per_second(now_ms)

    return values


def throttle_times(view: View) -> Iterator[Value]:
    """Entities that were never throttled have no value."""
    now_ms, enforcement = view.sources.clock.monotonic_ms(), view.sources.enforcement
    throttling = enforcement.throttling
    found: list[Measured] = [*_newest(throttling.produce), *_newest(throttling.fetch), *_newest(throttling.request)]
    for each in in_turns([*found, *_newest(enforcement.mutations.tokens)]):
        if each.throttle_times is not None:
            yield _labels(each), each.throttle_times.average(now_ms)


def mutations(read: Callable[[ClientTokens, int], float]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        now_ms = view.sources.clock.monotonic_ms()
        for each in in_turns(_newest(view.sources.enforcement.mutations.tokens)):
            yield _labels(each), read(each, now_ms)

    return values


def exempt_time(view: View) -> Iterator[Value]:
    throttling = view.sources.enforcement.throttling
    yield (), throttling.exempt_percentage(view.sources.clock.monotonic_ms())


def muted_connections(view: View) -> Iterator[Value]:
    connections = steady(lambda: list(view.sources.connections))
    found = Counter(each.muted_by for each in in_turns(connections))
    for kind in _KINDS:
        yield (kind,), found[kind]


def broker_accept_rate(view: View) -> Iterator[Value]:
    yield (), view.sources.enforcement.connections.broker.per_second(view.sources.clock.monotonic_ms())


def listeners(read: Callable[[ListenerRate, int], float]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        now_ms, rates = view.sources.clock.monotonic_ms(), view.sources.enforcement.connections
        for name, listener in sorted(steady(lambda: list(rates.listeners.items()))):
            yield (name,), read(listener, now_ms)

    return values
