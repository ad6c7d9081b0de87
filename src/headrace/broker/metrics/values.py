"""Reads the values of a broker's metrics (``families.py``).

A scrape runs on its own thread, while the event loop changes the objects that the scrape reads. So a scrape changes
nothing: it copies containers in one call (:func:`steady`), and reads attributes that are plain numbers. Two values of
one scrape may be from slightly different moments, as in every Prometheus client.

The interpreter's lock is the other danger. A thread that computes makes the loop wait up to 5 ms each time that the
loop wants to run. :func:`in_turns` sleeps for a moment after every few items, which releases the lock at once. With
10,000 partitions a scrape takes longer, and requests are not delayed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.metadata_cache import PartitionInfo
from headrace.broker.metrics.counters import QUANTILES, ApiStats, TopicStats, split_times_ms
from headrace.protocol.api import Api

if TYPE_CHECKING:
    from headrace.broker.cluster_role import ClusterRole
    from headrace.broker.fetch_sessions import FetchSessions
    from headrace.broker.maintenance.maintenance import Maintenance
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.metrics.counters import Metrics
    from headrace.broker.metrics.role_metrics import RoleMetrics
    from headrace.broker.network.connections import Connections
    from headrace.broker.network.request_queue import RequestQueue
    from headrace.broker.purgatories import Purgatories
    from headrace.broker.quotas.enforcement import Enforcement
    from headrace.broker.telemetry.telemetry import Telemetry
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partitions import Partitions
    from headrace.runtime.clock import Clock
    from headrace.runtime.purgatory import Purgatory

T = TypeVar("T")

#: The values of the labels, in the family's order; fewer where the last labels are absent.
Value = tuple[tuple[str, ...], float]

_ITEMS_PER_TURN = 100
_REST_SECONDS = 0.0001
_TRIES = 10
_RUNNING = 3


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """Yields the items, with a short sleep after every few, so that the event loop can run."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS_PER_TURN == 0:
            time.sleep(_REST_SECONDS)


def steady(copy: Callable[[], T]) -> T:
    """Calls a function that copies a container. Calls it again if another thread changed the container meanwhile."""
    for _ in range(_TRIES):
        try:
            return copy()
        except (RuntimeError, KeyError):  # it changed size, or lost a key
            time.sleep(_REST_SECONDS)
    return copy()


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The parts of a broker that have metrics."""

    broker_id: int
    clock: Clock
    metrics: Metrics
    metadata: MetadataCache
    partitions: Partitions
    logs: LogManager
    maintenance: Maintenance
    purgatories: Purgatories
    fetch_sessions: FetchSessions
    queue: RequestQueue
    connections: Connections
    enforcement: Enforcement
    #: The bound address of each listener.
    endpoints: Mapping[str, tuple[str, int]]
    telemetry: Telemetry
    role: ClusterRole


class View:
    """The broker as one scrape sees it. Values that several families need are computed once."""

    def __init__(self, sources: MetricSources) -> None:
        self.sources = sources

    @property
    def role(self) -> RoleMetrics:
        return self.sources.role.metrics()

    @cached_property
    def topics(self) -> tuple[list[tuple[str, TopicStats]], TopicStats]:
        """The counts of each topic, and the counts of all names without a topic: never created, or deleted."""
        return steady(self.sources.metrics.by_topic.snapshot)

    @cached_property
    def requests(self) -> list[tuple[str, ApiStats]]:
        """The counts by Kafka's name of the request. A Fetch counts as Fetch, and as FetchConsumer or FetchFollower."""
        metrics = self.sources.metrics.requests
        found: list[tuple[str, ApiStats]] = []
        for api, stats in steady(lambda: list(metrics.by_api.items())):
            if api is not Api.FETCH:
                found.append((api.label, stats))
        consumers, followers = metrics.by_api.get(Api.FETCH), metrics.of_followers
        if consumers is not None:
            found.append(("FetchConsumer", consumers))
        if followers.requests:
            found.append(("FetchFollower", followers))
        if consumers is not None or followers.requests:
            both = consumers or ApiStats()
            found.append(("Fetch", steady(lambda: both.merged_with(followers)) if followers.requests else both))
        return found

    @cached_property
    def times_ms(self) -> dict[str, dict[str, list[float]]]:
        """The times of the last requests, sorted, by request and stage."""
        by_request: dict[str, dict[str, list[float]]] = {}
        for label, stats in self.requests:
            by_stage: dict[str, list[float]] = {}
            for moments in in_turns(steady(lambda stats=stats: tuple(stats.recent))):  # type: ignore[misc]
                for stage, took_ms in split_times_ms(moments).items():
                    by_stage.setdefault(stage, []).append(took_ms)
            for took in by_stage.values():
                took.sort()
                time.sleep(_REST_SECONDS)
            by_request[label] = by_stage
        return by_request

    @cached_property
    def logs(self) -> list[PartitionLog]:
        return steady(lambda: list(self.sources.logs.all()))

    @cached_property
    def partitions(self) -> list[PartitionInfo]:
        topics = steady(lambda: list(self.sources.metadata))
        return [partition for topic in in_turns(topics) for partition in topic.partitions]

    def led(self) -> Iterator[PartitionInfo]:
        """Yields the partitions that this broker leads."""
        broker_id = self.sources.broker_id
        return (partition for partition in in_turns(self.partitions) if partition.leader_id == broker_id)


