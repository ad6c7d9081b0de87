"""The page Quotas: the limits of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.client.admin.quotas import QuotaEntity, Special
from headrace.console.cluster.quota_uses import LiveUse, live_uses
from headrace.console.cluster.reader import LIST_SECONDS
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class QuotaRow:
    """A limit. A name is ``<default>`` for all that have no limit of their own, and empty if it does not count.

    :ivar live: the use of the limit; None if no client uses it, or the console reads no metrics of the brokers.
    """

    user: str
    client_id: str
    ip: str
    key: str
    value: float
    live: LiveUse | None


@dataclass(frozen=True)
class Quotas:
    """The limits that the user may see.

    :ivar has_source: whether the console knows where the brokers' metrics are, which tell the live use.
    :ivar measured_ms: when the metrics were read last; None if they were not.
    :ivar metrics_problems: the addresses that did not answer, and why.
    """

    quotas: Listing[QuotaRow]
    problem: Problem | None
    has_source: bool
    measured_ms: int | None
    metrics_problems: tuple[str, ...]


_COLUMNS: dict[str, Callable[[QuotaRow], Any]] = {
    "user": lambda row: row.user,
    "client_id": lambda row: row.client_id,
    "ip": lambda row: row.ip,
    "key": lambda row: row.key,
    "value": lambda row: row.value,
    "live": lambda row: None if row.live is None else row.live.value,
    "throttled": lambda row: None if row.live is None else row.live.throttle_ms,
}


async def read(request: ConsoleRequest) -> Quotas:
    """The client quotas of a cluster, one row per limit, with their use if the console reads the brokers' metrics."""
    cluster = request.cluster
    nothing: dict[QuotaEntity, dict[str, float]] = {}
    found, problem = await attempt(cluster.kept("quotas", LIST_SECONDS, cluster.admin.describe_client_quotas), nothing)
    measured = request.services.history.measured
    live = live_uses(found, () if measured is None else measured.uses)
    rows = [
        QuotaRow(_name(entity.user), _name(entity.client_id), _name(entity.ip), key, value, live.get((entity, key)))
        for entity, limits in found.items()
        for key, value in limits.items()
    ]
    listing = list_rows(request, rows, _COLUMNS, text=lambda row: f"{row.user} {row.client_id} {row.ip} {row.key}")
    return Quotas(
        listing,
        problem,
        request.services.settings.metrics.is_given,
        None if measured is None else measured.time_ms,
        () if measured is None else measured.problems,
    )


def _name(name: str | Special | None) -> str:
    return "" if name is None else str(name)


PAGE = Page(
    "/security/quotas",
    "Quotas",
    read,
    "quotas.html",
    query=listing_fields(_COLUMNS, "user"),
    section="/security",
    live_seconds=5,
)
