"""What the metrics of replicas and of the cluster are worth now; ``metrics_values.py`` says how that may be read.

A broker alone is its own controller, and all its replicas are leaders. In a cluster it is the active controller that
knows the cluster's counts: the others say 0, so that the sum over all brokers is right, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.broker.metadata_cache import NO_LEADER
from headrace.broker.metrics_values import Value, View, in_turns, quantiles, steady

if TYPE_CHECKING:
    from headrace.broker.cluster.channel import QueueMeter
    from headrace.broker.cluster.member import ClusterMember
    from headrace.controller.controller import Controller
    from headrace.controller.queue import EventTime


def _member(view: View) -> ClusterMember | None:
    member = view.broker.cluster
    return member if member is not None and member.is_open else None


# -- replicas


def partition_count(view: View) -> Iterator[Value]:
    yield (), len(view.logs)


def leader_count(view: View) -> Iterator[Value]:
    yield (), sum(1 for _ in view.led())


def under_replicated(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield (), len(steady(member.replicas.under_replicated))
    else:
        yield (), sum(len(partition.isr) < len(partition.replicas) for partition in view.led())


def under_min_isr(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), 0 if member is None else len(steady(member.replicas.under_min_isr))


def at_min_isr(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), 0 if member is None else len(steady(member.replicas.at_min_isr))


def offline_replicas(view: View) -> Iterator[Value]:
    yield (), sum(log.home.error is not None for log in in_turns(view.logs))


def member_value(read: Callable[[ClusterMember], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        member = _member(view)
        yield (), 0 if member is None else steady(lambda: read(member))

    return values


def max_lag(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield ("Replica",), max(steady(member.replicas.fetchers.lags).values(), default=0)


def replica_lag(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        for (topic, partition), lag in in_turns(sorted(steady(member.replicas.fetchers.lags).items())):
            yield (topic, str(partition)), lag


# -- the controller


def active_controller(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield (), member.controller.active_controller_count
    else:
        yield (), view.broker.metadata.controller_id == view.broker.broker_id


def topic_count(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), len(view.broker.metadata) if member is None else member.controller.global_topic_count


def global_partition_count(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), len(view.partitions) if member is None else member.controller.global_partition_count


def offline_partitions(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield (), member.controller.offline_partitions_count
    else:
        yield (), sum(partition.leader_id == NO_LEADER for partition in in_turns(view.partitions))


def controller_gauge(read: Callable[[Controller], int], alone: int = 0) -> Callable[[View], Iterator[Value]]:
    """
    :param alone: what it is for a broker without a cluster.
    """

    def values(view: View) -> Iterator[Value]:
        member = _member(view)
        yield (), alone if member is None else steady(lambda: read(member.controller))

    return values


def queue_meters(read: Callable[[QueueMeter], float]) -> Callable[[View], Iterator[Value]]:
    """Of the requests that the controller has for each broker."""

    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is not None:
            for broker_id, meter in sorted(steady(lambda: member.channel.meters).items()):
                yield (str(broker_id),), read(meter)

    return values


def event_counts(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        for name, times in sorted(steady(lambda: dict(member.controller.event_times)).items()):
            yield (name,), times.count


def event_quantiles(read: Callable[[EventTime], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is None:
            return
        for name, times in sorted(steady(lambda: dict(member.controller.event_times)).items()):
            recent = sorted(map(read, steady(lambda times=times: tuple(times.recent))))  # type: ignore[misc]
            yield from quantiles(name, [nanoseconds / 1e6 for nanoseconds in recent])

    return values


# -- the session with ZooKeeper


def session_counter(attribute: str) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is not None:
            yield (), getattr(member.session_counts, attribute)

    return values
