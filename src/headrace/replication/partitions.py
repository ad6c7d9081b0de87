"""The partitions that this broker leads."""

from collections.abc import Iterator

from headrace.protocol.errors import UnknownTopicOrPartition
from headrace.replication.partition import ANY_EPOCH, Partition


class Partitions:
    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], Partition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def add(self, partition: Partition) -> None:
        self._partitions[partition.log.topic, partition.log.partition] = partition

    def remove(self, topic: str, index: int) -> None:
        self._partitions.pop((topic, index), None)

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def leader(self, topic: str, index: int, epoch: int = ANY_EPOCH) -> Partition:
        """The partition, if we lead it in that epoch.

        :raises KafkaError: with the code that tells the client what to do instead.
        """
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {topic}-{index}")
        if epoch != ANY_EPOCH:
            partition.check_epoch(epoch)
        return partition
