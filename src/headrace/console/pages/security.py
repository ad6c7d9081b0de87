"""The page Security: who may do what by ACLs, and why somebody may do something or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import BrokerError
from headrace.console.cluster.access import OPERATIONS, RESOURCE_TYPES, MatrixRow, Why, matrix, why
from headrace.console.cluster.reader import LIST_SECONDS, ClusterReader
from headrace.console.fields import Field
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest
from headrace.security.acls.kinds import CLUSTER_NAME, AclOperation, ResourceType

_SETTINGS = ("super.users", "allow.everyone.if.no.acl.found")


@dataclass(frozen=True)
class Security:
    """The ACLs, one row per principal and pattern.

    :ivar acls_problem: why the ACLs are not known; ``security_disabled`` if the brokers have no authorizer.
    :ivar why: the answer to the question of the query; None if nothing was asked, or the ACLs are not known.
    :ivar super_users: None if the user may not see the settings of brokers.
    """

    rows: Listing[MatrixRow]
    acls_problem: Problem | None
    why: Why | None
    super_users: str | None


_COLUMNS: dict[str, Callable[[MatrixRow], Any]] = {
    "principal": lambda row: row.principal,
    "resource": lambda row: (row.resource_type, row.name),
}


async def read(request: ConsoleRequest) -> Security:
    """The ACLs as a matrix. With a principal, also whether it may do the operation, and the rule that decides."""
    cluster = request.cluster
    bindings, problem = await attempt(cluster.kept("acls", LIST_SECONDS, cluster.admin.describe_acls), [])
    settings = await _settings(cluster)
    answer: Why | None = None
    if request.text("principal") and problem is None:
        resource_type = ResourceType.of_name(request.text("resource_type"))
        name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else request.text("name")
        operation = AclOperation.of_name(request.text("operation"))
        asked = (request.text("principal"), request.text("host") or "*", operation, resource_type, name)
        answer = why(bindings, settings or {}, *asked)
    rows = list_rows(request, matrix(bindings), _COLUMNS, text=lambda row: f"{row.principal} {row.name}")
    return Security(rows, problem, answer, None if settings is None else settings.get("super.users", ""))


async def _settings(cluster: ClusterReader) -> dict[str, str] | None:
    """The settings of the brokers that count besides the ACLs; None if the user may not see them."""
    try:
        brokers = (await cluster.cluster()).brokers
        entries = await cluster.settings("broker", str(brokers[0].id)) if brokers else {}
    except BrokerError:
        return None
    return {name: entries[name].value or "" for name in _SETTINGS if name in entries}


PAGE = Page(
    "/security",
    "Security",
    read,
    "security.html",
    query=(
        *listing_fields(_COLUMNS, "principal"),
        Field("principal", "May", help="such as User:alice"),
        Field("operation", "do", kind="choice", choices=OPERATIONS, default="Read", help="the operation"),
        Field(
            "resource_type", "on", kind="choice", choices=RESOURCE_TYPES, default="Topic", help="the type of resource"
        ),
        Field("name", "named", help="the name of the resource"),
        Field("host", "from", help="an address; empty: a host that no ACL names"),
    ),
    navigation="Security",
)
