"""Reads the values of the metrics of replicas, of the controller and of ZooKeeper.

``values.py`` says how a scrape may read. ``role_metrics.py`` has the interface of what depends on whether the broker is
a member of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.broker.metrics.values import Value, View, in_turns, quantiles, steady

if TYPE_CHECKING:
    from collections.abc import Sized

    from headrace.broker.metrics.cluster_counts import QueueMeter, SessionCounts
    from headrace.broker.metrics.role_metrics import ControllerCounts, ReplicaCounts
    from headrace.broker.replicas.fetchers import Fetchers
    from headrace.controller.event_queue import EventTime
    from headrace.replication.partition import Partition


# -- replicas


def partition_count(view: View) -> Iterator[Value]:
    yield (), len(view.logs)


def leader_count(view: View) -> Iterator[Value]:
    yield (), sum(1 for _ in view.led())


def replicas_value(read: Callable[[ReplicaCounts], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        replicas = view.role.replicas(view)
        yield (), steady(lambda: read(replicas))

    return values


def partitions_value(find: Callable[[ReplicaCounts], Sized]) -> Callable[[View], Iterator[Value]]:
    """Counts the partitions that a function finds."""
    return replicas_value(lambda replicas: len(find(replicas)))


def partition_gauge(read: Callable[[Partition], int]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of each replica on this broker. It is 0 for a partition that the broker follows, as in Kafka."""

    def values(view: View) -> Iterator[Value]:
        for partition in in_turns(steady(lambda: list(view.sources.partitions))):
            yield (partition.log.topic, str(partition.log.partition)), read(partition)

    return values


def fetchers_value(read: Callable[[Fetchers], float]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of all fetchers together."""

    def values(view: View) -> Iterator[Value]:
        for fetchers in view.role.fetchers():
            yield ("Replica",), steady(lambda fetchers=fetchers: read(fetchers))  # type: ignore[misc]

    return values


def offline_replicas(view: View) -> Iterator[Value]:
    yield (), sum(log.log_dir.error is not None for log in in_turns(view.logs))


def replica_lag(view: View) -> Iterator[Value]:
    for fetchers in view.role.fetchers():
        for (topic, partition), lag in in_turns(sorted(steady(fetchers.lags).items())):
            yield (topic, str(partition)), lag


# -- the controller


def controller_gauge(read: Callable[[ControllerCounts], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        controller = view.role.controller(view)
        yield (), steady(lambda: read(controller))

    return values


def unanswered_requests(view: View) -> Iterator[Value]:
    yield (), steady(view.role.unanswered_requests)


def queue_meters(read: Callable[[QueueMeter], float]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of the controller's request queue to each broker."""

    def values(view: View) -> Iterator[Value]:
        for broker_id, meter in sorted(steady(view.role.queue_meters).items()):
            yield (str(broker_id),), read(meter)

    return values


def event_counts(view: View) -> Iterator[Value]:
    controller = view.role.controller(view)
    for name, times in sorted(steady(lambda: dict(controller.event_times)).items()):
        yield (name,), times.count


def event_quantiles(read: Callable[[EventTime], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        controller = view.role.controller(view)
        for name, times in sorted(steady(lambda: dict(controller.event_times)).items()):
            recent = sorted(map(read, steady(lambda times=times: tuple(times.recent))))  # type: ignore[misc]
            yield from quantiles(name, [nanoseconds / 1e6 for nanoseconds in recent])

    return values


# -- the session with ZooKeeper


def session_counter(read: Callable[[SessionCounts], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        for session in view.role.sessions():
            yield (), read(session.counts)

    return values


#: The states of a session, and the names of the same states in ZooKeeper's own client.
_SESSION_STATES = {"connected": "CONNECTED", "suspended": "CONNECTING", "lost": "CLOSED"}


def session_state(view: View) -> Iterator[Value]:
    for session in view.role.sessions():
        now = session.state.value
        for state, name in _SESSION_STATES.items():
            yield (name,), state == now


def zookeeper_requests(view: View) -> Iterator[Value]:
    if (times := view.role.zookeeper_times()) is not None:
        yield (), times.count


def zookeeper_quantiles(view: View) -> Iterator[Value]:
    if (times := view.role.zookeeper_times()) is not None:
        recent_ms = [took_ns / 1e6 for took_ns in sorted(steady(lambda: tuple(times.recent_ns)))]
        for (_, quantile), took_ms in quantiles("", recent_ms):
            yield (quantile,), took_ms
