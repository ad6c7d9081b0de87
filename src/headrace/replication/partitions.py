"""The partitions that this broker has: alone it leads them all, in a cluster it follows others in some."""

from collections.abc import Callable, Iterator

from headrace.protocol.errors import KafkaError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from headrace.replication.partition import ANY_EPOCH, Partition


class Partitions:
    def __init__(self, is_elsewhere: Callable[[str, int], bool] = lambda _topic, _index: False) -> None:
        """
        :param is_elsewhere: whether a partition that is not here is known to exist.
        """
        self._is_elsewhere = is_elsewhere
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._lost: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def add(self, partition: Partition) -> None:
        self._partitions[partition.log.topic, partition.log.partition] = partition

    def remove(self, topic: str, index: int) -> None:
        self._partitions.pop((topic, index), None)
        self._lost.discard((topic, index))

    def lose(self, topic: str, index: int) -> None:
        """The partition is ours, but its log is on a disk that does not work."""
        self._partitions.pop((topic, index), None)
        self._lost.add((topic, index))

    def is_lost(self, topic: str, index: int) -> bool:
        return (topic, index) in self._lost

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def leader(self, topic: str, index: int, epoch: int = ANY_EPOCH) -> Partition:
        """The partition, if we lead it in that epoch.

        :raises KafkaError: with the code that tells the client what to do instead.
        """
        partition = self.replica(topic, index, epoch)
        if not partition.is_leader:
            raise NotLeaderOrFollower(f"this broker does not lead {topic}-{index}")
        return partition

    def replica(self, topic: str, index: int, epoch: int = ANY_EPOCH) -> Partition:
        """The partition, whether we lead it or not, as long as the peer knows the same epoch.

        :raises KafkaError: with the code that tells the client what to do instead.
        """
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._missing(topic, index)
        if epoch != ANY_EPOCH:
            partition.check_epoch(epoch)
        return partition

    def _missing(self, topic: str, index: int) -> KafkaError:
        if (topic, index) in self._lost:
            return StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
        if self._is_elsewhere(topic, index):
            return NotLeaderOrFollower(f"{topic}-{index} is at other brokers, or we have not heard yet that it is here")
        return UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
