"""Makes the output of ``headrace topics --describe``, and applies its filters to topics and partitions. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.client.admin.types import ConfigEntry, PartitionDescription, Reassignment, TopicDescription
from headrace.client.types import TopicPartition
from headrace.tools.shared.commands import Table
from headrace.tools.shared.topic_names import topic_id_text

_HEADINGS = ("PARTITION", "LEADER", "REPLICAS", "ISR")


@dataclass(frozen=True)
class Filters:
    """The filters of partitions. Without a filter all partitions are printed, below a line for their topic."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    with_overrides: bool = False

    @property
    def of_partitions(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


@dataclass(frozen=True)
class Described:
    """A topic with its settings and the reassignments of its partitions."""

    topic: TopicDescription
    configs: Mapping[str, ConfigEntry] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)
    live_broker_ids: frozenset[int] = frozenset()

    @property
    def overrides(self) -> dict[str, str | None]:
        """The settings that differ from Kafka's defaults, whatever their source."""
        return {name: entry.value for name, entry in self.configs.items() if not entry.is_default}

    @property
    def replication_factor(self) -> int:
        first = self.topic.partitions[0]
        return len(first.replicas) - len(self.adding(first))

    def adding(self, partition: PartitionDescription) -> tuple[int, ...]:
        move = self.reassignments.get(TopicPartition(self.topic.name, partition.partition))
        return () if move is None else move.adding_replicas

    def removing(self, partition: PartitionDescription) -> tuple[int, ...]:
        move = self.reassignments.get(TopicPartition(self.topic.name, partition.partition))
        return () if move is None else move.removing_replicas

    def partitions(self, filters: Filters) -> list[PartitionDescription]:
        if filters.with_overrides:
            return []
        return [each for each in self.topic.partitions if not filters.of_partitions or self._passes(each, filters)]

    def _passes(self, partition: PartitionDescription, filters: Filters) -> bool:
        in_sync = len(partition.in_sync_replicas)
        replicas = len(partition.replicas) - len(self.adding(partition))
        minimum = self.configs.get("min.insync.replicas")
        least = 1 if minimum is None or minimum.value is None else int(minimum.value)
        return (
            (filters.under_replicated and in_sync < replicas)
            or (filters.unavailable and partition.leader_id not in self.live_broker_ids)
            or (filters.under_min_isr and in_sync < least)
            or (filters.at_min_isr and in_sync == least)
        )


def is_shown(described: Described, filters: Filters) -> bool:
    """Whether the line of the topic itself is printed."""
    return not filters.of_partitions and (not filters.with_overrides or bool(described.overrides))


def lines(described: Described, filters: Filters) -> Iterator[str]:
    """The lines of Kafka's tool."""
    topic = described.topic
    if is_shown(described, filters):
        overrides = ",".join(f"{name}={value}" for name, value in described.overrides.items())
        yield (
            f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {described.replication_factor}\tConfigs: {overrides}"
        )
    for partition in described.partitions(filters):
        yield _partition_line(described, partition)


def _partition_line(described: Described, partition: PartitionDescription) -> str:
    leader = "none" if partition.leader_id < 0 else partition.leader_id
    line = (
        f"\tTopic: {described.topic.name}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.in_sync_replicas)}"
    )
    if described.adding(partition) or described.removing(partition):
        line += f"\tAdding Replicas: {_ids(described.adding(partition))}"
        line += f"\tRemoving Replicas: {_ids(described.removing(partition))}"
    eligible, last_known = partition.eligible_leader_replicas, partition.last_known_eligible_replicas
    line += "\tElr: " + ("N/A" if eligible is None else _ids(eligible))
    return line + "\tLastKnownElr: " + ("N/A" if last_known is None else _ids(last_known))


def tables(topics: Iterable[Described], filters: Filters) -> Iterator[Table]:
    """Tables for a terminal: one per topic, or one table of all partitions that pass a filter."""
    if filters.with_overrides:
        rows = [(each.topic.name, name, text) for each in topics for name, text in each.overrides.items()]
        yield Table(("TOPIC", "CONFIG", "VALUE"), rows)
    elif filters.of_partitions:
        yield Table(("TOPIC", *_HEADINGS), [(each.topic.name, *row) for each in topics for row in _rows(each, filters)])
    else:
        for each in topics:
            yield Table(_HEADINGS, _rows(each, filters), _title(each))


def _rows(described: Described, filters: Filters) -> list[tuple[object, ...]]:
    return [
        (
            partition.partition,
            "none" if partition.leader_id < 0 else partition.leader_id,
            _ids(partition.replicas),
            _ids(partition.in_sync_replicas),
        )
        for partition in described.partitions(filters)
    ]


def _title(described: Described) -> str:
    overrides = ", ".join(f"{name}={text}" for name, text in described.overrides.items())
    topic_id = topic_id_text(described.topic.id)
    replication = f"replication factor {described.replication_factor}"
    return "\n".join(filter(None, (f"{described.topic.name}  id {topic_id}  {replication}", overrides)))


def value(described: Described, filters: Filters) -> dict[str, object]:
    """The value for ``--json``."""
    topic = described.topic
    return {
        "topic": topic.name,
        "topicId": topic_id_text(topic.id),
        "isInternal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": described.replication_factor,
        "configs": described.overrides,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": None if partition.leader_id < 0 else partition.leader_id,
                "replicas": list(partition.replicas),
                "isr": list(partition.in_sync_replicas),
                "addingReplicas": list(described.adding(partition)),
                "removingReplicas": list(described.removing(partition)),
            }
            for partition in described.partitions(filters)
        ],
    }


def _ids(broker_ids: Iterable[int]) -> str:
    return ",".join(map(str, broker_ids))
