"""The action that removes a member from a group."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import GROUP, LONGEST_NAME, texts
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    wanted = request.text("member")
    members = (await request.cluster.admin.describe_group(request.text("group"))).members
    found = [each for each in members if wanted in (each.member_id, each.instance_id)]
    if not found:
        raise BadFields({"member": "the group has no such member"}, texts(request))
    (member,) = found
    return Preview(
        (
            f"The client {member.client_id} at {member.host} loses its partitions; the other members get them.",
            "A client that still runs joins the group again.",
            "No command removes a single member: the command below only shows the members.",
        ),
        ("topic", "partition"),
        tuple((at.topic, str(at.partition)) for at in member.assignment[:200]),
    )


async def run(request: ConsoleRequest) -> Done:
    """Removes a member from a group. The member may join again."""
    group, member = request.text("group"), request.text("member")
    (await request.cluster.admin.remove_members(group, [member])).value(member)
    return Done(f"The member {member} was removed.", link("/groups/{group}", group=group))


def command_line(values: Mapping[str, Value]) -> list[str]:
    """No command of Kafka's removes one member; the command shows the members."""
    return ["headrace", "consumer-groups", "--describe", "--members", "--group", str(values["group"])]


ACTION = Action(
    "remove-member",
    "Remove a member",
    "Remove the member",
    (GROUP, Field("member", is_required=True, longest=LONGEST_NAME, is_fixed=True, help="a member id or instance id")),
    run,
    command_line,
    preview,
    section="/groups",
)
