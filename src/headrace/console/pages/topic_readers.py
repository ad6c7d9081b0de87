"""Finds the groups that read topics, and their lag, as of the last sample: no page asks for all groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from headrace.client.errors import BrokerError
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class Reader:
    """A group that has committed offsets of a topic.

    :ivar lag: how many records the group has not read.
    """

    group: str
    lag: int


async def topic_readers(request: ConsoleRequest) -> dict[str, list[Reader]]:
    """The readers by topic. The sampler may see groups that the visitor may not see; those are left out."""
    sample = request.services.history.latest
    if sample is None or not sample.groups:
        return {}
    try:
        visible = {group.group_id for group in await request.cluster.groups()}
    except BrokerError:
        return {}
    found: dict[str, list[Reader]] = defaultdict(list)
    for (group, topic), read in sorted(sample.groups.items()):
        if group in visible:
            found[topic].append(Reader(group, read.lag))
    return found
