"""The action that resets the committed offsets of a group, in seven ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import GROUP, PARTITIONS, named_partitions, read_numbers, texts
from headrace.console.actions.topic_fields import NEW_TOPIC
from headrace.console.cluster.offset_resets import NEEDS_VALUE, WAYS, NewOffset, plan_reset, read_reset
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest
from headrace.console.texts import count_text

_FLAGS = {
    "earliest": "--to-earliest",
    "latest": "--to-latest",
    "current": "--to-current",
    "offset": "--to-offset",
    "shift": "--shift-by",
    "datetime": "--to-datetime",
    "duration": "--by-duration",
}


async def _plan(request: ConsoleRequest) -> dict[TopicPartition, NewOffset]:
    topic, numbers = request.text("topic"), read_numbers(request.text("partitions"))
    if numbers and not topic:
        raise BadFields({"topic": "give the topic of the partitions"}, texts(request))
    try:
        reset = read_reset(request.text("to"), request.text("value").strip(), request.services.clock.wall_ms())
        partitions = await named_partitions(request, topic, numbers) if topic else None
        found = await plan_reset(request.cluster.admin, request.text("group"), reset, partitions)
    except ValueError as error:
        raise BadFields({"value": str(error)}, texts(request)) from None
    if not found:
        raise BadFields({"topic": "the group has committed no offsets; give a topic"}, texts(request))
    return found


async def preview(request: ConsoleRequest) -> Preview:
    found = await _plan(request)
    rows = [
        (
            at.topic,
            str(at.partition),
            count_text(each.before),
            count_text(each.after),
            "" if each.before is None else f"{each.after - each.before:+,}",
            "" if each.after == each.wanted else f"{count_text(each.wanted)} is outside of the partition",
        )
        for at, each in found.items()
    ]
    changed = sum(each.before != each.after for each in found.values())
    return Preview(
        (
            f"The offsets of {changed} of {len(found)} partitions change.",
            "Records before a later offset are not read; records behind an earlier offset are read again.",
        ),
        ("topic", "partition", "committed now", "committed then", "change", "note"),
        tuple(rows),
    )


async def run(request: ConsoleRequest) -> Done:
    """Resets committed offsets of a group without members. Without a topic, of all topics that it has read."""
    group, found = request.text("group"), await _plan(request)
    offsets = {at: each.after for at, each in found.items()}
    (await request.cluster.admin.alter_group_offsets(group, offsets)).all()
    return Done(f"The offsets of {len(found)} partitions were reset.", link("/groups/{group}", group=group))


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "consumer-groups", "--reset-offsets", "--group", str(values["group"])]
    topic, numbers = str(values["topic"]), read_numbers(str(values["partitions"]))
    if topic:
        words += ["--topic", f"{topic}:{','.join(map(str, numbers))}" if numbers else topic]
    else:
        words += ["--all-topics"]
    way = str(values["to"])
    # With "=", a negative number is not taken for an option.
    words += [f"{_FLAGS[way]}={values['value']}" if way in NEEDS_VALUE else _FLAGS[way]]
    return [*words, "--execute"]


ACTION = Action(
    "reset-offsets",
    "Reset offsets",
    "Reset the offsets",
    (
        GROUP,
        replace(NEW_TOPIC, label="Topic", is_required=False, help="empty: all topics with committed offsets"),
        PARTITIONS,
        Field("to", "Reset to", kind="choice", choices=WAYS, default="earliest", help="the way to choose the offset"),
        Field("value", longest=100, help="; ".join(f"{way}: {what}" for way, what in NEEDS_VALUE.items())),
    ),
    run,
    command_line,
    preview,
    section="/groups",
)
