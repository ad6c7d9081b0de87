"""The page Topics: one list, sorted, filtered and cut by the server, so that 10,000 topics make a small page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.types import TopicDescription
from headrace.console.cluster.health import is_under_replicated
from headrace.console.fields import Field
from headrace.console.history.history import History
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.pages.topic_readers import Reader, topic_readers
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class TopicRow:
    """A topic in the list.

    :ivar troubled: partitions without a leader, or with a replica that is not in sync.
    :ivar size_bytes, records_per_second: None if there is no sample yet.
    :ivar groups: how many groups read the topic, of those that the user may see.
    :ivar lag: how many records these groups have not read; None if no group reads the topic.
    """

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    troubled: int
    size_bytes: int | None
    records_per_second: float | None
    bytes_per_second: float | None
    groups: int
    lag: int | None


@dataclass(frozen=True)
class Topics:
    """The list of topics.

    :ivar retention_ms: how long the shown topics keep records; -1 is for ever.
    """

    topics: Listing[TopicRow]
    hidden_internal: int
    retention_ms: dict[str, int]


_COLUMNS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "troubled": lambda row: row.troubled,
    "size": lambda row: row.size_bytes,
    "rate": lambda row: row.records_per_second,
    "groups": lambda row: row.groups,
    "lag": lambda row: row.lag,
}


async def read(request: ConsoleRequest) -> Topics:
    """The topics that the user may see. Lists are cut: page and rows choose the part."""
    found = (await request.cluster.topics()).values()
    with_internal = request.flag("internal")
    readers = await topic_readers(request)
    history = request.services.history
    rows = [
        _row(topic, history, readers.get(topic.name, ())) for topic in found if with_internal or not topic.is_internal
    ]
    listing = list_rows(request, rows, _COLUMNS, text=lambda row: row.name)
    retention_ms = await request.cluster.numbers("retention.ms", [row.name for row in listing.rows])
    return Topics(listing, len(found) - len(rows), retention_ms)


def _row(topic: TopicDescription, history: History, readers: Sequence[Reader]) -> TopicRow:
    sample = None if history.latest is None else history.latest.topics.get(topic.name)
    rates = history.rates(topic.name)
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        max((len(partition.replicas) for partition in topic.partitions), default=0),
        sum(partition.leader_id < 0 or is_under_replicated(partition) for partition in topic.partitions),
        None if sample is None else sample.size_bytes,
        None if rates is None else rates.records,
        None if rates is None else rates.bytes,
        len(readers),
        sum(reader.lag for reader in readers) if readers else None,
    )


PAGE = Page(
    "/topics",
    "Topics",
    read,
    "topics.html",
    query=(
        *listing_fields(_COLUMNS, "name"),
        Field("internal", "Internal topics", kind="flag", default=False, help="also the topics of the brokers"),
    ),
    navigation="Topics",
    live_seconds=5,
)
