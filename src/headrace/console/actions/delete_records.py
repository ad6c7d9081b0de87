"""The action that deletes the oldest records of a partition, or of all partitions of a topic."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest
from headrace.console.texts import count_text

#: DeleteRecords takes it for the end of the partition.
_END = -1


async def _chosen(request: ConsoleRequest) -> dict[TopicPartition, int]:
    """The offset before which records are deleted, by partition."""
    name, partition = request.text("topic"), request.number_or_none("partition")
    offset = request.number_or_none("before_offset")
    topic = await request.cluster.topic(name)
    numbers = [each.partition for each in topic.partitions]
    if partition is not None and partition not in numbers:
        raise BadFields({"partition": f"the topic has the partitions 0 to {len(numbers) - 1}"}, _texts(request))
    if partition is None and offset is not None:
        raise BadFields({"before_offset": "give the partition too"}, _texts(request))
    wanted = numbers if partition is None else [partition]
    return {TopicPartition(name, number): _END if offset is None else offset for number in wanted}


def _texts(request: ConsoleRequest) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in request.values.items()}


async def preview(request: ConsoleRequest) -> Preview:
    before = await _chosen(request)
    ends = await request.cluster.ends(before)
    rows = []
    for at, offset in before.items():
        first, end = ends[at]
        to = end if offset == _END else offset
        count = None if first is None or to is None else max(0, min(to, end or 0) - first)
        rows.append((str(at.partition), count_text(first), count_text(to), count_text(count)))
    return Preview(
        ("The records before these offsets are deleted on all brokers, and nothing brings them back.",),
        ("partition", "first offset now", "first offset then", "offsets deleted"),
        tuple(rows),
        standard_input=_offsets_file(before),
    )


def _offsets_file(before: Mapping[TopicPartition, int]) -> str:
    partitions = [{"topic": at.topic, "partition": at.partition, "offset": offset} for at, offset in before.items()]
    return json.dumps({"version": 1, "partitions": partitions})


async def run(request: ConsoleRequest) -> Done:
    """Deletes the records before an offset; without an offset, all. Without a partition, of all partitions."""
    before = await _chosen(request)
    (await request.cluster.admin.delete_records(before)).all()
    name = request.text("topic")
    return Done(f"Records of {len(before)} partitions of {name} were deleted.", link("/topics/{topic}", topic=name))


def command_line(_: Mapping[str, Value]) -> list[str]:
    """The command reads the offsets from a file; the preview has them."""
    return ["headrace", "delete-records", "--offset-json-file", "/dev/stdin"]


ACTION = Action(
    "delete-records",
    "Delete records",
    "Delete the records",
    (
        TOPIC,
        Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: all partitions"),
        Field("before_offset", "Before offset", kind="number", default=None, least=0, help="empty: all records"),
    ),
    run,
    command_line,
    preview,
    typed="topic",
    section="/topics",
)
