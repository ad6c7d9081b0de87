"""The action that moves partitions of topics to other brokers: a plan, its preview, and perhaps a throttle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.command_lines import options
from headrace.console.actions.group_fields import read_numbers, texts, wrong_numbers
from headrace.console.actions.topic_fields import wrong_topic_name
from headrace.console.cluster.reader import largest_replicas
from headrace.console.cluster.reassignments import Plan, plan_moves, plan_text, throttle
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest
from headrace.console.texts import bytes_text

_MOST_ROWS = 500


def read_names(text: str) -> list[str]:
    """Reads names of topics with commas between them."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def wrong_names(text: str) -> str:
    return next((wrong for wrong in map(wrong_topic_name, read_names(text)) if wrong), "")


TOPICS = Field(
    "topics", is_required=True, longest=20_000, check=wrong_names, help="names of topics with commas between them"
)


async def present_replicas(request: ConsoleRequest, names: list[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of all partitions of topics."""
    return {
        TopicPartition(name, each.partition): each.replicas
        for name in names
        for each in (await request.cluster.topic(name)).partitions
    }


async def _plan(request: ConsoleRequest) -> tuple[dict[TopicPartition, tuple[int, ...]], Plan]:
    """The present replicas of the partitions that change, and their new replicas."""
    if await request.cluster.admin.list_partition_reassignments():
        raise BadFields({"topics": "partitions are being moved; wait until they are done, or cancel"}, texts(request))
    now = await present_replicas(request, read_names(request.text("topics")))
    racks = {node.id: node.rack for node in (await request.cluster.cluster()).brokers}
    wanted = read_numbers(request.text("brokers"))
    if missing := [broker_id for broker_id in wanted if broker_id not in racks]:
        raise BadFields({"brokers": f"there is no broker {missing[0]} that runs"}, texts(request))
    held: Counter[int] = Counter()
    for topic in (await request.cluster.topics()).values():
        for partition in topic.partitions:
            held.update(partition.replicas)
    try:
        plan = plan_moves(now, {each: racks[each] for each in wanted}, request.number_or_none("replicas"), held)
    except ValueError as error:
        raise BadFields({"brokers": str(error)}, texts(request)) from None
    changed = {at: replicas for at, replicas in plan.items() if replicas != now[at]}
    if not changed:
        raise BadFields({"brokers": "all partitions are on these brokers already"}, texts(request))
    return {at: now[at] for at in changed}, changed


async def preview(request: ConsoleRequest) -> Preview:
    now, plan = await _plan(request)
    sizes = largest_replicas(await request.cluster.log_dirs())
    new = {at: [each for each in replicas if each not in now[at]] for at, replicas in plan.items()}
    copied = sum(sizes.get(at, 0) * len(brokers) for at, brokers in new.items())
    rows = [
        (
            str(at),
            ", ".join(map(str, now[at])),
            ", ".join(map(str, replicas)),
            bytes_text(sizes.get(at, 0) * len(new[at])),
        )
        for at, replicas in plan.items()
    ]
    limit = request.number_or_none("throttle")
    return Preview(
        (
            f"{len(plan)} partitions change, and brokers copy about {bytes_text(copied)}.",
            "Without a throttle, the copying takes all the bandwidth that there is."
            if limit is None
            else f"Each broker copies at most {bytes_text(limit)} per second. Remove the throttle after the move.",
        ),
        ("partition", "replicas now", "replicas then", "copied"),
        tuple(rows[:_MOST_ROWS]),
        standard_input=plan_text(plan),
    )


async def run(request: ConsoleRequest) -> Done:
    """Begins to move partitions. The page Cluster shows the progress, and cancels a move."""
    now, plan = await _plan(request)
    limit, admin = request.number_or_none("throttle"), request.cluster.admin
    if limit is not None:
        await throttle(admin, plan, now, limit)
    (await admin.alter_partition_reassignments(plan)).all()
    return Done(f"{len(plan)} partitions are being moved.", "/cluster#moves")


def command_line(values: Mapping[str, Value]) -> list[str]:
    """The command reads the plan from a file; the preview has it."""
    words = ["headrace", "reassign-partitions", "--execute", "--reassignment-json-file", "/dev/stdin"]
    return words + options(values, {"throttle": "--throttle"})


ACTION = Action(
    "reassign-partitions",
    "Move partitions",
    "Move the partitions",
    (
        TOPICS,
        Field("brokers", is_required=True, check=wrong_numbers, help="ids with commas between them, such as 1,2,3"),
        Field(
            "replicas", "Replicas of each partition", kind="number", default=None, least=1, most=32_767,
            help="empty: as many as now",
        ),
        Field(
            "throttle", "Throttle, bytes per second per broker", kind="number", default=None, least=1_024,
            help="empty: no limit",
        ),
    ),
    run,
    command_line,
    preview,
    section="/cluster",
)  # fmt: skip
