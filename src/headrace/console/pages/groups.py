"""The page Groups: the groups of all protocols with state, members and lag, sorted, filtered and cut by the server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.admin.types import GroupListing
from headrace.client.errors import BrokerError, HeadraceError
from headrace.console.cluster.group_lags import group_lag
from headrace.console.cluster.reader import LIST_SECONDS, ClusterReader
from headrace.console.pages.listing import Listing, list_rows, listing_fields
from headrace.console.pages.page import Page
from headrace.console.request import ConsoleRequest

_MOST_DESCRIBED = 1_000
_MOST_LAGS = 100
_AT_ONCE = 8


@dataclass(frozen=True)
class GroupRow:
    """A group in the list.

    :ivar protocol: the kind of client: ``consumer``, ``connect``; empty if the group only commits offsets.
    :ivar type: the protocol of the group: Classic, Consumer, Share; empty from older brokers.
    :ivar members: None if the group cannot be described, or is not among the first thousand.
    :ivar lag: how many records the group has not read; None if it has committed nothing, or it is not known.
    """

    name: str
    state: str
    protocol: str
    type: str
    members: int | None
    lag: int | None


@dataclass(frozen=True)
class Groups:
    """The list of groups."""

    groups: Listing[GroupRow]


_COLUMNS: dict[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "protocol": lambda row: row.protocol,
    "type": lambda row: row.type,
    "members": lambda row: row.members,
    "lag": lambda row: row.lag,
}


async def read(request: ConsoleRequest) -> Groups:
    """The groups that the user may see. The lag is as of the last sample; without one it is read for the shown rows."""
    found = await request.cluster.groups()
    members = await _members(request.cluster, [group.group_id for group in found[:_MOST_DESCRIBED]])
    lags = _sampled_lags(request)
    rows = [_row(group, members, lags) for group in found]
    listing = list_rows(request, rows, _COLUMNS, text=lambda row: row.name)
    missing = [row.name for row in listing.rows if row.name not in lags][:_MOST_LAGS]
    read_now = await _read_lags(request.cluster, missing)
    shown = tuple(replace(row, lag=read_now[row.name]) if row.name in read_now else row for row in listing.rows)
    return Groups(replace(listing, rows=shown))


def _row(group: GroupListing, members: dict[str, int], lags: dict[str, int]) -> GroupRow:
    return GroupRow(
        group.group_id,
        group.state,
        group.protocol_type,
        group.type,
        members.get(group.group_id),
        lags.get(group.group_id),
    )


async def _members(cluster: ClusterReader, groups: list[str]) -> dict[str, int]:
    async def ask() -> dict[str, int]:
        found = (await cluster.admin.describe_groups(groups)).ok
        return {name: len(group.members) for name, group in found.items()}

    try:
        return await cluster.kept(("members", tuple(groups)), LIST_SECONDS, ask) if groups else {}
    except BrokerError:
        return {}


def _sampled_lags(request: ConsoleRequest) -> dict[str, int]:
    sample = request.services.history.latest
    lags: dict[str, int] = defaultdict(int)
    for (group, _), read_of in () if sample is None else sample.groups.items():
        lags[group] += read_of.lag
    return dict(lags)


async def _read_lags(cluster: ClusterReader, groups: Iterable[str]) -> dict[str, int | None]:
    turn = asyncio.Semaphore(_AT_ONCE)

    async def lag_of(group: str) -> int | None:
        async with turn:
            try:
                return await group_lag(cluster, group)
            except HeadraceError:
                return None

    wanted = list(groups)
    return dict(zip(wanted, await asyncio.gather(*map(lag_of, wanted)), strict=True))


PAGE = Page(
    "/groups",
    "Groups",
    read,
    "groups.html",
    query=listing_fields(_COLUMNS, "name"),
    navigation="Groups",
    live_seconds=5,
)