# -- topics -----------------------------------------------------------------------------------------------------------


def topic_counter(attribute: str) -> Callable[[View], Iterator[Value]]:
    """Reads the sum over all topics, without a label, then the count of each topic."""

    def values(view: View) -> Iterator[Value]:
        topics, others = view.topics
        by_topic: list[tuple[str, int]] = [(topic, getattr(stats, attribute)) for topic, stats in in_turns(topics)]
        yield (), getattr(others, attribute) + sum(count for _, count in by_topic)
        for topic, count in in_turns(by_topic):
            yield (topic,), count

    return values


# -- requests ---------------------------------------------------------------------------------------------------------


def requests(view: View) -> Iterator[Value]:
    for label, stats in view.requests:
        by_version = steady(lambda stats=stats: list(stats.requests_by_version.items()))  # type: ignore[misc]
        for api_version, count in sorted(by_version):
            yield (label, str(api_version)), count


def request_count(view: View) -> Iterator[Value]:
    for label, stats in view.requests:
        yield (label,), stats.requests


def quantile_name(quantile: float) -> str:
    """Returns a quantile with at least two digits, as the JMX exporter writes Kafka's "50thPercentile"."""
    return f"{quantile:.2f}" if round(quantile, 2) == quantile else str(quantile)


def request_quantiles(stage: str) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        for label, by_stage in view.times_ms.items():
            yield from quantiles(label, by_stage.get(stage, []))

    return values


def quantiles(label: str, ascending: Sequence[float]) -> Iterator[Value]:
    """Yields the quantiles of sorted values, or nothing if there are no values."""
    for quantile in QUANTILES if ascending else ():
        yield (label, quantile_name(quantile)), ascending[min(len(ascending) - 1, int(quantile * len(ascending)))]


def request_queue_size(view: View) -> Iterator[Value]:
    yield (), len(view.sources.queue)


# -- purgatories, fetch sessions, connections -------------------------------------------------------------------------


def purgatory_size(view: View) -> Iterator[Value]:
    for purgatory in _purgatories(view.sources):
        yield (purgatory.name,), purgatory.watched


def delayed_operations(view: View) -> Iterator[Value]:
    for purgatory in _purgatories(view.sources):
        yield (purgatory.name,), purgatory.delayed


def _purgatories(sources: MetricSources) -> tuple[Purgatory[tuple[str, int]], ...]:
    return sources.purgatories.fetch, sources.purgatories.produce, sources.purgatories.delete_records


def fetch_sessions(view: View) -> Iterator[Value]:
    yield (), len(view.sources.fetch_sessions)


def fetch_session_partitions(view: View) -> Iterator[Value]:
    sessions = steady(lambda: list(view.sources.fetch_sessions))
    yield (), sum(len(session.partitions) for session in in_turns(sessions))


def fetch_session_evictions(view: View) -> Iterator[Value]:
    yield (), view.sources.fetch_sessions.evicted


def connections_by_software(view: View) -> Iterator[Value]:
    connections = steady(lambda: list(view.sources.connections))
    found = Counter((*each.client_software, each.listener_name) for each in in_turns(connections))
    yield from sorted(found.items())


def logins(attribute: str) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        for listener, counts in sorted(steady(lambda: list(view.sources.metrics.logins.items()))):
            yield (listener,), getattr(counts, attribute)

    return values


def connections_by_listener(view: View) -> Iterator[Value]:
    connections = steady(lambda: list(view.sources.connections))
    found = Counter(each.listener_name for each in in_turns(connections))
    for listener in steady(lambda: list(view.sources.endpoints)):
        yield (listener,), found[listener]


# -- logs -------------------------------------------------------------------------------------------------------------


def log_gauge(read: Callable[[PartitionLog], int]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        for log in in_turns(view.logs):
            yield (log.topic, str(log.partition)), read(log)

    return values


def offline_log_dirs(view: View) -> Iterator[Value]:
    yield (), len(view.sources.logs.offline)


def log_dir_is_offline(view: View) -> Iterator[Value]:
    for log_dir in view.sources.logs.log_dirs:
        yield (log_dir.path,), log_dir.error is not None


def uncleanable_logs(view: View) -> Iterator[Value]:
    found = Counter(log.log_dir.path for log in steady(lambda: list(view.sources.maintenance.cleaner.uncleanable)))
    for log_dir in view.sources.logs.log_dirs:
        yield (log_dir.path,), found[log_dir.path]


def max_dirty_percent(view: View) -> Iterator[Value]:
    yield (), round(100 * view.sources.maintenance.cleaner.max_dirty_ratio)


def since_last_cleaning_ms(view: View) -> Iterator[Value]:
    yield (), view.sources.clock.monotonic_ms() - view.sources.maintenance.cleaner.last_check_ms


# -- the broker -------------------------------------------------------------------------------------------------------


def broker_state(_: View) -> Iterator[Value]:
    """Always 3, running: metrics are served only while the broker runs."""
    yield (), _RUNNING


def app_info(view: View) -> Iterator[Value]:
    yield (str(view.sources.broker_id), version("headrace")), 1
