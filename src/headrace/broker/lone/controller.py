"""The controller of a lone broker: answers requests for elections and reassignments as a cluster of one broker would.

Nothing ever changes, because no other broker could lead a partition or replicate it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, PartitionInfo
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from headrace.controller.decisions.leader_elections import ElectionStrategy
    from headrace.controller.decisions.reassignments import Assignment

Outcomes = dict[TopicPartition, KafkaError | None]


class LoneController:
    """Imports modules of the controller on first use: most brokers are never asked for an election."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    async def elect_leaders(self, partitions: Iterable[TopicPartition] | None, how: ElectionStrategy) -> Outcomes:
        """No leader changes: this broker leads a partition already, or the partition's log dir is offline."""
        if partitions is not None:
            return {partition: self._refusal(partition, how) for partition in partitions}
        return {
            (topic.name, index): self._refusal((topic.name, index), how)
            for topic in self._metadata
            for index, found in enumerate(topic.partitions)
            if found.leader_id == NO_LEADER
        }

    def _refusal(self, partition: TopicPartition, how: ElectionStrategy) -> KafkaError:
        from headrace.controller.decisions.leader_elections import ElectionStrategy, Refusal

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
        """The only valid target of a partition is its current replica, this broker."""
        from headrace.controller.decisions.reassignments import Assignment, check_move

        outcomes: Outcomes = {}
        for partition, target in targets.items():
            outcomes[partition] = None
            try:
                found = self._partition(partition)
                at = Assignment(found.replicas)
                check_move(at, target, self._metadata.nodes, found.isr, may_change_count=may_change_count)
            except KafkaError as error:
                # Its traceback refers to ``outcomes``: without the cycle no garbage collection is needed.
                outcomes[partition] = error.with_traceback(None)
        return outcomes

    def reassignments(self) -> dict[TopicPartition, Assignment]:
        return {}

    def _partition(self, partition: TopicPartition) -> PartitionInfo:
        name, index = partition
        partitions = self._metadata.named(name).partitions
        if not 0 <= index < len(partitions):
            raise UnknownTopicOrPartition(f"topic {name!r} has no partition {index}")
        return partitions[index]
