"""The page of a topic's records, from an offset or a time on, or the newest ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace.console.cluster.reader import Ends
from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.pages.record_fields import (
    KEY_FORMAT,
    VALUE_FORMAT,
    check_known,
    offsets_at,
    offsets_field,
    partition_ends,
)
from headrace.console.problems import BadFields
from headrace.console.records.browsing import Browser, read_offsets, write_offsets
from headrace.console.records.rows import RecordRow, row_of
from headrace.console.records.times import read_time_ms, wrong_time
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class Records:
    """A page of records.

    :ivar partitions: how many partitions the page is about.
    :ivar newest_first: whether the newest record is the first.
    :ivar following: the value of ``positions`` for the records behind; empty if there is nothing behind.
    :ivar preceding: the value of ``before`` for the records before; empty if there is nothing before.
    :ivar is_whole: False if the page has fewer records than it might, because it would have read too much for them.
    """

    topic: str
    partitions: int
    records: tuple[RecordRow, ...]
    newest_first: bool
    following: str
    preceding: str
    is_whole: bool


async def read(request: ConsoleRequest) -> Records:
    """Records of a topic. ``positions`` and ``before`` of an answer lead to the next and the previous records."""
    ends = await partition_ends(request)
    rows = request.number("rows")
    browser = Browser(request.cluster.fetching, request.text("topic"), with_control=request.flag("control"))
    starts = await _starts(request, ends)
    if starts is None:
        before = check_known(read_offsets(request.text("before")), ends, "before")
        page = await browser.backwards(before, ends, rows)
    else:
        page = await browser.forwards(starts, ends, rows)
    has_more = any(page.following.get(number, 0) < (end.end_offset or 0) for number, end in ends.items())
    has_less = any(page.preceding.get(number, 0) > (end.first_offset or 0) for number, end in ends.items())
    decoder, formats = request.services.records.decoder, (request.text("key_format"), request.text("value_format"))
    return Records(
        request.text("topic"),
        len(ends),
        await asyncio.to_thread(lambda: tuple(row_of(each, decoder, *formats) for each in page.records)),
        starts is None,
        write_offsets(page.following) if has_more else "",
        write_offsets(page.preceding) if has_less else "",
        page.is_whole,
    )


async def _starts(request: ConsoleRequest, ends: dict[int, Ends]) -> dict[int, int] | None:
    """The offsets to read from; None to read backwards."""
    first = {number: end.first_offset or 0 for number, end in ends.items()}
    if positions := request.text("positions"):
        return check_known(read_offsets(positions), ends, "positions")
    if request.text("before") or request.text("start") == "newest":
        return None
    if request.text("start") == "offset":
        offset = request.number_or_none("offset")
        if offset is None:
            raise BadFields({"offset": "give the offset to start at"})
        return dict.fromkeys(ends, offset)
    if request.text("start") == "time":
        time_ms = read_time_ms(request.text("time"))
        if time_ms is None:
            raise BadFields({"time": "give the time to start at"})
        # A partition without a record at or after the time has nothing to show.
        return {number: end.end_offset or 0 for number, end in ends.items()} | await offsets_at(
            request, list(ends), time_ms
        )
    return first


PAGE = Page(
    "/topics/{topic}/records",
    "Records of {topic}",
    read,
    "records.html",
    query=(
        Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: all partitions"),
        Field("start", "Start at", kind="choice", choices=("newest", "oldest", "offset", "time"), default="newest"),
        Field("offset", kind="number", default=None, least=0, help="for the start at an offset"),
        Field("time", check=wrong_time, longest=40, help="2026-01-31 10:00 in UTC, or milliseconds; for a time"),
        Field("rows", "Records", kind="number", default=50, least=1, most=500),
        KEY_FORMAT,
        VALUE_FORMAT,
        Field("control", "Ends of transactions", kind="flag", default=False, help="show control records too"),
        offsets_field("positions", "where each partition begins"),
        offsets_field("before", "where each partition ends, read backwards"),
    ),
    section="/topics",
)
