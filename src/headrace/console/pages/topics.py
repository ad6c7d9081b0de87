"""The page Topics: one list, sorted, filtered and cut by the server, so that 10,000 topics make a small page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.types import TopicDescription
from headrace.console.cluster.health import is_under_replicated
from headrace.console.fields import Field
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class TopicRow:
    """A topic in the list.

    :ivar troubled: partitions without a leader, or with a replica that is not in sync.
    """

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    troubled: int


@dataclass(frozen=True)
class Topics:
    """The list of topics."""

    topics: Listing[TopicRow]
    hidden_internal: int


_COLUMNS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "troubled": lambda row: row.troubled,
}


async def read(request: ConsoleRequest) -> Topics:
    """The topics that the user may see. Lists are cut: page and rows choose the part."""
    found = (await request.cluster.topics()).values()
    with_internal = request.flag("internal")
    rows = [_row(topic) for topic in found if with_internal or not topic.is_internal]
    return Topics(list_rows(request, rows, _COLUMNS, text=lambda row: row.name), len(found) - len(rows))


def _row(topic: TopicDescription) -> TopicRow:
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        max((len(partition.replicas) for partition in topic.partitions), default=0),
        sum(partition.leader_id < 0 or is_under_replicated(partition) for partition in topic.partitions),
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
