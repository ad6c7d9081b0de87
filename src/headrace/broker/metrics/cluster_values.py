"""Reads the values of the metrics of replicas, of the controller and of ZooKeeper.

``values.py`` says how a scrape may read. A broker that is not in a cluster is its own controller, and leads all of its
replicas. In a cluster the active controller has the counts of the whole cluster. The other brokers answer 0, so that
the sum over all brokers is right, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.broker.metadata_cache import NO_LEADER
from headrace.broker.metrics.values import Value, View, in_turns, quantiles, steady

if TYPE_CHECKING:
    from headrace.broker.cluster.cluster_member import ClusterMember
    from headrace.broker.cluster.controller_channel import QueueMeter
    from headrace.broker.replicas.fetchers import Fetchers
    from headrace.controller.controller_metrics import ControllerMetrics
    from headrace.controller.event_queue import EventTime
    from headrace.coordination.client.calls import RequestTimes
    from headrace.replication.partition import Partition


def _member(view: View) -> ClusterMember | None:
    return view.sources.role.as_member()


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


def partition_gauge(read: Callable[[Partition], int]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of each replica on this broker. It is 0 for a partition that the broker follows, as in Kafka."""

    def values(view: View) -> Iterator[Value]:
        for partition in in_turns(steady(lambda: list(view.sources.partitions))):
            yield (partition.log.topic, str(partition.log.partition)), read(partition)

    return values


def fetchers_value(read: Callable[[Fetchers], float]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of all fetchers together."""

    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is not None:
            yield ("Replica",), steady(lambda: read(member.replicas.fetchers))

    return values


def offline_replicas(view: View) -> Iterator[Value]:
    yield (), sum(log.log_dir.error is not None for log in in_turns(view.logs))


def member_value(read: Callable[[ClusterMember], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        member = _member(view)
        yield (), 0 if member is None else steady(lambda: read(member))

    return values


def replica_lag(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        for (topic, partition), lag in in_turns(sorted(steady(member.replicas.fetchers.lags).items())):
            yield (topic, str(partition)), lag


# -- the controller


def active_controller(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield (), member.controller.metrics.active_controller_count
    else:
        yield (), view.sources.metadata.controller_id == view.sources.broker_id


def topic_count(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), len(view.sources.metadata) if member is None else member.controller.metrics.global_topic_count


def global_partition_count(view: View) -> Iterator[Value]:
    member = _member(view)
    yield (), len(view.partitions) if member is None else member.controller.metrics.global_partition_count


def offline_partitions(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        yield (), member.controller.metrics.offline_partitions_count
    else:
        yield (), sum(partition.leader_id == NO_LEADER for partition in in_turns(view.partitions))


def controller_gauge(read: Callable[[ControllerMetrics], int], alone: int = 0) -> Callable[[View], Iterator[Value]]:
    """
    :param alone: the value for a broker that is not in a cluster.
    """

    def values(view: View) -> Iterator[Value]:
        member = _member(view)
        yield (), alone if member is None else steady(lambda: read(member.controller.metrics))

    return values


def queue_meters(read: Callable[[QueueMeter], float]) -> Callable[[View], Iterator[Value]]:
    """Reads a value of the controller's request queue to each broker."""

    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is not None:
            for broker_id, meter in sorted(steady(lambda: member.channel.meters).items()):
                yield (str(broker_id),), read(meter)

    return values


def event_counts(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        for name, times in sorted(steady(lambda: dict(member.controller.metrics.event_times)).items()):
            yield (name,), times.count


def event_quantiles(read: Callable[[EventTime], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is None:
            return
        for name, times in sorted(steady(lambda: dict(member.controller.metrics.event_times)).items()):
            recent = sorted(map(read, steady(lambda times=times: tuple(times.recent))))  # type: ignore[misc]
            yield from quantiles(name, [nanoseconds / 1e6 for nanoseconds in recent])

    return values


# -- the session with ZooKeeper


def session_counter(attribute: str) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        if (member := _member(view)) is not None:
            yield (), getattr(member.session.counts, attribute)

    return values


#: The states of a session, and the names of the same states in ZooKeeper's own client.
_SESSION_STATES = {"connected": "CONNECTED", "suspended": "CONNECTING", "lost": "CLOSED"}


def session_state(view: View) -> Iterator[Value]:
    if (member := _member(view)) is not None:
        now = member.session.state.value
        for state, name in _SESSION_STATES.items():
            yield (name,), state == now


def _zookeeper_times(view: View) -> RequestTimes | None:
    member = _member(view)
    return None if member is None else getattr(member.coordination, "request_times", None)


def zookeeper_requests(view: View) -> Iterator[Value]:
    if (times := _zookeeper_times(view)) is not None:
        yield (), times.count


def zookeeper_quantiles(view: View) -> Iterator[Value]:
    if (times := _zookeeper_times(view)) is not None:
        recent_ms = [took_ns / 1e6 for took_ns in sorted(steady(lambda: tuple(times.recent_ns)))]
        for (_, quantile), took_ms in quantiles("", recent_ms):
            yield (quantile,), took_ms
