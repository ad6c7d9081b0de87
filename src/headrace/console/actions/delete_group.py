"""The action that deletes a group with its committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.errors import ErrorCode, error_for
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import GROUP
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    name, admin = request.text("group"), request.cluster.admin
    group = await admin.describe_group(name)
    if group.members:
        raise error_for(ErrorCode.non_empty_group, f"the group {name!r} has {len(group.members)} members")
    offsets = await admin.list_group_offsets(name)
    topics = sorted({at.topic for at in offsets})
    return Preview(
        (
            f"The group {name} has committed offsets of {len(offsets)} partitions of {len(topics)} topics.",
            "All of them are deleted. A consumer that comes back begins where auto.offset.reset says.",
        ),
        ("topic", "partition", "committed offset"),
        tuple((at.topic, str(at.partition), str(offset.offset)) for at, offset in list(offsets.items())[:200]),
    )


async def run(request: ConsoleRequest) -> Done:
    """Deletes a group that has no members."""
    name = request.text("group")
    await request.cluster.admin.delete_group(name)
    return Done(f"The group {name} was deleted.", "/groups")


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "consumer-groups", "--delete", "--group", str(values["group"])]


ACTION = Action(
    "delete-group", "Delete a group", "Delete the group", (GROUP,), run, command_line, preview,
    typed="group", section="/groups",
)  # fmt: skip
