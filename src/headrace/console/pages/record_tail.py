"""The page that follows the end of a topic. Its stream is ``record_answers.py``; without JavaScript one reloads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace.console.fields import Field
from headrace.console.pages.page import Page
from headrace.console.pages.record_fields import check_known, offsets_field, partition_ends
from headrace.console.records.browsing import read_offsets, write_offsets
from headrace.console.records.tail import Tail, TailRow, tail_row
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class RecordTail:
    """The records that came behind ``positions``, in short.

    :ivar following: the value of ``positions`` for the next ones.
    :ivar dropped: how many offsets were left out because too many waited.
    :ivar behind: how many offsets follow.
    """

    topic: str
    records: tuple[TailRow, ...]
    following: str
    dropped: int
    behind: int


async def read(request: ConsoleRequest) -> RecordTail:
    """The records behind ``positions``. Without positions, only where the partitions end now."""
    topic = request.text("topic")
    positions = await tail_positions(request)
    if not request.text("positions"):
        return RecordTail(topic, (), write_offsets(positions), 0, 0)
    found = await Tail(request.cluster, topic).portion(positions)
    decoder = request.services.records.decoder
    rows = await asyncio.to_thread(lambda: tuple(tail_row(each, decoder) for each in found.records))
    return RecordTail(topic, rows, write_offsets(found.positions), found.dropped, found.behind)


async def tail_positions(request: ConsoleRequest) -> dict[int, int]:
    """The offsets at which a tail begins: those of the request, else the ends."""
    ends = await partition_ends(request)
    given = check_known(read_offsets(request.text("positions")), ends, "positions")
    return {number: given.get(number, end.end_offset or 0) for number, end in ends.items()}


TAIL_FIELDS = (
    Field("partition", kind="number", default=None, least=0, most=2**31 - 1, help="empty: all partitions"),
    offsets_field("positions", "where each partition goes on"),
)
PAGE = Page("/topics/{topic}/tail", "Tail of {topic}", read, "record_tail.html", query=TAIL_FIELDS, section="/topics")
