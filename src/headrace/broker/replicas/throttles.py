"""Throttled replication (KIP-73): bytes a second for replicas that are being moved, so that moving them leaves room.

Which replicas are throttled is said by topic (``leader.replication.throttled.replicas`` at the side that sends,
``follower.replication.throttled.replicas`` at the side that asks): ``partition:broker,partition:broker,...`` or ``*``.
How much they may have is said by broker (``leader.`` and ``follower.replication.throttled.rate``). A replica that is in
sync is never held back, or the throttle would push it out.

The rate is that of the last windows (``replication.quota.window.num`` of ``replication.quota.window.size.seconds``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.replication.replicated_partition import ReplicatedPartition
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_ALL = "*"


class Throttled:
    """Which partitions of the topics are throttled on this broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        #: By topic, the partitions; None for all.
        self._partitions: dict[str, frozenset[int] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def __contains__(self, key: tuple[str, int]) -> bool:
        topic, index = key
        if topic not in self._partitions:
            return False
        partitions = self._partitions[topic]
        return partitions is None or index in partitions

    def configure(self, topic: str, replicas: str) -> None:
        entries = [entry.strip() for entry in replicas.split(",") if entry.strip()]
        if _ALL in entries:
            self._partitions[topic] = None
            return
        ours = frozenset(
            int(partition)
            for partition, _, broker in (entry.partition(":") for entry in entries)
            if partition.isdigit() and broker == str(self._broker_id)
        )
        if ours:
            self._partitions[topic] = ours
        else:
            self._partitions.pop(topic, None)


class Rate:
    """Bytes in the last windows, against what a second may have."""

    def __init__(self, clock: Clock, limit: Callable[[], int], *, windows: int, window_ms: int) -> None:
        self._clock = clock
        self._limit = limit
        self._windows = windows
        self._window_ms = window_ms
        #: The number of each window that had bytes, and how many.
        self._used: deque[list[int]] = deque()
        self._total_bytes = 0

    def record(self, size_bytes: int) -> None:
        number = self._forget_old()
        if not self._used or self._used[-1][0] != number:
            self._used.append([number, 0])
        self._used[-1][1] += size_bytes
        self._total_bytes += size_bytes

    @property
    def is_exceeded(self) -> bool:
        self._forget_old()
        if not self._used:
            return False
        # Since the first window that had bytes. If all windows counted, ten seconds' worth would pass at once at first.
        elapsed_ms = max(self._clock.monotonic_ms() - self._used[0][0] * self._window_ms, self._window_ms)
        return self._total_bytes * 1000 > self._limit() * elapsed_ms

    def _forget_old(self) -> int:
        number = self._clock.monotonic_ms() // self._window_ms
        while self._used and self._used[0][0] <= number - self._windows:
            self._total_bytes -= self._used.popleft()[1]
        return number


class Throttles:
    def __init__(self, broker_id: int, config: BrokerConfig, clock: Clock) -> None:
        windows = config.int("replication.quota.window.num")
        window_ms = config.int("replication.quota.window.size.seconds") * 1000
        self.leaders, self.followers = Throttled(broker_id), Throttled(broker_id)
        self._sent, self._received = (
            Rate(clock, lambda name=name: config.int(name), windows=windows, window_ms=window_ms)  # type: ignore[misc]
            for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        )

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.leaders.configure(topic, overrides.get(LEADER_REPLICAS, ""))
        self.followers.configure(topic, overrides.get(FOLLOWER_REPLICAS, ""))

    # As a leader

    def holds_back_from(self, partition: ReplicatedPartition, replica_id: int) -> bool:
        if not self.leaders or partition.key not in self.leaders:
            return False
        leader = partition.leader
        return leader is not None and replica_id not in leader.isr and self._sent.is_exceeded

    def sent(self, partition: ReplicatedPartition, size_bytes: int) -> None:
        if self.leaders and partition.key in self.leaders:
            self._sent.record(size_bytes)

    # As a follower

    def holds_back(self, partition: ReplicatedPartition) -> bool:
        """Whether not to ask for more at the moment. A follower does not know whether it is in sync; one that has all
        that its leader had when it last asked is left alone."""
        if not self.followers or partition.key not in self.followers:
            return False
        return self._received.is_exceeded

    def received(self, partition: ReplicatedPartition, size_bytes: int) -> None:
        if self.followers and partition.key in self.followers:
            self._received.record(size_bytes)
