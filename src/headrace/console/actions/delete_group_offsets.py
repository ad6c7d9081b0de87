"""The action that deletes the committed offsets of a topic from a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import GROUP, PARTITIONS, read_numbers, texts
from headrace.console.actions.topic_fields import NEW_TOPIC
from headrace.console.fields import Value
from headrace.console.problems import BadFields
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


async def _chosen(request: ConsoleRequest) -> dict[TopicPartition, int]:
    """The committed offsets that are deleted. The topic itself may be gone."""
    topic, numbers = request.text("topic"), read_numbers(request.text("partitions"))
    committed = await request.cluster.admin.list_group_offsets(request.text("group"))
    found = {
        at: offset.offset
        for at, offset in committed.items()
        if at.topic == topic and (not numbers or at.partition in numbers)
    }
    if not found:
        raise BadFields({"topic": "the group has committed no such offsets"}, texts(request))
    return found


async def preview(request: ConsoleRequest) -> Preview:
    found = await _chosen(request)
    return Preview(
        ("These offsets are deleted. A consumer of the group then begins where auto.offset.reset says.",),
        ("topic", "partition", "committed offset"),
        tuple((at.topic, str(at.partition), str(offset)) for at, offset in found.items()),
    )


async def run(request: ConsoleRequest) -> Done:
    """Deletes committed offsets of a topic to which no member is subscribed."""
    group, found = request.text("group"), await _chosen(request)
    (await request.cluster.admin.delete_group_offsets(group, found)).all()
    return Done(f"The offsets of {len(found)} partitions were deleted.", link("/groups/{group}", group=group))


def command_line(values: Mapping[str, Value]) -> list[str]:
    topic, numbers = str(values["topic"]), read_numbers(str(values["partitions"]))
    named = f"{topic}:{','.join(map(str, numbers))}" if numbers else topic
    return ["headrace", "consumer-groups", "--delete-offsets", "--group", str(values["group"]), "--topic", named]


ACTION = Action(
    "delete-group-offsets",
    "Delete offsets of a topic",
    "Delete the offsets",
    (GROUP, replace(NEW_TOPIC, label="Topic"), PARTITIONS),
    run,
    command_line,
    preview,
    typed="topic",
    section="/groups",
)
