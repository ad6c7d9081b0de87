"""The action that deletes a quota."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.quota_fields import FIELDS, entity_of, quota_options
from headrace.console.fields import Value
from headrace.console.problems import NotFound
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    entity, key = entity_of(request), request.text("key")
    now = (await request.cluster.admin.describe_client_quotas()).get(entity, {}).get(key)
    if now is None:
        raise NotFound(f"{entity} has no quota {key}")
    return Preview((f"{key} of {entity} is {now:,g}. Without it, the quota of <default> counts, if there is one.",))


async def run(request: ConsoleRequest) -> Done:
    """Deletes one quota."""
    entity = entity_of(request)
    (await request.cluster.admin.alter_client_quotas({entity: {request.text("key"): None}})).value(entity)
    return Done(f"The quota of {entity} was deleted.", "/security/quotas")


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "configs", "--alter", *quota_options(values), "--delete-config", str(values["key"])]


ACTION = Action(
    "delete-quota", "Delete a quota", "Delete the quota", FIELDS, run, command_line, preview, section="/security"
)
