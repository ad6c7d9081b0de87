"""The interface that places a coordinator's shards on brokers, and says when an answer may be sent.

A group or a transactional id belongs to one partition of an internal topic, and the leader of that partition
coordinates it. There are two implementations:

- ``LonePlacement`` (``lone/coordinator_placement.py``): this broker leads all partitions, and an append is committed at
  once.
- ``ClusterPlacement`` (``cluster/coordinator_placement.py``): a shard moves with the leadership of its partition, and
  an answer waits until the followers have what it depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from headrace.replication.coordinator import ShardedCoordinator

AnyCoordinator = ShardedCoordinator[Any]


class CoordinatorPlacement(ABC):
    """For the coordinator of one internal topic."""

    #: Whether a partition with an empty log is loaded at once, and not by the background task.
    loads_empty_at_once: bool

    @abstractmethod
    def partition_count(self, coordinator: AnyCoordinator) -> int:
        """The number of partitions of the internal topic; it decides which partition a name belongs to.

        :raises CoordinatorLoadInProgress: if the number is not known yet, and will be.
        :raises NotCoordinator: if the number is not known, and this broker leads no partition of the topic.
        """

    @abstractmethod
    async def learn_partition_count(self) -> None:
        """Reads the number of partitions, if this broker does not know it yet.

        :raises CoordinatorNotAvailable: if there is no such topic, or the tree does not answer.
        """

    @abstractmethod
    async def topic_exists(self, load_led_partitions: Callable[[], None]) -> None:
        """A client looks for a coordinator, and the internal topic exists now.

        :raises CoordinatorNotAvailable: as :meth:`learn_partition_count`.
        """

    @abstractmethod
    def topic_deleted(self) -> None:
        """Forgets the number of partitions."""

    @abstractmethod
    async def wait_to_load(self, coordinator: AnyCoordinator) -> None:
        """Returns when partitions of this coordinator may be loaded, or when none is left to load."""

    @abstractmethod
    async def replicated(self, coordinator: AnyCoordinator, name: str, timeout_ms: int) -> None:
        """Waits until every record appended so far to the shard of ``name`` is committed. The caller may then answer
        the client. The caller must not have awaited anything since it used the shard.

        :raises NotCoordinator: if another broker coordinates ``name`` now; then what was written may be lost.
        :raises CoordinatorNotAvailable: if the time is up; then what was written may still become committed.
        """
