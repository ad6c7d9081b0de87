"""Holds the last values of the metrics that clients have pushed, for the metrics endpoint.

A series is a metric of one client with one set of labels. A delta is added to the stored value, so a counter grows as
long as the broker knows the client. A client pushes all of its gauges each time, so a gauge that the last three pushes
lack is removed: its labels have changed (a consumer has joined again under another member id, for example). A client
may leave out a delta of zero, as franz-go does: a sum of deltas is removed only if the client has no room for others.

The number of series is bounded for each client and for the broker (``headrace.telemetry.max.series``). Series above the
bound are dropped and counted; the push succeeds all the same.

The event loop changes the store. A scrape reads it on its own thread: every value is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headrace.broker.telemetry.points import Distribution, Labels, Point, PointKind

if TYPE_CHECKING:
    from headrace.broker.telemetry.instances import ClientInstance

MAX_SERIES_PER_CLIENT = 2_000
_KEPT_PUSHES = 3

#: The labels that tell clients apart. Attributes with the same names are overwritten.
_CLIENT_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")


class Series(NamedTuple):
    name: str
    kind: PointKind
    labels: Labels


class ClientSeries:
    """The series of one client: the labels that all of them have, and the value of each."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.values: dict[Series, float | Distribution] = {}
        #: The number of pushes, and the number of the last push that had each series.
        self.pushes = 0
        self.last_pushes: dict[Series, int] = {}
        #: The series whose values are sums of deltas.
        self.sums: set[Series] = set()

    def remove_outdated(self) -> int:
        """Removes the series that the last pushes lack, and returns their number."""
        self.pushes += 1
        oldest = self.pushes - _KEPT_PUSHES
        kept = self.sums if len(self.values) < MAX_SERIES_PER_CLIENT else frozenset()
        outdated = [series for series, number in self.last_pushes.items() if number <= oldest and series not in kept]
        for series in outdated:
            del self.values[series], self.last_pushes[series]
        self.sums.difference_update(outdated)
        return len(outdated)


class SeriesStore:
    def __init__(self, max_series: Callable[[], int]) -> None:
        self._max_series = max_series
        self._clients: dict[UUID, ClientSeries] = {}
        #: The number of series of all clients.
        self.count = 0
        #: Points that were dropped, because there were too many series.
        self.dropped = 0

    def clients(self) -> list[ClientSeries]:
        return list(self._clients.values())

    def update(self, instance: ClientInstance, points: list[Point]) -> None:
        """Stores the points of a push."""
        if not points:
            return
        client, labels = self._clients.get(instance.instance_id), _labels_of(instance)
        if client is not None and client.labels != labels:  # somebody else has come back with the id of this client
            self.forget(instance.instance_id)
            client = None
        if client is None:
            client = self._clients[instance.instance_id] = ClientSeries(labels)
        self.count -= client.remove_outdated()
        values, room = client.values, self._max_series() - self.count
        for point in points:
            series = Series(point.name, point.kind, point.labels)
            stored = values.get(series)
            if stored is None:
                if room <= 0 or len(values) >= MAX_SERIES_PER_CLIENT:
                    self.dropped += 1
                    continue
                room -= 1
                self.count += 1
            client.last_pushes[series] = client.pushes
            if point.is_delta:
                client.sums.add(series)
            values[series] = point.value if stored is None or not point.is_delta else _sum(stored, point.value)

    def forget(self, instance_id: UUID) -> None:
        """Removes all series of a client."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self.count -= len(client.values)


def _labels_of(instance: ClientInstance) -> dict[str, str]:
    labels = {name: instance.attributes[name] or "" for name in _CLIENT_LABELS}
    return {**labels, "principal": instance.principal}


def _sum(stored: float | Distribution, delta: float | Distribution) -> float | Distribution:
    if isinstance(stored, Distribution) and isinstance(delta, Distribution):
        if stored.bounds != delta.bounds:  # the client has changed its buckets
            return delta
        counts = tuple(map(sum, zip(stored.bucket_counts, delta.bucket_counts, strict=True)))
        return Distribution(stored.point_count + delta.point_count, stored.total + delta.total, stored.bounds, counts)
    assert not isinstance(stored, Distribution)
    assert not isinstance(delta, Distribution)
    return stored + delta


# -- for the metrics endpoint


class PushedFamily(NamedTuple):
    """A metric of all clients: its labels and value for each series."""

    name: str
    kind: PointKind
    samples: list[tuple[dict[str, str], float | Distribution]]


def families(clients: Iterable[ClientSeries]) -> Iterator[PushedFamily]:
    """Yields the metrics of clients, sorted by name.

    A name has one kind, that of the first series with the name. Series of another kind are left out, and so are series
    that differ from another one only in labels that the client's own labels replace: a scraper would refuse them.
    """
    found: dict[str, PushedFamily] = {}
    for client in clients:
        seen: set[tuple[str, Labels]] = set()
        for series, value in tuple(client.values.items()):
            family = found.setdefault(series.name, PushedFamily(series.name, series.kind, []))
            labels = {**dict(series.labels), **client.labels}
            identity = (series.name, tuple(sorted(labels.items())))
            if family.kind is series.kind and identity not in seen:
                seen.add(identity)
                family.samples.append((labels, value))
    for name in sorted(found):
        yield found[name]
