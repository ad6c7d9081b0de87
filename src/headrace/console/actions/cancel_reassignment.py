"""The action that cancels the move of a partition."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.group_fields import texts
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.cluster.reassignments import plan_text
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest


def _partition(request: ConsoleRequest) -> TopicPartition:
    return TopicPartition(request.text("topic"), request.number("partition"))


async def preview(request: ConsoleRequest) -> Preview:
    at = _partition(request)
    moving = (await request.cluster.admin.list_partition_reassignments([at])).get(at)
    if moving is None:
        raise BadFields({"partition": "the partition is not being moved"}, texts(request))
    before = sorted(each for each in moving.replicas if each not in moving.adding_replicas)
    return Preview(
        (f"The partition stays on {', '.join(map(str, before))}; what was copied already is deleted.",),
        standard_input=plan_text({at: moving.replicas}),
    )


async def run(request: ConsoleRequest) -> Done:
    """Cancels the move of a partition, so that it stays on its earlier brokers."""
    at = _partition(request)
    (await request.cluster.admin.alter_partition_reassignments({at: None})).value(at)
    return Done(f"The move of {at} was cancelled.", "/cluster#moves")


def command_line(_: Mapping[str, Value]) -> list[str]:
    """The command reads the partition from a file; the preview has it. The console keeps throttles."""
    file = ["--reassignment-json-file", "/dev/stdin"]
    return ["headrace", "reassign-partitions", "--cancel", *file, "--preserve-throttles"]


ACTION = Action(
    "cancel-reassignment",
    "Cancel a move",
    "Cancel the move",
    (TOPIC, Field("partition", kind="number", is_required=True, least=0, most=2**31 - 1)),
    run,
    command_line,
    preview,
    section="/cluster",
)
