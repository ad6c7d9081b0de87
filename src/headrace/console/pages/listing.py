"""Filters, sorts and cuts long lists on the server, so that a page stays small and works without JavaScript.

A page adds ``listing_fields`` to its query, and calls ``list_rows``. The template shows the result by the macros
``ui.filter``, ``ui.heading`` and ``ui.pager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.console.fields import Field
from headrace.console.request import ConsoleRequest

T = TypeVar("T")
MOST_ROWS = 500


@dataclass(frozen=True)
class Listing(Generic[T]):
    """One page of a list.

    :ivar total: how many rows there are without the filter.
    :ivar matching: how many rows pass the filter.
    """

    rows: tuple[T, ...]
    total: int
    matching: int
    page: int
    pages: int
    sort: str
    order: str
    q: str


def listing_fields(columns: Iterable[str], sort: str, *, order: str = "asc", rows: int = 100) -> tuple[Field, ...]:
    """The parameters of a list.

    :param columns: the names of the columns that one can sort by.
    :param sort: the column that the list is sorted by at first.
    """
    return (
        Field("q", "Filter", help="only rows whose name contains this text, in upper or lower case", longest=249),
        Field("sort", kind="choice", choices=tuple(columns), default=sort, help="the column to sort by"),
        Field("order", kind="choice", choices=("asc", "desc"), default=order, help="upwards or downwards"),
        Field("page", kind="number", default=1, least=1, most=1_000_000, help="the number of the page, from 1 on"),
        Field("rows", "Rows per page", kind="number", default=rows, least=1, most=MOST_ROWS),
    )


def list_rows(
    request: ConsoleRequest,
    rows: Iterable[T],
    columns: Mapping[str, Callable[[T], Any]],
    *,
    text: Callable[[T], str],
) -> Listing[T]:
    """
    :param columns: what each column sorts by. None is the smallest value.
    :param text: what the filter looks into.
    """
    everything = list(rows)
    wanted, sort, order = request.text("q"), request.text("sort"), request.text("order")
    found = [row for row in everything if wanted.lower() in text(row).lower()] if wanted else everything
    key = columns[sort]

    def place(row: T) -> tuple[bool, Any]:
        value = key(row)
        return (value is not None, value if value is not None else 0)

    found = sorted(sorted(found, key=text), key=place, reverse=order == "desc")
    per_page = request.number("rows")
    pages = max(1, -(-len(found) // per_page))
    page = min(request.number("page"), pages)
    shown = found[(page - 1) * per_page : page * per_page]
    return Listing(tuple(shown), len(everything), len(found), page, pages, sort, order, wanted)
