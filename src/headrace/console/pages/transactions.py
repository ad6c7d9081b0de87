"""The page Transactions: the transactional ids, those open for too long, and transactions that no coordinator knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.admin.types import Results, TransactionDescription
from headrace.client.types import TopicPartition
from headrace.console.cluster.open_transactions import MOST_SEARCHED, Hanging, find_hanging
from headrace.console.cluster.reader import LIST_SECONDS
from headrace.console.fields import Field
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest

_SECOND_MS = 1_000
_HANGING_SECONDS = 10.0
_MOST_DESCRIBED = 1_000


@dataclass(frozen=True)
class TransactionRow:
    """A transactional id.

    :ivar open_ms: how long its transaction is open; None if it has none, or it is not among the first thousand.
    :ivar is_too_long: whether that is longer than the limit.
    """

    name: str
    state: str
    producer_id: int
    producer_epoch: int | None
    coordinator_id: int
    open_ms: int | None
    timeout_ms: int | None
    partitions: tuple[TopicPartition, ...]
    is_too_long: bool


@dataclass(frozen=True)
class Transactions:
    """The transactional ids that the user may see.

    :ivar hanging: transactions that no coordinator knows; only with ``search``.
    :ivar searched: how many partitions were searched; the first ones if the cluster has more.
    """

    transactions: Listing[TransactionRow]
    transactions_problem: Problem | None
    hanging: tuple[Hanging, ...]
    hanging_problem: Problem | None
    searched: int
    limit_ms: int


_COLUMNS: dict[str, Callable[[TransactionRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "open": lambda row: row.open_ms,
}


async def read(request: ConsoleRequest) -> Transactions:
    """The transactional ids with state and age of their transaction, and on demand those that hang."""
    rows, problem = await attempt(_rows(request), [])
    hanging: list[Hanging] = []
    hanging_problem: Problem | None = None
    partitions: tuple[TopicPartition, ...] = ()
    limit_ms = request.number("limit_seconds") * _SECOND_MS
    if request.flag("search"):
        topics = (await request.cluster.topics()).values()
        led = (TopicPartition(t.name, each.partition) for t in topics for each in t.partitions if each.leader_id >= 0)
        partitions = tuple(sorted(led)[:MOST_SEARCHED])
        before_ms = request.services.clock.wall_ms() - limit_ms
        hanging, hanging_problem = await attempt(
            request.cluster.kept(
                ("hanging", partitions, limit_ms),
                _HANGING_SECONDS,
                lambda: find_hanging(request.cluster, partitions, before_ms),
            ),
            [],
        )
    listing = list_rows(request, rows, _COLUMNS, text=lambda row: row.name)
    return Transactions(listing, problem, tuple(hanging), hanging_problem, len(partitions), limit_ms)


async def _rows(request: ConsoleRequest) -> list[TransactionRow]:
    cluster = request.cluster
    listed = await cluster.kept("transactions", LIST_SECONDS, cluster.admin.list_transactions)
    rows = [
        TransactionRow(
            each.transactional_id, each.state, each.producer_id, None, each.coordinator_id, None, None, (), False
        )
        for each in listed
    ]
    is_open = sorted(rows, key=lambda row: row.state.startswith(("Empty", "Complete")))
    names = tuple(row.name for row in is_open[:_MOST_DESCRIBED])

    async def ask() -> Results[str, TransactionDescription]:
        return await cluster.admin.describe_transactions(names)

    described = (await cluster.kept(("transactions", names), LIST_SECONDS, ask)).ok if names else {}
    return [_with_age(request, row, described.get(row.name)) for row in rows]


def _with_age(request: ConsoleRequest, row: TransactionRow, described: TransactionDescription | None) -> TransactionRow:
    if described is None:
        return row
    started_ms = described.start_time_ms
    open_ms = None if started_ms is None else max(0, request.services.clock.wall_ms() - started_ms)
    return replace(
        row,
        state=described.state,
        producer_epoch=described.producer_epoch,
        timeout_ms=described.timeout_ms,
        open_ms=open_ms,
        partitions=described.partitions,
        is_too_long=open_ms is not None and open_ms > request.number("limit_seconds") * _SECOND_MS,
    )


PAGE = Page(
    "/cluster/transactions",
    "Transactions",
    read,
    "transactions.html",
    query=(
        *listing_fields(_COLUMNS, "open", order="desc"),
        Field(
            "limit_seconds", "Open for longer than, in seconds", kind="number", default=900, least=0, most=10**9,
            help="transactions that are open for longer are marked",
        ),
        Field("search", "Search partitions", kind="flag", default=False, help="also find those no coordinator knows"),
    ),
    section="/cluster",
    live_seconds=5,
)  # fmt: skip
