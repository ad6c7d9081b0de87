"""The action that adds partitions to a topic."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    name, wanted = request.text("topic"), request.number("partitions")
    now = len((await request.cluster.topic(name)).partitions)
    if wanted <= now:
        raise BadFields({"partitions": f"the topic has {now} partitions; give more"}, _texts(request))
    return Preview(
        (
            f"The topic {name} has {now} partitions, and gets {wanted - now} more.",
            "Partitions cannot be taken away again. Producers that choose the partition by the key send the records of "
            "many keys to another partition than before, so their order is lost once.",
        )
    )


def _texts(request: ConsoleRequest) -> dict[str, str]:
    return {name: str(value) for name, value in request.values.items()}


async def run(request: ConsoleRequest) -> Done:
    """Gives a topic more partitions. The number is the new total."""
    name, wanted = request.text("topic"), request.number("partitions")
    (await request.cluster.admin.create_partitions({name: wanted})).value(name)
    return Done(f"The topic {name} has {wanted} partitions now.", link("/topics/{topic}", topic=name))


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "topics", "--alter", "--topic", str(values["topic"]), "--partitions", str(values["partitions"])]


ACTION = Action(
    "add-partitions",
    "Add partitions",
    "Add the partitions",
    (TOPIC, Field("partitions", "New number of partitions", kind="number", is_required=True, least=2, most=100_000)),
    run,
    command_line,
    preview,
    section="/topics",
)
