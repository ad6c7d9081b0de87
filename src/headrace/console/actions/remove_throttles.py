"""The action that removes the throttles of moves from topics and from all brokers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.reassign_partitions import TOPICS, present_replicas, read_names
from headrace.console.cluster.reassignments import plan_text, remove_throttles
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    now = await present_replicas(request, read_names(request.text("topics")))
    return Preview(
        (
            "The settings leader.replication.throttled.* and follower.replication.throttled.* of these topics and of "
            "all brokers are removed. Moves that are not done then copy without a limit.",
            "The command below removes the throttles only if the partitions are where the list says.",
        ),
        standard_input=plan_text(now),
    )


async def run(request: ConsoleRequest) -> Done:
    """Removes the throttles of moves."""
    names = read_names(request.text("topics"))
    brokers = [node.id for node in (await request.cluster.cluster()).brokers]
    await remove_throttles(request.cluster.admin, names, brokers)
    return Done("The throttles were removed.", "/cluster#moves")


def command_line(_: Mapping[str, Value]) -> list[str]:
    return ["headrace", "reassign-partitions", "--verify", "--reassignment-json-file", "/dev/stdin"]


ACTION = Action(
    "remove-throttles", "Remove throttles", "Remove the throttles", (TOPICS,), run, command_line, preview,
    section="/cluster",
)  # fmt: skip
