"""Holds the fields of the actions on ACLs, and makes the ACL that they name."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.cluster.access import OPERATIONS, RESOURCE_TYPES
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest
from headrace.security.acls.bindings import AclBinding
from headrace.security.acls.kinds import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.security.principal import Principal

#: The option of ``headrace acls`` that names a resource of each type. The cluster has no name.
_RESOURCE_FLAGS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}


def wrong_principal(text: str) -> str:
    try:
        Principal.parse(text)
    except ValueError as error:
        return str(error)
    return ""


FIELDS = (
    Field("principal", is_required=True, check=wrong_principal, help="such as User:alice; User:* is everybody"),
    Field("permission", kind="choice", choices=("Allow", "Deny"), default="Allow", help="a denial counts first"),
    Field("operation", kind="choice", choices=OPERATIONS, default="Read", help="All stands for every operation"),
    Field("resource_type", "Type of resource", kind="choice", choices=RESOURCE_TYPES, default="Topic"),
    Field("name", "Name of the resource", help="* is every name; the cluster needs no name"),
    Field(
        "pattern_type", "Pattern", kind="choice", choices=("Literal", "Prefixed"), default="Literal",
        help="Prefixed: every resource whose name begins with the name",
    ),
    Field("host", default="*", help="an IP address; * is every host"),
)  # fmt: skip


def binding_of(request: ConsoleRequest) -> AclBinding:
    """
    :raises BadFields: if the resource has no name, or has no such operation.
    """
    resource_type = ResourceType.of_name(request.text("resource_type"))
    operation = AclOperation.of_name(request.text("operation"))
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else request.text("name")
    given = {field: str(value) for field, value in request.values.items()}
    if not name:
        raise BadFields({"name": "give the name of the resource, or *"}, given)
    supported = SUPPORTED_OPERATIONS[resource_type]
    if operation is not AclOperation.ALL and operation not in supported:
        names = ", ".join(each.title for each in supported)
        raise BadFields({"operation": f"a resource of this type has the operations {names}"}, given)
    return AclBinding.of(
        resource_type,
        name,
        request.text("principal"),
        operation,
        Permission.of_name(request.text("permission")),
        pattern_type=PatternType.of_name(request.text("pattern_type")),
        host=request.text("host"),
    )


def acl_options(values: Mapping[str, Value]) -> list[str]:
    """The options of ``headrace acls`` that name the ACL."""
    resource_type = ResourceType.of_name(str(values["resource_type"]))
    if resource_type is ResourceType.CLUSTER:
        words = ["--cluster"]
    else:
        words = [_RESOURCE_FLAGS[resource_type], str(values["name"])]
        words += ["--resource-pattern-type", str(values["pattern_type"]).lower()]
    permission = str(values["permission"]).lower()
    words += ["--operation", str(values["operation"]), f"--{permission}-principal", str(values["principal"])]
    return [*words, f"--{permission}-host", str(values["host"])]
