"""Counts requests, records and bytes.

Counting is on the hot path. So it adds to plain integers, and appends one tuple per request. A scrape computes
everything else (``values.py``).

The times of the last ``SAMPLE`` requests of each API are kept as raw moments. Quantiles are computed from these.
Kafka's own histograms sample too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from logging import DEBUG
from math import exp
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.metrics.request_log import log_request, request_logger
from headrace.protocol.api import Api

if TYPE_CHECKING:
    from headrace.broker.network.request import Request

SAMPLE = 2048
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

#: A rate is not updated after less time than this.
_MIN_INTERVAL_MS = 1000

#: When a request was received, started, had to wait (or 0), answered, encoded (or 0), and its answer was sent.
Moments = tuple[int, int, int, int, int, int]


class ApiStats:
    """The counts of one API, and the moments of its last requests."""

    __slots__ = ("recent", "requests", "requests_by_version")

    def __init__(self) -> None:
        self.requests = 0
        self.requests_by_version: dict[int, int] = defaultdict(int)
        self.recent: deque[Moments] = deque(maxlen=SAMPLE)

    def merged_with(self, other: ApiStats) -> ApiStats:
        """Returns the sum of the counts of two, with the samples of both."""
        merged = ApiStats()
        merged.requests = self.requests + other.requests
        for stats in (self, other):
            for version, count in stats.requests_by_version.items():
                merged.requests_by_version[version] += count
        merged.recent = deque((*self.recent, *other.recent))
        return merged


class RequestMetrics:
    """Counts the requests that were answered."""

    def __init__(self) -> None:
        self.by_api: dict[Api, ApiStats] = defaultdict(ApiStats)
        #: Fetch requests of followers. They are not counted in ``by_api``.
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
                request.sent_at or perf_counter_ns(),
            )
        )
        if request_logger.isEnabledFor(DEBUG):
            log_request(request, split_times_ms(stats.recent[-1]))


class TopicStats:
    """The counts of one topic."""

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
    """The counts by topic. An entry is made on first use, for topics that exist.

    All names without a topic share one entry, so that a client that asks for ever new names cannot fill the memory. The
    counts of a deleted topic are added to that entry, so that the sum over all topics never shrinks.
    """

    def __init__(self, exists: Callable[[str], bool]) -> None:
        super().__init__()
        self._exists = exists
        self._others = TopicStats()
        self._forgetting = Lock()

    def __missing__(self, topic: str) -> TopicStats:
        if not self._exists(topic):
            return self._others
        stats = self[topic] = TopicStats()
        return stats

    def forget(self, topic: str) -> None:
        with self._forgetting:
            stats = self.pop(topic, None)
            if stats is not None:
                self._others.add(stats)

    def snapshot(self) -> tuple[list[tuple[str, TopicStats]], TopicStats]:
        """Returns the counts of each topic, and a copy of the counts of all other names. For use on another thread."""
        with self._forgetting:
            others = TopicStats()
            others.add(self._others)
            return list(self.items()), others


class MinuteRate:
    """The growth of a count per second, as an average over about the last minute, computed when it is read."""

    __slots__ = ("_count", "_moment_ms", "_per_second")

    def __init__(self, now_ms: int) -> None:
        self._count = 0
        self._moment_ms = now_ms
        self._per_second: float | None = None

    def of(self, count: int, now_ms: int) -> float:
        elapsed_ms = now_ms - self._moment_ms
        if elapsed_ms >= _MIN_INTERVAL_MS or self._per_second is None:
            latest = (count - self._count) * 1000 / max(1, elapsed_ms)
            before = latest if self._per_second is None else self._per_second
            self._per_second = latest + (before - latest) * exp(-elapsed_ms / 60_000)
            self._count, self._moment_ms = count, now_ms
        return self._per_second


class LoginCounts:
    """How many logins of a listener succeeded and failed; a repeated login (KIP-368) is counted apart."""

    __slots__ = ("failed", "failed_again", "succeeded", "succeeded_again")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.succeeded_again = self.failed_again = 0

    def count(self, *, has_succeeded: bool, is_repeated: bool) -> None:
        if has_succeeded:
            self.succeeded += not is_repeated
            self.succeeded_again += is_repeated
        else:
            self.failed += not is_repeated
            self.failed_again += is_repeated


class Metrics:
    """All counts of a broker."""

    def __init__(self, topic_exists: Callable[[str], bool]) -> None:
        self.requests = RequestMetrics()
        self.by_topic = StatsByTopic(topic_exists)
        #: By listener, for listeners with SASL.
        self.logins: dict[str, LoginCounts] = {}


def split_times_ms(moments: Moments) -> dict[str, float]:
    """Returns the time of a request in each stage, by Kafka's names. A stage that the request skipped took 0 ms."""
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
