"""Decides which entities a DescribeClientQuotas request asks for. No I/O.

A filter has up to one component per type of entity: an exact name, the default entity, or any name (also the default
entity). An entity must fit all components. It may have names of other types, unless the filter is strict.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from headrace.broker.quotas.entities import CLIENT_ID, DEFAULT, IP, TYPES, USER, DefaultName, Entity
from headrace.protocol.errors import InvalidRequest, UnsupportedVersion


class Match(IntEnum):
    """How a component compares names, with its code in the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One component of a request."""

    entity_type: str
    match_type: int
    match: str | None = None


class QuotaFilter:
    def __init__(self, components: Iterable[Component], *, is_strict: bool) -> None:
        """
        :raises InvalidRequest: if the components contradict each other.
        :raises UnsupportedVersion: if there is no such type of entity.
        """
        #: By type: the wanted name; None for any name.
        self._names: dict[str, str | DefaultName | None] = {}
        self._is_strict = is_strict
        for component in components:
            _check_type(component.entity_type, self._names)
            self._names[component.entity_type] = _wanted(component)
        if IP in self._names and (USER in self._names or CLIENT_ID in self._names):
            raise InvalidRequest(
                "Invalid entity filter component combination: an ip cannot be combined with a user or a client-id"
            )

    def matches(self, entity: Entity) -> bool:
        for kind, name in zip(TYPES, entity, strict=True):
            if kind in self._names:
                wanted = self._names[kind]
                if name is None or (wanted is not None and wanted != name):
                    return False
            elif self._is_strict and name is not None:
                return False
        return True


def _check_type(kind: str, earlier: Iterable[str]) -> None:
    if not kind:
        raise InvalidRequest("Invalid empty entity type.")
    if kind in earlier:
        raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in TYPES:
        raise UnsupportedVersion(f"Unsupported entity type {kind}")


def _wanted(component: Component) -> str | DefaultName | None:
    """Returns the name that a component asks for; None for any name."""
    _, match_type, match = component
    if match_type == Match.EXACT:
        if match is None:
            raise InvalidRequest("a filter component for an exact name has no name")
        return match
    if match_type not in (Match.DEFAULT, Match.ANY):
        raise InvalidRequest(f"Unknown match type {match_type}")
    if match is not None:
        raise InvalidRequest(f"a filter component of match type {match_type} has a name: {match}")
    return DEFAULT if match_type == Match.DEFAULT else None
