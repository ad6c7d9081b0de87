"""Holds the fields that name a quota, and makes its owner of them."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.admin.quotas import DEFAULT, Name, QuotaEntity
from headrace.console.fields import Field, Value
from headrace.console.problems import BadFields
from headrace.console.request import ConsoleRequest

#: The quotas of Kafka, with their units.
KEYS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of a thread",
    "controller_mutation_rate": "changed partitions per second",
    "connection_creation_rate": "connections per second",
}
_FLAGS = {"user": "users", "client_id": "clients", "ip": "ips"}
_HELP = "<default>: all that have no quota of their own; empty: any"
FIELDS = (
    Field("user", help=_HELP),
    Field("client_id", "Client id", help=_HELP),
    Field("ip", "Address", help=f"{_HELP}. Goes with neither user nor client id"),
    Field(
        "key", "Limit", kind="choice", choices=tuple(KEYS), default="producer_byte_rate",
        help="; ".join(f"{key}: {unit}" for key, unit in KEYS.items()),
    ),
)  # fmt: skip


def entity_of(request: ConsoleRequest) -> QuotaEntity:
    """
    :raises BadFields: if nobody is named, or names do not go together.
    """
    user, client_id, ip = (request.text(field) for field in _FLAGS)
    given = {name: str(value) for name, value in request.values.items()}
    if not (user or client_id or ip):
        raise BadFields({"user": "give a user, a client id or an address"}, given)
    if ip and (user or client_id):
        raise BadFields({"ip": "an address goes with neither user nor client id"}, given)
    return QuotaEntity(_name(user), _name(client_id), _name(ip))


def _name(text: str) -> Name:
    return None if not text else DEFAULT if text == str(DEFAULT) else text


def quota_options(values: Mapping[str, Value]) -> list[str]:
    """The options of ``headrace configs`` that name the owner of the quota."""
    words: list[str] = []
    for field, kind in _FLAGS.items():
        name = str(values[field])
        if name:
            words += ["--entity-type", kind]
            words += ["--entity-default"] if name == str(DEFAULT) else ["--entity-name", name]
    return words
