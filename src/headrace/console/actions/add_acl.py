"""The action that adds an ACL."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.actions.acl_fields import FIELDS, acl_options, binding_of
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.fields import Value
from headrace.console.request import ConsoleRequest


async def preview(request: ConsoleRequest) -> Preview:
    binding = binding_of(request)
    there = await request.cluster.admin.describe_acls()
    if binding in there:
        return Preview(("This ACL exists already, so nothing changes.",))
    if not any(each.pattern.resource_type is binding.pattern.resource_type for each in there):
        return Preview(
            (
                f"This is the first ACL on a resource of the type {binding.pattern.resource_type.title}. If "
                "allow.everyone.if.no.acl.found is true, only those whom an ACL allows may use it from now on.",
            )
        )
    return Preview(("The brokers decide by the new ACL at once.",))


async def run(request: ConsoleRequest) -> Done:
    """Adds an ACL. An ACL that exists already is no error."""
    binding = binding_of(request)
    (await request.cluster.admin.create_acls([binding])).value(binding)
    return Done(f"The ACL of {binding.entry.principal} was added.", "/security#acls")


def command_line(values: Mapping[str, Value]) -> list[str]:
    return ["headrace", "acls", "--add", *acl_options(values)]


ACTION = Action("add-acl", "Add an ACL", "Add the ACL", FIELDS, run, command_line, preview, section="/security")
