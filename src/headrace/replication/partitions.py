"""Holds the partitions of this broker: those that it leads and, in a cluster, those that it follows."""

from collections.abc import Callable, Iterator

from headrace.protocol.errors import KafkaError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from headrace.replication.partition import ANY_EPOCH, Partition


class Partitions:
    """The partitions that have a replica on this broker, by topic and number."""

    def __init__(self, exists_elsewhere: Callable[[str, int], bool] = lambda _topic, _index: False) -> None:
        """
        :param exists_elsewhere: tells whether a partition without a replica here is known to exist.
        """
        self._exists_elsewhere = exists_elsewhere
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def add(self, partition: Partition) -> None:
        self._partitions[partition.log.topic, partition.log.partition] = partition

    def remove(self, topic: str, index: int) -> None:
        self._partitions.pop((topic, index), None)
        self._offline.discard((topic, index))

    def mark_offline(self, topic: str, index: int) -> None:
        """Notes that the partition has a replica here, but its log is on a disk that failed."""
        self._partitions.pop((topic, index), None)
        self._offline.add((topic, index))

    def is_offline(self, topic: str, index: int) -> bool:
        return (topic, index) in self._offline

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def leader(self, topic: str, index: int, epoch: int = ANY_EPOCH) -> Partition:
        """The partition, if this broker leads it in that epoch.

        :raises KafkaError: if not. The error code tells the client what to do.
        """
        partition = self.replica(topic, index, epoch)
        if not partition.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead the partition {topic}-{index}")
        return partition

    def replica(self, topic: str, index: int, epoch: int = ANY_EPOCH) -> Partition:
        """The partition, whether this broker leads or follows, if the peer names the same leader epoch.

        :raises KafkaError: if not. The error code tells the client what to do.
        """
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._missing(topic, index)
        if epoch != ANY_EPOCH:
            partition.check_epoch(epoch)
        return partition

    def _missing(self, topic: str, index: int) -> KafkaError:
        if (topic, index) in self._offline:
            return StorageError(f"the log of {topic}-{index} is in a log dir that is offline")
        if self._exists_elsewhere(topic, index):
            return NotLeaderOrFollower(
                f"{topic}-{index} has its replicas on other brokers, or the controller has not told this broker yet"
            )
        return UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
