"""What the broker counts, and how Prometheus sees it.

Counting is on the hot path and so is plain integers and one append a request; everything that is shown is computed
when somebody looks. The names are the ones that people's Kafka dashboards use (the JMX exporter's usual rules).

Times of requests: the last ``SAMPLE`` of each API are kept, as raw moments, and quantiles are taken from those. Kafka's
own histograms sample too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from math import exp
from threading import Lock
from time import perf_counter_ns

from headrace.broker.network.request import Request
from headrace.protocol.api import Api

SAMPLE = 2048
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

#: Of what has grown within less nothing is to be concluded.
_SHORTEST_LOOK_MS = 1000

#: received, started, parked (or 0), answered, sending (or 0), sent.
Moments = tuple[int, int, int, int, int, int]


class ApiStats:
    __slots__ = ("recent", "requests", "requests_by_version")

    def __init__(self) -> None:
        self.requests = 0
        self.requests_by_version: dict[int, int] = defaultdict(int)
        self.recent: deque[Moments] = deque(maxlen=SAMPLE)

    def merged_with(self, other: ApiStats) -> ApiStats:
        """A copy with what another has counted; its sample is of both."""
        merged = ApiStats()
        merged.requests = self.requests + other.requests
        for stats in (self, other):
            for version, count in stats.requests_by_version.items():
                merged.requests_by_version[version] += count
        merged.recent = deque((*self.recent, *other.recent))
        return merged


class RequestMetrics:
    def __init__(self) -> None:
        self.by_api: dict[Api, ApiStats] = defaultdict(ApiStats)
        #: Fetches of other brokers, which are not among the above.
        self.of_followers = ApiStats()

    def count(self, request: Request) -> None:
        stats = self.of_followers if request.is_from_follower else self.by_api[request.api]
        stats.requests += 1
        stats.requests_by_version[request.version] += 1
        stats.recent.append(
            (
                request.received_at,
                request.started_at,
                request.parked_at,
                request.answered_at,
                request.sending_at,
                perf_counter_ns(),
            )
        )


class TopicStats:
    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetch_requests", "failed_produce_requests", "fetch_requests",
        "messages_in", "produce_requests",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self.produce_requests = self.fetch_requests = 0
        self.failed_produce_requests = self.failed_fetch_requests = 0

    def add(self, other: TopicStats) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class StatsByTopic(dict[str, TopicStats]):
    """Counts by topic, made at first use, for topics that exist.

    Names that clients only ask for share one entry: a client with a bad loop must not fill our memory. The counts of a
    deleted topic go there too, so that the sum over all never shrinks.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        super().__init__()
        self._exists = exists
        self._others = TopicStats()
        self._moving = Lock()

    def __missing__(self, topic: str) -> TopicStats:
        if not self._exists(topic):
            return self._others
        stats = self[topic] = TopicStats()
        return stats

    def forget(self, topic: str) -> None:
        with self._moving:
            stats = self.pop(topic, None)
            if stats is not None:
                self._others.add(stats)

    def snapshot(self) -> tuple[list[tuple[str, TopicStats]], TopicStats]:
        """For another thread: every topic's counts, and a copy of those of all other names."""
        with self._moving:
            others = TopicStats()
            others.add(self._others)
            return list(self.items()), others


class MinuteRate:
    """How much a count grows in a second, over about the last minute. Brought up to date when it is asked."""

    __slots__ = ("_count", "_moment_ms", "_per_second")

    def __init__(self, now_ms: int) -> None:
        self._count = 0
        self._moment_ms = now_ms
        self._per_second: float | None = None

    def of(self, count: int, now_ms: int) -> float:
        elapsed_ms = now_ms - self._moment_ms
        if elapsed_ms >= _SHORTEST_LOOK_MS or self._per_second is None:
            latest = (count - self._count) * 1000 / max(1, elapsed_ms)
            before = latest if self._per_second is None else self._per_second
            self._per_second = latest + (before - latest) * exp(-elapsed_ms / 60_000)
            self._count, self._moment_ms = count, now_ms
        return self._per_second


class Metrics:
    def __init__(self, topic_exists: Callable[[str], bool]) -> None:
        self.requests = RequestMetrics()
        self.by_topic = StatsByTopic(topic_exists)


def split_times_ms(moments: Moments) -> dict[str, float]:
    """A request's time by stage, under Kafka's names; a stage that it skipped took no time."""
    received, started, parked, answered, sending, sent = moments
    handled = parked or answered
    return {
        "totaltimems": (sent - received) / 1e6,
        "requestqueuetimems": (started - received) / 1e6,
        "localtimems": (handled - started) / 1e6,
        "remotetimems": (answered - handled) / 1e6,
        "responsequeuetimems": ((sending or answered) - answered) / 1e6,
        "responsesendtimems": (sent - (sending or sent)) / 1e6,
    }
