"""Holds what a page or an action gets: the values of its fields, the visitor, and the services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.console.cluster.reader import ClusterReader
from headrace.console.fields import Value
from headrace.console.protection.sessions import Session
from headrace.console.services import Services


@dataclass(frozen=True)
class ConsoleRequest:
    """One request. The values were checked against the fields of the page or action."""

    values: Mapping[str, Value]
    session: Session
    services: Services

    @property
    def cluster(self) -> ClusterReader:
        """The cluster, with the rights of the visitor."""
        return self.session.reader

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str), f"the field {name} is no text"
        return value

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int), f"the field {name} is no number, or has no default"
        return value

    def number_or_none(self, name: str) -> int | None:
        """A number that may be left out; the default of its field is None."""
        return None if self.values[name] is None else self.number(name)

    def flag(self, name: str) -> bool:
        return self.values[name] is True
