"""The page Quotas: the limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.quotas import QuotaEntity, Special
from headrace.console.cluster.reader import LIST_SECONDS
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class QuotaRow:
    """A limit. A name is ``<default>`` for all that have no limit of their own, and empty if it does not count."""

    user: str
    client_id: str
    ip: str
    key: str
    value: float


@dataclass(frozen=True)
class Quotas:
    """The limits that the user may see."""

    quotas: Listing[QuotaRow]
    problem: Problem | None


_COLUMNS: dict[str, Callable[[QuotaRow], Any]] = {
    "user": lambda row: row.user,
    "client_id": lambda row: row.client_id,
    "ip": lambda row: row.ip,
    "key": lambda row: row.key,
    "value": lambda row: row.value,
}


async def read(request: ConsoleRequest) -> Quotas:
    """The client quotas of a cluster, one row per limit."""
    cluster = request.cluster
    nothing: dict[QuotaEntity, dict[str, float]] = {}
    found, problem = await attempt(cluster.kept("quotas", LIST_SECONDS, cluster.admin.describe_client_quotas), nothing)
    rows = [
        QuotaRow(_name(entity.user), _name(entity.client_id), _name(entity.ip), key, value)
        for entity, limits in found.items()
        for key, value in limits.items()
    ]
    listing = list_rows(request, rows, _COLUMNS, text=lambda row: f"{row.user} {row.client_id} {row.ip} {row.key}")
    return Quotas(listing, problem)


def _name(name: str | Special | None) -> str:
    return "" if name is None else str(name)


PAGE = Page(
    "/security/quotas", "Quotas", read, "quotas.html", query=listing_fields(_COLUMNS, "user"), section="/security"
)
