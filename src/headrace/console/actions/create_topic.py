"""The action that creates a topic."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.types import NewTopic
from headrace.console.actions.action import Action, Done
from headrace.console.actions.command_lines import options
from headrace.console.actions.topic_fields import NEW_TOPIC, read_settings, wrong_settings
from headrace.console.fields import Field, Value
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


async def run(request: ConsoleRequest) -> Done:
    """Creates a topic. Without numbers, the defaults of the brokers count."""
    name = request.text("topic")
    partitions, replicas = request.number_or_none("partitions"), request.number_or_none("replication_factor")
    topic = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if replicas is None else replicas,
        read_settings(request.text("settings")),
    )
    (await request.cluster.admin.create_topics([topic])).value(name)
    return Done(f"The topic {name} was created.", link("/topics/{topic}", topic=name))


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "topics", "--create"]
    words += options(
        values,
        {"topic": "--topic", "partitions": "--partitions", "replication_factor": "--replication-factor"},
    )
    for name, value in read_settings(str(values["settings"])).items():
        words += ["--config", f"{name}={value}"]
    return words


ACTION = Action(
    "create-topic",
    "Create a topic",
    "Create the topic",
    (
        NEW_TOPIC,
        Field("partitions", kind="number", default=None, least=1, most=100_000, help="empty: the brokers' default"),
        Field(
            "replication_factor",
            "Replicas of each partition",
            kind="number",
            default=None,
            least=1,
            most=32_767,
            help="empty: the brokers' default",
        ),
        Field(
            "settings",
            kind="long_text",
            longest=20_000,
            check=wrong_settings,
            help="one NAME=VALUE per line, such as retention.ms=86400000",
        ),
    ),
    run,
    command_line,
    section="/topics",
)
