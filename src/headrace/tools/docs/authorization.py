"""Makes ``docs/authorization.md``, from the table of what each API asks of the authorizer."""

from collections.abc import Iterator

from headrace.broker.authorization.api_table import FOR_EVERYBODY, NEEDS
from headrace.broker.network.handler_binding import served_apis
from headrace.protocol.api import Api
from headrace.security.acls.kinds import IMPLIED_BY, SUPPORTED_OPERATIONS
from headrace.tools.docs.markdown import table

_INTRODUCTION = """\
# Authorization

<!-- Made by script/generate-docs from src/headrace/broker/authorization/api_table.py. Do not edit. -->

A broker with `authorizer.class.name` checks the rights of a client at every request. This page lists the right that
each API needs. A client without the right gets an error for the resource: TOPIC_AUTHORIZATION_FAILED (29),
GROUP_AUTHORIZATION_FAILED (30), CLUSTER_AUTHORIZATION_FAILED (31), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) or
DELEGATION_TOKEN_AUTHORIZATION_FAILED (65). The error does not tell whether the resource exists. Lists leave out what
the client may not see.

`headrace acls` adds, removes and lists ACLs. The principals of `super.users` may do everything. Brokers need
CLUSTER_ACTION for each other's requests, so `super.users` must contain the principal of the brokers.
"""


def render() -> str:
    """The page."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## What each API needs\n"
    yield from table(("Key", "API", "Operation", "Resource", "Note"), _rows())
    yield "## APIs that need no right\n"
    free = sorted(api for api in FOR_EVERYBODY if api in served_apis(in_cluster=True))
    yield from table(("Key", "API", "Why"), ((str(int(api)), api.label, FOR_EVERYBODY[api]) for api in free))
    yield "## Operations\n"
    yield "An ACL for ALL is an ACL for each operation of its resource. An ACL may name these operations:\n"
    yield from table(
        ("Resource", "Operations"),
        ((kind.name, ", ".join(each.name for each in operations)) for kind, operations in SUPPORTED_OPERATIONS.items()),
    )
    yield "Some ACLs allow a second operation, too. An ACL that denies an operation denies only this one.\n"
    yield from table(
        ("Allowed by", "Operation"),
        ((", ".join(each.name for each in by), operation.name) for operation, by in IMPLIED_BY.items()),
    )


def _rows() -> Iterator[tuple[str, ...]]:
    for api in sorted(NEEDS):
        if api not in served_apis(in_cluster=True):
            continue
        for number, need in enumerate(NEEDS[Api(api)]):
            key, label = (str(int(api)), api.label) if number == 0 else ("", "")
            yield key, label, need.operation.name, need.resource_type.name, need.note
