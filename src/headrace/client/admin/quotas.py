"""Describes and changes client quotas: limits of users, client ids and addresses (KIP-546).

::

    from headrace.client.admin.quotas import ANY, DEFAULT, QuotaEntity

    alice, others = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT)
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1_000_000}, others: {"producer_byte_rate": None}})
    for entity, limits in admin.describe_client_quotas(user=ANY).items(): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from headrace.client.admin.requests import AdminRequests, outcome, raise_for
from headrace.client.admin.types import Results
from headrace.protocol.api import Api


class Special(Enum):
    """Stands for names that are not texts."""

    DEFAULT = "<default>"
    ANY = "any"

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.value


#: All users (client ids, addresses) that have no quota of their own: Kafka's default entity.
DEFAULT: Final = Special.DEFAULT
#: In a filter: any name, and also the default entity.
ANY: Final = Special.ANY

#: A name, the default entity, or None if the entity has no name of this type.
Name = str | Literal[Special.DEFAULT] | None
#: What a filter asks for. None asks for nothing.
Wanted = str | Special | None

_EXACT, _DEFAULT, _ANY = 0, 1, 2


class QuotaEntity(NamedTuple):
    """The owner of a quota: a user, a client id, a client id of a user, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in zip(_TYPES, self, strict=True) if name is not None)


_TYPES = ("user", "client-id", "ip")


class QuotasAdmin:
    """The client quotas of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_client_quotas(
        self,
        *,
        user: Wanted = None,
        client_id: Wanted = None,
        ip: Wanted = None,
        strict: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas of all entities that match. Each of ``user``, ``client_id`` and ``ip`` is a name, DEFAULT
        or ANY. Without them, all entities match.

        :param strict: leaves out entities that have other names, too: with ``user="alice"`` the quotas of her client
            ids.
        """
        wanted = zip(_TYPES, (user, client_id, ip), strict=True)
        answer = await self._requests.ask_controller(
            Api.DESCRIBE_CLIENT_QUOTAS,
            timeout_ms,
            components=[_component(kind, name) for kind, name in wanted if name is not None],
            strict=strict,
        )
        raise_for(answer.error_code, "the client quotas", answer.error_message)
        return {
            _entity(found.entity): {limit.key: float(limit.value) for limit in found.values} for found in answer.entries
        }

    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[QuotaEntity, None]:
        """Sets quotas; the value None removes one. Quotas that are not named stay. Each entity succeeds or fails alone.

        ::

            await admin.alter_client_quotas({
                QuotaEntity(user="alice", client_id=DEFAULT): {"consumer_byte_rate": 500_000},
                QuotaEntity(ip="10.0.0.7"): {"connection_creation_rate": None},
            })

        :param validate_only: checks the quotas and changes nothing.
        """
        answer = await self._requests.ask_controller(
            Api.ALTER_CLIENT_QUOTAS,
            timeout_ms,
            codes=lambda answer: [found.error_code for found in answer.entries],
            entries=[
                {
                    "entity": _parts(entity),
                    "ops": [
                        {"key": key, "value": 0.0 if limit is None else float(limit), "remove": limit is None}
                        for key, limit in limits.items()
                    ],
                }
                for entity, limits in alterations.items()
            ],
            validate_only=validate_only,
        )
        return Results(
            (
                entity := _entity(found.entity),
                outcome(found.error_code, None, f"the quotas of {entity}", found.error_message),
            )
            for found in answer.entries
        )


def _parts(entity: QuotaEntity) -> list[dict[str, Any]]:
    return [
        {"entity_type": kind, "entity_name": None if name is DEFAULT else name}
        for kind, name in zip(_TYPES, entity, strict=True)
        if name is not None
    ]


def _entity(parts: Iterable[Any]) -> QuotaEntity:
    names: dict[str, Name] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    return QuotaEntity(*(names.get(kind) for kind in _TYPES))


def _component(kind: str, name: str | Special) -> dict[str, Any]:
    how = _EXACT if isinstance(name, str) else _DEFAULT if name is DEFAULT else _ANY
    return {"entity_type": kind, "match_type": how, "match": name if isinstance(name, str) else None}
