"""Holds what the sampler reads at one moment, and the rates between two moments. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class TopicSample(NamedTuple):
    """A topic at one moment.

    :ivar end_offsets: the sum of the end offsets of its partitions: how many records were ever written.
    :ivar size_bytes: the bytes of the largest replica of each partition; None if the sampler may not see log dirs.
    """

    end_offsets: int
    size_bytes: int | None


class GroupSample(NamedTuple):
    """The progress of a group in a topic at one moment.

    :ivar committed: the sum of its committed offsets.
    :ivar lag: how many records it has not read.
    """

    committed: int
    lag: int


@dataclass(frozen=True)
class Sample:
    """The cluster at one moment. Internal topics are in ``topics``, and not in the totals.

    :ivar groups: by group and topic.
    :ivar replica_bytes: the bytes of all replicas of all topics on all brokers; None if they are not known.
    :ivar measures: further numbers, by a name that no other number has; None for what is not known now.
    """

    time_ms: int
    topics: Mapping[str, TopicSample]
    internal: frozenset[str] = frozenset()
    groups: Mapping[tuple[str, str], GroupSample] = field(default_factory=dict)
    offline: int = 0
    under_replicated: int = 0
    replica_bytes: int | None = None
    measures: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The records that were ever written to the topics of users."""
        return sum(topic.end_offsets for name, topic in self.topics.items() if name not in self.internal)

    @property
    def size_bytes(self) -> int:
        return sum(topic.size_bytes or 0 for name, topic in self.topics.items() if name not in self.internal)

    @property
    def read(self) -> int:
        """The records that groups have ever read of the topics of users."""
        return sum(group.committed for (_, topic), group in self.groups.items() if topic not in self.internal)

    @property
    def lag(self) -> int:
        return sum(group.lag for (_, topic), group in self.groups.items() if topic not in self.internal)


def measure_of_total(total: str) -> str:
    """The name of the measure of a total that the brokers' metrics tell."""
    return f"brokers/{total}"


def measure_of_version(view: str, version: int, what: Literal["age", "behind"]) -> str:
    """The name of the measure of a version: its age in milliseconds, or the records that it has not read."""
    return f"views/{view}/{version}/{what}"


class TopicRates(NamedTuple):
    """How fast a topic grows, per second. Deleted records do not count against the bytes."""

    records: float
    bytes: float | None


def grown(before: float, now: float) -> float:
    """How much a sum has grown. A topic that was created again begins anew."""
    return now - before if now >= before else 0


def topic_rates(before: Sample | None, now: Sample, topic: str) -> TopicRates | None:
    """The rates of a topic between two samples; None if it is not in both."""
    if before is None or topic not in before.topics or topic not in now.topics:
        return None
    seconds = (now.time_ms - before.time_ms) / 1_000
    if seconds <= 0:
        return None
    first, last = before.topics[topic], now.topics[topic]
    size = None
    if first.size_bytes is not None and last.size_bytes is not None:
        size = grown(first.size_bytes, last.size_bytes) / seconds
    return TopicRates(grown(first.end_offsets, last.end_offsets) / seconds, size)
