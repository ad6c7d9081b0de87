"""Holds the fields that the pages about records share."""

from __future__ import annotations

import asyncio

from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import Ends
from headrace.console.fields import Field
from headrace.console.problems import BadFields, NotFound
from headrace.console.records.browsing import wrong_offsets
from headrace.console.records.decoding import FORMATS
from headrace.console.request import ConsoleRequest

#: About 2,000 partitions with their offsets.
LONGEST_OFFSETS = 40_000
_TIMEOUT_MS = 5_000

KEY_FORMAT = Field("key_format", "Keys as", kind="choice", choices=FORMATS, default="auto")
VALUE_FORMAT = Field("value_format", "Values as", kind="choice", choices=FORMATS, default="auto")


def offsets_field(name: str, text: str) -> Field:
    return Field(name, longest=LONGEST_OFFSETS, check=wrong_offsets, help=f"{text}: PARTITION:OFFSET,PARTITION:OFFSET")


async def partition_ends(request: ConsoleRequest) -> dict[int, Ends]:
    """The first and end offsets of the partitions that were asked for: one, or all that answer.

    :raises NotFound: if the topic does not have the partition.
    """
    name, chosen = request.text("topic"), request.number_or_none("partition")
    topic = await request.cluster.topic(name)
    numbers = [each.partition for each in topic.partitions if each.leader_id >= 0]
    if chosen is not None:
        if chosen not in {each.partition for each in topic.partitions}:
            raise NotFound(f"the topic {name} has no partition {chosen}")
        numbers = [chosen]
    known = await _ends(request, [TopicPartition(name, number) for number in numbers])
    if not known:
        raise NotFound(f"no partition of {name} has a leader that answers")
    return known


async def _ends(request: ConsoleRequest, partitions: list[TopicPartition]) -> dict[int, Ends]:
    """The offsets as they are now: who has just sent a record wants to find it."""
    list_offsets = request.cluster.admin.list_offsets
    first, end = await asyncio.gather(
        list_offsets(dict.fromkeys(partitions, "earliest"), timeout_ms=_TIMEOUT_MS),
        list_offsets(dict.fromkeys(partitions, "latest"), timeout_ms=_TIMEOUT_MS),
    )
    answered = first.ok.keys() & end.ok.keys()
    return {at.partition: Ends(first.ok[at].offset, end.ok[at].offset) for at in partitions if at in answered}


async def offsets_at(request: ConsoleRequest, partitions: list[int], time_ms: int) -> dict[int, int]:
    """The first offset of each partition at or after a time; partitions without such a record are left out."""
    name = request.text("topic")
    specs = {TopicPartition(name, number): time_ms for number in partitions}
    found = await request.cluster.admin.list_offsets(dict(specs), timeout_ms=_TIMEOUT_MS)
    return {at.partition: each.offset for at, each in found.ok.items() if each.offset >= 0}


def check_known(offsets: dict[int, int], ends: dict[int, Ends], name: str) -> dict[int, int]:
    """
    :raises BadFields: if the topic does not have one of the partitions.
    """
    if unknown := offsets.keys() - ends.keys():
        raise BadFields({name: f"there is no partition {min(unknown)}"})
    return offsets
