"""The action that sets a setting of a topic, or restores its default."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.types import ConfigChange, ConfigResource
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.topic_fields import TOPIC
from headrace.console.fields import Field, Value
from headrace.console.rendering import link
from headrace.console.request import ConsoleRequest


def _change(request: ConsoleRequest) -> ConfigChange:
    name = request.text("setting")
    if request.flag("restore"):
        return ConfigChange(name, None, "delete")
    return ConfigChange(name, request.text("value"))


async def preview(request: ConsoleRequest) -> Preview:
    topic, change = request.text("topic"), _change(request)
    resource = ConfigResource("topic", topic)
    # The broker checks the value, and changes nothing.
    (await request.cluster.admin.alter_configs({resource: [change]}, validate_only=True)).value(resource)
    now = (await request.cluster.settings("topic", topic)).get(change.name)
    before = "" if now is None else f"{now.value} ({now.source})"
    after = "the default" if change.operation == "delete" else str(change.value)
    return Preview((), ("setting", "now", "then"), ((change.name, before, after),))


async def run(request: ConsoleRequest) -> Done:
    """Sets one setting of a topic, or restores its default."""
    topic, change = request.text("topic"), _change(request)
    await request.cluster.admin.alter_config("topic", topic, [change])
    return Done(
        f"The setting {change.name} of {topic} was changed.", link("/topics/{topic}", topic=topic) + "#settings"
    )


def command_line(values: Mapping[str, Value]) -> list[str]:
    words = ["headrace", "configs", "--alter", "--entity-type", "topics", "--entity-name", str(values["topic"])]
    if values["restore"]:
        return [*words, "--delete-config", str(values["setting"])]
    value = str(values["value"])
    # A value with commas stands in brackets, because commas separate settings.
    return [*words, "--add-config", f"{values['setting']}={f'[{value}]' if ',' in value else value}"]


ACTION = Action(
    "change-topic-setting",
    "Change a setting",
    "Change the setting",
    (
        TOPIC,
        Field("setting", is_required=True, is_fixed=True, longest=300),
        Field("value", longest=20_000),
        Field("restore", "Restore the default", kind="flag", default=False),
    ),
    run,
    command_line,
    preview,
    section="/topics",
)
