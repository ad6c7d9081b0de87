"""The action that deletes a topic."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.types import TopicPartition
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest
from headrace.console.texts import count_text


async def preview(request: ConsoleRequest) -> Preview:
    name = request.text("topic")
    topic = await request.cluster.topic(name)
    led = [TopicPartition(name, each.partition) for each in topic.partitions if each.leader_id >= 0]
    ends = await request.cluster.ends(led)
    offsets = sum((end.end_offset or 0) - (end.first_offset or 0) for end in ends.values())
    return Preview(
        (
            f"The topic {name} has {len(topic.partitions)} partitions with up to {count_text(offsets)} records.",
            "All of them are deleted on all brokers, and nothing brings them back.",
        )
    )


async def run(request: ConsoleRequest) -> Done:
    """Deletes a topic with all its records."""
    name = request.text("topic")
    await request.cluster.admin.delete_topic(name)
    return Done(f"The topic {name} was deleted.", "/topics")


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "topics", "--delete", "--topic", str(values["topic"])]


ACTION = Action(
    "delete-topic",
    "Delete a topic",
    "Delete the topic",
    (TOPIC,),
    run,
    command_line,
    preview,
    typed="topic",
    section="/topics",
)
