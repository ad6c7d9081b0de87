"""The page of a topic: its partitions with leaders, replicas and offsets, and its settings with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from headrace.client.admin.types import ConfigEntry, PartitionDescription
from headrace.client.types import TopicPartition
from headrace.console.cluster.defaults import default_of
from headrace.console.cluster.health import is_under_replicated
from headrace.console.cluster.reader import Ends
from headrace.console.fields import Field
from headrace.console.history.series import Series
from headrace.console.pages.page import Page
from headrace.console.pages.span import SPAN
from headrace.console.pages.topic_readers import Reader, topic_readers
from headrace.console.request import ConsoleRequest

_ROWS = 200
_LAG_LINES = 3


@dataclass(frozen=True)
class PartitionRow:
    """A partition. Offsets are None if its leader does not answer; sizes if no broker tells them."""

    partition: int
    leader_id: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    is_troubled: bool
    first_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """The offsets between first and end; compaction and transactions make the records fewer."""
        if self.first_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.first_offset


@dataclass(frozen=True)
class SettingRow:
    """A setting of a topic.

    :ivar value: None if the setting is sensitive, or has no value.
    :ivar source: Kafka's name of the layer that has the value.
    :ivar default: the value that counts if the topic's own is removed.
    :ivar is_own: whether the topic itself has the value.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    type: str
    is_own: bool
    is_sensitive: bool
    is_read_only: bool
    documentation: str


@dataclass(frozen=True)
class Topic:
    """A topic. The partitions are cut; ``page`` chooses the part. Readers and lines are as of the last sample."""

    name: str
    id: UUID | None
    is_internal: bool
    partition_count: int
    replication_factor: int
    partitions: tuple[PartitionRow, ...]
    page: int
    pages: int
    size_bytes: int | None
    readers: tuple[Reader, ...]
    lines: tuple[Series, ...]
    settings: tuple[SettingRow, ...]


async def read(request: ConsoleRequest) -> Topic:
    """The partitions of a topic with leaders, replicas, offsets and sizes, and the settings with their sources."""
    cluster, name = request.cluster, request.text("topic")
    topic = await cluster.topic(name)
    pages = max(1, -(-len(topic.partitions) // _ROWS))
    page = min(request.number("page"), pages)
    shown = topic.partitions[(page - 1) * _ROWS : page * _ROWS]
    led = [TopicPartition(name, each.partition) for each in shown if each.leader_id >= 0]
    ends = await cluster.ends(led)
    sizes = await cluster.sizes(name)
    settings = await cluster.settings("topic", name)
    broker = await cluster.broker_settings()
    readers = tuple((await topic_readers(request)).get(name, ()))
    return Topic(
        name,
        topic.id,
        topic.is_internal,
        len(topic.partitions),
        max((len(each.replicas) for each in topic.partitions), default=0),
        tuple(_partition_row(name, each, ends, sizes) for each in shown),
        page,
        pages,
        sum(sizes.values()) if sizes else None,
        readers,
        await _lines(request, readers),
        tuple(_setting_row(settings[each], broker) for each in sorted(settings)),
    )


async def _lines(request: ConsoleRequest, readers: tuple[Reader, ...]) -> tuple[Series, ...]:
    """Lines of the topic, and of the lag of the groups that are farthest behind."""
    history, topic, span = request.services.history, request.text("topic"), request.text("span")
    lines = list(await history.topic_lines(topic, span))
    behind = sorted(readers, key=lambda reader: -reader.lag)[:_LAG_LINES]
    lines += [(await history.group_lines(reader.group, topic, span)).lag for reader in behind]
    return tuple(lines)


def _partition_row(
    topic: str, partition: PartitionDescription, ends: dict[TopicPartition, Ends], sizes: dict[TopicPartition, int]
) -> PartitionRow:
    at = TopicPartition(topic, partition.partition)
    end = ends.get(at, Ends(None, None))
    return PartitionRow(
        partition.partition,
        None if partition.leader_id < 0 else partition.leader_id,
        partition.leader_epoch,
        partition.replicas,
        partition.in_sync_replicas,
        partition.leader_id < 0 or is_under_replicated(partition),
        end.first_offset,
        end.end_offset,
        sizes.get(at),
    )


def _setting_row(entry: ConfigEntry, broker: Mapping[str, ConfigEntry]) -> SettingRow:
    is_own = entry.source == "DYNAMIC_TOPIC_CONFIG"
    return SettingRow(
        entry.name,
        entry.value,
        entry.source,
        default_of(entry, broker),
        entry.type,
        is_own,
        entry.is_sensitive,
        entry.is_read_only,
        entry.documentation or "",
    )


PAGE = Page(
    "/topics/{topic}",
    "Topic {topic}",
    read,
    "topic.html",
    query=(
        SPAN,
        Field("page", kind="number", default=1, least=1, most=1_000_000, help="which partitions, from 1 on"),
    ),
    section="/topics",
    live_seconds=3,
)
