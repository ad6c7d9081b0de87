"""The action that sets a quota of a user, a client id, a client id of a user, or an address."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.action import Action, Done, Preview
from headrace.console.actions.quota_fields import FIELDS, KEYS, entity_of, quota_options
from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest

_MOST = 2**53


def wrong_value(text: str) -> str:
    """Returns what is wrong with the value of a quota; empty if nothing is."""
    try:
        return "" if 0 < float(text) <= _MOST else "it must be more than 0"
    except ValueError:
        return "it is not a number"


async def preview(request: ConsoleRequest) -> Preview:
    entity, key = entity_of(request), request.text("key")
    # The broker checks the quota, and changes nothing.
    alteration = {entity: {key: float(request.text("value"))}}
    (await request.cluster.admin.alter_client_quotas(alteration, validate_only=True)).value(entity)
    now = (await request.cluster.admin.describe_client_quotas()).get(entity, {}).get(key)
    before = "none" if now is None else f"{now:,g}"
    return Preview(
        (), ("of", "limit", "now", "then", "unit"), ((str(entity), key, before, request.text("value"), KEYS[key]),)
    )


async def run(request: ConsoleRequest) -> Done:
    """Sets one quota."""
    entity = entity_of(request)
    alteration = {entity: {request.text("key"): float(request.text("value"))}}
    (await request.cluster.admin.alter_client_quotas(alteration)).value(entity)
    return Done(f"The quota of {entity} was set.", "/security/quotas")


def command_line(values: Mapping[str, Value]) -> list[str]:
    setting = f"{values['key']}={values['value']}"
    return ["headrace", "configs", "--alter", *quota_options(values), "--add-config", setting]


ACTION = Action(
    "set-quota",
    "Set a quota",
    "Set the quota",
    (*FIELDS, Field("value", is_required=True, longest=30, check=wrong_value, help="a number above 0")),
    run,
    command_line,
    preview,
    section="/security",
)
