"""Names who has a quota (the entity) and what is limited (the key), with Kafka's rules for both.

An entity is a user, a client id, a client id of a user, or an ip. Each name may be Kafka's default entity: all users
without a quota of their own, for example. An entity has one znode:

=========================================  ======================================================
/config/users/USER                         a user; the znode has the user's SCRAM credentials, too
/config/users/USER/clients/CLIENT          a client id of a user
/config/clients/CLIENT                     a client id
/config/ips/IP                             an address, or the name of a host
=========================================  ======================================================

Names are percent-encoded as Kafka encodes them; ``<default>`` is the default entity. The protocol writes the default
entity as a null name.

Kafka 4.3 checks quotas as this module does, with three exceptions. Kafka accepts NaN and an infinite percentage, which
limit nothing; Headrace rejects them. Kafka accepts a byte rate that is above 0 and rounds to 0; Headrace rejects that,
too. Of two names of one type, Kafka takes the last; Headrace rejects the entity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, final

from headrace.coordination.paths import DEFAULT_ENTITY
from headrace.protocol.errors import InvalidRequest

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: The types of entities in the protocol.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
#: In the order of the fields of :class:`Entity`.
TYPES: Final = (USER, CLIENT_ID, IP)


@final
class DefaultName:
    """Stands for Kafka's default entity. :data:`DEFAULT` is the only instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return DEFAULT_ENTITY


DEFAULT: Final = DefaultName()
#: A name, the default entity, or None if an entity has no name of this type.
Name: TypeAlias = str | DefaultName | None


class Entity(NamedTuple):
    """The owner of a quota: a user, a client id, both, or an ip."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def __str__(self) -> str:
        """The entity as error messages show it: ``user=alice, client-id=<default>``."""
        return ", ".join(f"{kind}={name!s}" for kind, name in zip(TYPES, self, strict=True) if name is not None)


class ValueType(Enum):
    """The type of a limit, with its largest value."""

    LONG = 2**63 - 1
    INT = 2**31 - 1
    DOUBLE = math.inf


#: The quotas of users and client ids.
CLIENT_KEYS: Mapping[str, ValueType] = {
    PRODUCER_BYTE_RATE: ValueType.LONG,
    CONSUMER_BYTE_RATE: ValueType.LONG,
    REQUEST_PERCENTAGE: ValueType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ValueType.DOUBLE,
}
#: Those that count for each request.
REQUEST_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
#: The quotas of ips.
IP_KEYS: Mapping[str, ValueType] = {CONNECTION_CREATION_RATE: ValueType.INT}
#: How far a whole number may be from its value as a double.
_ROUNDING = 1e-6


def keys_of(entity: Entity) -> Mapping[str, ValueType]:
    """Returns the quotas that an entity may have."""
    return CLIENT_KEYS if entity.ip is None else IP_KEYS


# -- entities in the protocol


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Returns the entity that the types and names of a request stand for.

    :raises InvalidRequest: if there is no such entity.
    """
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise InvalidRequest("Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise InvalidRequest("Invalid quota entity combination, an ip cannot be combined with a user or a client-id")
    return Entity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def parts_of(entity: Entity) -> list[tuple[str, str | None]]:
    """Returns the types and names of an entity as the protocol has them."""
    return [
        (kind, None if isinstance(name, DefaultName) else name)
        for kind, name in zip(TYPES, entity, strict=True)
        if name is not None
    ]


# -- entities in the tree


def path_of(entity: Entity) -> str:
    """Returns the path of an entity's znode, without ``/config/``."""
    if entity.ip is not None:
        return f"ips/{_encoded(entity.ip)}"
    if entity.user is None:
        return f"clients/{_encoded(entity.client_id)}"
    user = f"users/{_encoded(entity.user)}"
    return user if entity.client_id is None else f"{user}/clients/{_encoded(entity.client_id)}"


def entity_of_path(path: str) -> Entity | None:
    """Returns the entity of a znode, given its path without ``/config/``; None if the znode has no quotas."""
    match path.split("/"):
        case ["users", user]:
            return Entity(user=_decoded(user))
        case ["users", user, "clients", client_id]:
            return Entity(user=_decoded(user), client_id=_decoded(client_id))
        case ["clients", client_id]:
            return Entity(client_id=_decoded(client_id))
        case ["ips", ip]:
            return Entity(ip=_decoded(ip))
        case _:
            return None


def _encoded(name: Name) -> str:
    assert name is not None
    if isinstance(name, DefaultName):
        return DEFAULT_ENTITY
    from headrace.security.sanitizer import sanitize  # urllib takes long to import

    # A path of the tree cannot have these two names. Kafka decodes them in this form, too.
    return sanitize(name) if name not in (".", "..") else name.replace(".", "%2E")


def _decoded(text: str) -> str | DefaultName:
    if text == DEFAULT_ENTITY:
        return DEFAULT
    from headrace.security.sanitizer import desanitize

    return desanitize(text)


# -- limits


def check_limit(entity: Entity, key: str, limit: float) -> None:
    """
    :raises InvalidRequest: if the entity cannot have this limit.
    """
    kind = keys_of(entity).get(key)
    if kind is None:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not limit > 0:  # NaN is not
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if limit > float(kind.value) or math.isinf(limit):
        raise InvalidRequest(f"Proposed value for {key} is too large for {_ARTICLES[kind]} {kind.name}.")
    if kind is ValueType.DOUBLE:
        return
    if abs(limit - round(limit)) > _ROUNDING:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
    if round(limit) == 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")


_ARTICLES = {ValueType.LONG: "a", ValueType.INT: "an", ValueType.DOUBLE: "a"}


def text_of(key: str, limit: float) -> str:
    """Returns a limit that was checked as the tree has it: whole numbers without a point."""
    kind = CLIENT_KEYS.get(key) or IP_KEYS[key]
    return repr(float(limit)) if kind is ValueType.DOUBLE else str(min(round(limit), kind.value))


def limits_of(entity: Entity, configs: Mapping[str, str]) -> dict[str, float]:
    """Returns the quotas among the settings of an entity in the tree. Other settings, such as credentials, stay out.

    :raises ValueError: if a limit cannot be used. The error does not contain the other settings.
    """
    limits: dict[str, float] = {}
    for key in keys_of(entity):
        if key in configs:
            limits[key] = _limit_of_text(entity, key, configs[key])
    return limits


def _limit_of_text(entity: Entity, key: str, text: str) -> float:
    try:
        limit = float(text)
        check_limit(entity, key, limit)
    except (ValueError, InvalidRequest) as error:
        raise ValueError(f"{key}={text} is no limit: {error}") from None
    return limit
