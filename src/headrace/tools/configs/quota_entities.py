"""Client quotas of ``headrace configs``: entities, limits, and the output in the words of Kafka's tool. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

from headrace.client.admin.quotas import ANY, DEFAULT, Name, QuotaEntity, Special
from headrace.client.admin.types import ConfigChange
from headrace.security.sasl.scram import HASHES
from headrace.tools.configs.entities import CLIENTS, IPS, USERS, Entity
from headrace.tools.shared.commands import UsageError

#: The quotas of users and clients, and those of ips.
_CLIENT_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_IP_KEYS: tuple[str, ...] = ("connection_creation_rate",)
_FIELDS = {USERS: "user", CLIENTS: "client_id", IPS: "ip"}
#: How Kafka's tool names the types.
_WORDS = {"user": "user-principal", "client_id": "client-id", "ip": "ip"}

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class QuotaFilter(TypedDict, total=False):
    """The arguments of ``describe_client_quotas``."""

    user: str | Special
    client_id: str | Special
    ip: str | Special


def quota_entity(entities: Iterable[Entity]) -> QuotaEntity:
    """Returns who has the quotas. All names are there."""
    names: dict[str, Name] = {}
    for each in entities:
        assert each.name is not None
        names[_FIELDS[each.type.name]] = DEFAULT if each.is_default else each.name
    return QuotaEntity(**names)


def quota_filter(entities: Iterable[Entity]) -> QuotaFilter:
    """Returns the filter that finds the entities. An entity without a name stands for all of its type."""
    wanted: QuotaFilter = {}
    for each in entities:
        name = ANY if each.name is None else DEFAULT if each.is_default else each.name
        match each.type.name:
            case "users":
                wanted["user"] = name
            case "clients":
                wanted["client_id"] = name
            case _:
                wanted["ip"] = name
    return wanted


def check_names(entities: Sequence[Entity], wanted: Iterable[ConfigChange]) -> None:
    """Checks that the entities can have these quotas or credentials.

    :raises UsageError: in the words of Kafka's tool.
    """
    names = [change.name for change in wanted]
    credentials = [name for name in names if name in HASHES]
    types = [each.type.name for each in entities]
    if IPS in types:
        allowed, kinds, where = _IP_KEYS, "connection quota", IPS
    elif CLIENTS in types:
        allowed, kinds, where = _CLIENT_KEYS, "quota", CLIENTS
    else:
        allowed, kinds, where = (*_CLIENT_KEYS, *HASHES), "quota and SCRAM credential", USERS
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise UsageError(
            f"Only {kinds} configs can be added or deleted for '{where}' using --bootstrap-server. "
            f"Unexpected config names: {','.join(unknown)}. Possible are {', '.join(allowed)}"
        )
    if credentials and entities[0].is_default:
        raise UsageError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
            "--bootstrap-server."
        )
    if credentials and len(credentials) < len(names):
        raise UsageError(
            f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}' using "
            "--bootstrap-server."
        )


def limits_of(wanted: Iterable[ConfigChange]) -> dict[str, float | None]:
    """Returns the limits that a command line has; None removes a quota."""
    limits: dict[str, float | None] = {}
    for change in wanted:
        try:
            limits[change.name] = None if change.value is None else float(change.value)
        except ValueError:
            raise UsageError(f"Cannot parse quota configuration value for {change.name}: {change.value}") from None
    return limits


# -- output


def json_names(entity: QuotaEntity) -> dict[str, str | None]:
    """The entity for ``--json``. The name null is the default entity."""
    return {
        field.replace("_", "-"): None if name is DEFAULT else name
        for field, name in entity._asdict().items()
        if name is not None
    }


def json_values(found: Quotas) -> list[dict[str, object]]:
    return [{"entity": json_names(entity), "quotas": dict(limits)} for entity, limits in found.items()]


def lines(found: Quotas) -> Iterator[str]:
    for entity, limits in found.items():
        values = ", ".join(f"{key}={_text(limit)}" for key, limit in sorted(limits.items()))
        yield f"Quota configs for {words(entity)} are {values}"


def rows(found: Quotas) -> list[tuple[str, str, str]]:
    """The rows of a table: entity, setting, value."""
    return [(words(entity), key, _text(limit)) for entity, limits in found.items() for key, limit in limits.items()]


def words(entity: QuotaEntity) -> str:
    """Names an entity as Kafka's tool does."""
    return ", ".join(
        f"the default {_WORDS[field]}" if name is DEFAULT else f"{_WORDS[field]} '{name}'"
        for field, name in entity._asdict().items()
        if name is not None
    )


def in_order(found: Quotas) -> Quotas:
    """Returns the quotas in the order of the entities' names, default entities last."""

    def rank(entity: QuotaEntity) -> list[tuple[int, str]]:
        return [(0 if name is None else 2 if name is DEFAULT else 1, str(name)) for name in entity]

    return {entity: found[entity] for entity in sorted(found, key=rank)}


def _text(limit: float) -> str:
    """Returns a number as Java prints it, as far as people read it: ``1048576.0``, and ``1.0E7`` from there on."""
    if 1e-3 <= limit < 1e7:
        return repr(limit)
    digits, _, exponent = f"{limit:.16e}".partition("e")
    for precision in range(1, 17):
        digits, _, exponent = f"{limit:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == limit:
            break
    return f"{digits}E{int(exponent)}"
