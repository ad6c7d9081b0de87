"""The controller of a broker alone, to clients that ask for elections and moves: nobody else could lead or take over.

It has the methods of ``controller.controller.Controller`` that clients' requests need, with the same answers as a
cluster of one broker would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, PartitionInfo
from headrace.controller.decisions.leader_elections import ElectionStrategy, Refusal
from headrace.controller.decisions.reassignments import Assignment, check_move
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError, UnknownTopicOrPartition

Outcomes = dict[TopicPartition, KafkaError | None]


class LoneController:
    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    async def elect_leaders(self, partitions: Iterable[TopicPartition] | None, how: ElectionStrategy) -> Outcomes:
        """Nothing comes of it: we lead a partition already, or its log dir is offline."""
        if partitions is not None:
            return {partition: self._refusal(partition, how) for partition in partitions}
        return {
            (topic.name, index): self._refusal((topic.name, index), how)
            for topic in self._metadata
            for index, found in enumerate(topic.partitions)
            if found.leader_id == NO_LEADER
        }

    def _refusal(self, partition: TopicPartition, how: ElectionStrategy) -> KafkaError:
        try:
            found = self._partition(partition)
        except UnknownTopicOrPartition as error:
            return error
        if found.leader_id != NO_LEADER:
            why = Refusal.NOT_NEEDED
        elif how is ElectionStrategy.PREFERRED:
            why = Refusal.PREFERRED_NOT_IN_SYNC
        else:
            why = Refusal.NO_REPLICA_ONLINE
        return why.error(f"{partition[0]}-{partition[1]}")

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> Outcomes:
        """A partition may be moved to where it is, and nowhere else."""
        outcomes: Outcomes = {}
        for partition, target in targets.items():
            outcomes[partition] = None
            try:
                found = self._partition(partition)
                at = Assignment(found.replicas)
                check_move(at, target, self._metadata.nodes, found.isr, may_change_count=may_change_count)
            except KafkaError as error:
                outcomes[partition] = error
        return outcomes

    def reassignments(self) -> dict[TopicPartition, Assignment]:
        return {}

    def _partition(self, partition: TopicPartition) -> PartitionInfo:
        name, index = partition
        partitions = self._metadata.named(name).partitions
        if not 0 <= index < len(partitions):
            raise UnknownTopicOrPartition(f"topic {name!r} has no partition {index}")
        return partitions[index]
