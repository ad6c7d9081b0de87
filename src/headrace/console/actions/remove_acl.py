"""The action that removes an ACL."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.acl_fields import FIELDS, acl_options, binding_of
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.fields import Value
from headrace.console.problems import NotFound
from headrace.console.request import ConsoleRequest
from headrace.security.acls.bindings import AclBinding, AclFilter


def _filter(binding: AclBinding) -> AclFilter:
    """Finds exactly this ACL."""
    pattern, entry = binding
    return AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


async def preview(request: ConsoleRequest) -> Preview:
    binding = binding_of(request)
    if not await request.cluster.admin.describe_acls(_filter(binding)):
        raise NotFound("there is no such ACL")
    return Preview((f"{binding.entry.principal} no longer has this ACL; the brokers decide without it at once.",))


async def run(request: ConsoleRequest) -> Done:
    """Removes exactly one ACL."""
    wanted = _filter(binding_of(request))
    removed = (await request.cluster.admin.delete_acls([wanted])).value(wanted)
    if not removed:
        raise NotFound("there is no such ACL")
    return Done(f"The ACL of {removed[0].entry.principal} was removed.", "/security#acls")


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "acls", "--remove", *acl_options(values), "--force"]


ACTION = Action(
    "remove-acl", "Remove an ACL", "Remove the ACL", FIELDS, run, command_line, preview, section="/security"
)
