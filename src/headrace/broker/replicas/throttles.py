"""Throttled replication (KIP-73): limits the bytes per second of replicas that are being moved.

Topic settings name the throttled replicas: ``leader.replication.throttled.replicas`` for the sending side,
``follower.replication.throttled.replicas`` for the receiving side, as ``partition:broker,partition:broker,...`` or
``*``. Broker settings name the rates: ``leader.replication.throttled.rate`` and
``follower.replication.throttled.rate``. A replica that is in sync is never throttled, because the throttle would push
it out of the ISR.

The rate is measured over the last windows (``replication.quota.window.num`` windows of
``replication.quota.window.size.seconds``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.quotas.rates import RateLimit, windows_of
from headrace.replication.replicated_partition import ReplicatedPartition
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_ALL = "*"


class ThrottledPartitions:
    """The partitions that are throttled on this broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        #: The throttled partitions by topic; None means all partitions.
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


class Throttles:
    """The throttled partitions and the rates of this broker, as a leader and as a follower."""

    def __init__(self, broker_id: int, config: BrokerConfig, clock: Clock) -> None:
        windows = windows_of(config, "replication.quota.window")
        self.leaders, self.followers = ThrottledPartitions(broker_id), ThrottledPartitions(broker_id)
        self._sent, self._received = (
            RateLimit(clock, lambda name=name: config.int(name), windows)  # type: ignore[misc]
            for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        )

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.leaders.configure(topic, overrides.get(LEADER_REPLICAS, ""))
        self.followers.configure(topic, overrides.get(FOLLOWER_REPLICAS, ""))

    # For a leader

    def must_wait(self, partition: ReplicatedPartition, replica_id: int) -> bool:
        if not self.leaders or partition.key not in self.leaders:
            return False
        leader = partition.leader
        return leader is not None and replica_id not in leader.isr and self._sent.is_exceeded

    def sent(self, partition: ReplicatedPartition, size_bytes: int) -> None:
        if self.leaders and partition.key in self.leaders:
            self._sent.record(size_bytes)

    # For a follower

    def must_pause(self, partition: ReplicatedPartition) -> bool:
        """Whether the follower must not fetch now. A follower does not know whether it is in sync; the caller asks only
        for partitions that are behind their leader."""
        if not self.followers or partition.key not in self.followers:
            return False
        return self._received.is_exceeded

    def received(self, partition: ReplicatedPartition, size_bytes: int) -> None:
        if self.followers and partition.key in self.followers:
            self._received.record(size_bytes)
